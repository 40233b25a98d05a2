package aaep

import (
	"cmp"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aaep"
)

// tools holds the announced tools of a session, at most maxTools, and its open invocations, at
// most maxOpenInvocations.
type tools struct {
	announced map[string]bool
	open      []*invocation
	count     int64 // of invocations

	claimedCount int64              // of invocations, as the terminal event says
	countFinding *catalogue.Finding // that the two differ
}

// announce sets the announced tools.
func (t *tools) announce(names []string) {
	if len(names) == 0 || len(names) > maxTools {
		return
	}
	t.announced = make(map[string]bool, len(names))
	for _, name := range names {
		t.announced[fact.BoundID(name)] = true
	}
}

// drop forgets tools and open invocations at the end of the session.
func (t *tools) drop() { t.announced, t.open = nil, nil }

func (t *tools) wereInvoked() bool { return t.count > 0 }

func (t *tools) storedItems() int { return len(t.announced) + len(t.open) }

// invocation is an open tool call.
type invocation struct {
	id, tool     string
	agent        string
	event        eventRef
	invokedAt    time.Time
	expectedMS   int64 // milliseconds; 0 if not announced
	irreversible bool
	risk         riskLevel

	correlation string // of an invocation without an id

	unaskedFinding *catalogue.Finding // the finding that no user was asked first
	laterQuestion  *userQuestion      // a question that came after it
}

// riskLevel is ordered.
type riskLevel uint8

const (
	riskLow riskLevel = iota
	riskMedium
	riskHigh
)

var riskLevels = map[string]riskLevel{"medium": riskMedium, "high": riskHigh}

// isRisky reports whether the user must be asked (A-05 of the digest).
func (i *invocation) isRisky() bool { return i.irreversible || i.risk == riskHigh }

func newInvocation(e *Event, p *aaep.ToolInvoked) *invocation {
	i := &invocation{id: fact.BoundID(p.ToolCallID), tool: fact.BoundID(p.Tool), agent: e.agent, event: e.eventRef(), invokedAt: e.producerTime(),
		irreversible: isTrue(p.Irreversible), risk: riskLevels[p.RiskLevel]}
	if p.ExpectedDurationMS != nil {
		i.expectedMS = *p.ExpectedDurationMS
	}
	return i
}

func (t *tools) handleInvocation(r *reports, q *questions, e *Event, p *aaep.ToolInvoked) {
	i := newInvocation(e, p)
	t.count++
	if t.announced != nil && !t.announced[i.tool] {
		r.add("AAEP-C-088", "", e.eventRef()).Call = i.id
	}
	if i.id == "" {
		i.correlation = e.correlation
		if o := t.findOpen(func(o *invocation) bool { return o.id == "" && o.tool == i.tool }); o != nil {
			r.add("AAEP-C-085", "", o.event, e.eventRef())
		}
	}
	q.judgeInvocation(r, e, i)
	if len(t.open) >= maxOpenInvocations {
		t.open = slices.Delete(t.open, 0, 1)
	}
	t.open = append(t.open, i)
}

// findOpen returns the oldest open invocation that fits.
func (t *tools) findOpen(fits func(*invocation) bool) *invocation {
	for _, i := range t.open {
		if fits(i) {
			return i
		}
	}
	return nil
}

// handleCompletion pairs a completion with an invocation: by its id, else by tool and
// correlation id, else by tool in order. Of several invocations under one id, the one with its
// tool comes first. Orphans and missing completions are found by the calls, not here.
func (t *tools) handleCompletion(r *reports, e *Event, p *aaep.ToolCompleted) {
	id, tool := fact.BoundID(p.ToolCallID), fact.BoundID(p.Tool)
	var i *invocation
	if id == "" && e.correlation != "" {
		i = t.findOpen(func(o *invocation) bool { return o.id == "" && o.tool == tool && o.correlation == e.correlation })
	}
	if i == nil {
		i = t.findOpen(func(o *invocation) bool { return o.id == id && o.tool == tool })
	}
	if i == nil && id != "" {
		i = t.findOpen(func(o *invocation) bool { return o.id == id })
	}
	if i == nil {
		i = t.findOpen(func(o *invocation) bool { return (o.id == "") != (id == "") && o.tool == tool })
		if i == nil {
			return
		}
		r.add("AAEP-C-084", "", i.event, e.eventRef()).Call = cmp.Or(i.id, id)
	}
	t.open = slices.DeleteFunc(t.open, func(o *invocation) bool { return o == i })
	i.checkDurations(r, e, p)
	if p.Status == "success" && i.laterQuestion != nil {
		i.judgeLateQuestion(r, e)
	}
}

func (i *invocation) checkDurations(r *reports, e *Event, p *aaep.ToolCompleted) {
	seen := e.producerTime().Sub(i.invokedAt).Milliseconds()
	switch {
	case p.DurationMS != nil && durationsDiffer(*p.DurationMS, seen):
		r.add("AAEP-C-086", "not what the events show", i.event, e.eventRef()).Call = i.id
	case i.expectedMS > 0 && seen > 2*i.expectedMS:
		r.add("AAEP-C-086", "more than twice what was announced", i.event, e.eventRef()).Call = i.id
	}
}

// checkLeftCalling reports that an agent left calling_tool although its only open invocation
// is not completed.
func (t *tools) checkLeftCalling(r *reports, st *states, e *Event, p *aaep.StateChanged) {
	if p.FromState != stateCalling || p.ToState == stateCalling {
		return
	}
	var own *invocation
	for _, i := range t.open {
		switch {
		case !st.areOne(i.agent, e.agent):
		case own != nil:
			return
		default:
			own = i
		}
	}
	if own != nil {
		r.add("AAEP-C-087", "", own.event, e.eventRef()).Call = own.id
	}
}

// checkCount compares the number of invocations in the terminal event with the observed one.
func (t *tools) checkCount(r *reports, e *Event, p *aaep.SessionCompleted) {
	if n := p.ToolInvocationsCount; n != nil && *n != t.count {
		t.claimedCount, t.countFinding = *n, r.add("AAEP-C-071", "the number of invocations", e.eventRef())
		t.countFinding.Case = "count"
	}
}

// countOvertaken counts an invocation that the session's end has overtaken.
func (t *tools) countOvertaken(r *reports, e *Event) {
	if t.count++; t.countFinding != nil && t.count == t.claimedCount {
		r.retract(t.countFinding, overtakenReason, e)
		t.countFinding = nil
	}
}

// durationsDiffer reports whether two durations in milliseconds differ by more than a second
// and a quarter of the longer one.
func durationsDiffer(a, b int64) bool {
	gap := max(a, b) - min(a, b)
	return gap > 1000 && gap > max(a, b)/4
}

// asHint lowers a finding to a hint.
func asHint(found *catalogue.Finding) *catalogue.Finding {
	found.Severity = events.SeverityInfo
	return found
}
