package inspect

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/cli/ui"
)

// durationsOf returns how long the verdict took, how long after it the call started and how long
// the call ran, by the broker's clock; -1 if unknown.
func durationsOf(c events.Call) (decided, started, ran time.Duration) {
	d := c.Durations
	if d == nil { // as for a call that its runtime denied: the timeline has what is known
		return between(c.Timeline, "requested", "decided"), between(c.Timeline, "decided", "invoked"), between(c.Timeline, "invoked", "completed")
	}
	return inMicroseconds(d.Decided), inMicroseconds(d.Started), inMicroseconds(d.Ran)
}

func between(steps []events.TimelineEntry, from, to string) time.Duration {
	var begun events.Time
	for _, s := range steps {
		switch {
		case s.Step == from && begun.IsZero():
			begun = s.At
		case s.Step == to && !begun.IsZero():
			return s.At.Sub(begun.Time)
		}
	}
	return -1
}

func inMicroseconds(n *int64) time.Duration {
	if n == nil {
		return -1
	}
	return time.Duration(*n) * time.Microsecond
}

var matchReasons = map[string]string{
	events.MatchRedacted:    "a redaction hides what may differ",
	events.MatchNotKept:     "the arguments were too large or no longer in memory, so only their digests were compared",
	events.MatchDigestOnly:  "of what was admitted only the digest is known",
	events.MatchDigestForm:  "the digests cannot be compared with each other",
	events.MatchNotReported: "one side's arguments were never reported",
}

// mismatch describes where the arguments differ, or why that is unknown; "" if they do not
// differ.
func mismatch(c events.Call) string {
	var words []string
	for _, d := range c.Differences {
		words = append(words, d.Kind+" "+cmp.Or(d.Pointer, "(all of it)"))
	}
	if c.MoreDifferences > 0 {
		words = append(words, fmt.Sprintf("and %d more", c.MoreDifferences))
	}
	if c.MatchReason != "" {
		words = append(words, cmp.Or(matchReasons[c.MatchReason], c.MatchReason))
	}
	return strings.Join(words, ", ")
}

// linksOf describes the call's links to other calls and sessions.
func linksOf(c events.Call) (lines []string) {
	if len(c.Protocols) > 0 {
		lines = append(lines, "seen as "+strings.Join(c.Protocols, " and "))
	}
	if c.Attempt > 1 {
		lines = append(lines, fmt.Sprintf("attempt %d, after %s", c.Attempt, c.RetriedFrom))
	}
	if c.RetriedTo != "" {
		lines = append(lines, "tried again as "+c.RetriedTo)
	}
	if c.Parent != nil {
		lines = append(lines, "belongs to "+parentText(*c.Parent))
	}
	if words := bindingWords[c.Binding]; words != "" {
		lines = append(lines, words)
	}
	if c.Traceparent != "" {
		lines = append(lines, "trace "+c.Traceparent)
	}
	return lines
}

// bindingWords describe how a call's confirmation was found.
var bindingWords = map[string]string{
	events.BindingExplicit: "rests on a confirmation that names it",
	events.BindingInferred: "rests on a confirmation that names no call",
}

func parentText(p events.CallParent) string {
	text := "session " + p.Session + " of " + p.Source
	if p.CallID != "" {
		text += ", " + p.CallID
	}
	return text + " (it says so by " + cmp.Or(parentWords[p.By], p.By) + ")"
}

var parentWords = map[string]string{
	events.LinkEvent: "the event that it names", events.LinkSpan: "the call's own traceparent", events.LinkGoal: "its goal's parent session",
	events.LinkSession: "the session that it names", events.LinkTrace: "a trace that began there",
}

// claimText describes the times that the producer claims, "" without any.
func claimText(c *events.CallClaim) string {
	if c == nil {
		return ""
	}
	var words []string
	if !c.StartedAt.IsZero() {
		words = append(words, "started "+c.StartedAt.UTC().Format("15:04:05.000"))
	}
	if !c.CompletedAt.IsZero() {
		words = append(words, "ended "+c.CompletedAt.UTC().Format("15:04:05.000"))
	}
	if c.DurationMS > 0 {
		words = append(words, "took "+ui.ShortDuration(time.Duration(min(c.DurationMS, 1<<40))*time.Millisecond))
	}
	if c.Attempt > 0 {
		words = append(words, fmt.Sprintf("attempt %d", c.Attempt))
	}
	return strings.Join(words, ", ")
}
