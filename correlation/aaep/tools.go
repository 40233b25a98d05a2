package aaep

import (
	"slices"
	"time"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aaep"
)

// invocation is a tool call that is open.
type invocation struct {
	id, tool     string
	event        eventRef
	invokedAt    time.Time
	expectedMS   int64 // milliseconds; 0 if it was not announced
	irreversible bool  // irreversible
	risk         riskLevel

	correlation string // of an invocation without an id

	unaskedFinding *catalogue.Finding // of an invocation that nobody was asked about first
	laterQuestion  *userQuestion      // the question that came after it
}

// riskLevel is ordered.
type riskLevel uint8

const (
	riskLow riskLevel = iota
	riskMedium
	riskHigh
)

var riskLevels = map[string]riskLevel{"medium": riskMedium, "high": riskHigh}

// isRisky tells whether the user must have been asked (A-05 of the digest).
func (i *invocation) isRisky() bool { return i.irreversible || i.risk == riskHigh }

func (s *Session) handleInvocation(e *Event, p *aaep.ToolInvoked) {
	i := &invocation{id: boundID(p.ToolCallID), tool: boundID(p.Tool), event: e.eventRef(), invokedAt: e.producerTime(),
		irreversible: isTrue(p.Irreversible), risk: riskLevels[p.RiskLevel]}
	if p.ExpectedDurationMS != nil {
		i.expectedMS = *p.ExpectedDurationMS
	}
	s.invocationCount++
	s.stateExplained, s.actedSinceAnswer = true, true
	if s.announcedTools != nil && !s.announcedTools[i.tool] {
		s.addFinding("AAEP-C-088", "", e.eventRef()).Call = i.id
	}
	if i.id == "" {
		i.correlation = e.correlation
		if o := s.findOpenInvocation(func(o *invocation) bool { return o.id == "" && o.tool == i.tool }); o != nil {
			s.addFinding("AAEP-C-085", "", o.event, e.eventRef())
		}
	}
	s.judgeInvocation(e, i)
	if len(s.openInvocations) >= maxOpenInvocations {
		s.openInvocations = slices.Delete(s.openInvocations, 0, 1)
	}
	s.openInvocations = append(s.openInvocations, i)
}

// findOpenInvocation gives the oldest open invocation that fits.
func (s *Session) findOpenInvocation(fits func(*invocation) bool) *invocation {
	for _, i := range s.openInvocations {
		if fits(i) {
			return i
		}
	}
	return nil
}

// handleCompletion pairs a completion by its id, else by tool and correlation id, else by tool
// in order; among several invocations of one id, that of its own tool comes first. That nothing was invoked,
// or nothing completed, is found where calls are correlated.
func (s *Session) handleCompletion(e *Event, p *aaep.ToolCompleted) {
	id, tool := boundID(p.ToolCallID), boundID(p.Tool)
	s.stateExplained = true
	var i *invocation
	if id == "" && e.correlation != "" {
		i = s.findOpenInvocation(func(o *invocation) bool { return o.id == "" && o.tool == tool && o.correlation == e.correlation })
	}
	if i == nil {
		i = s.findOpenInvocation(func(o *invocation) bool { return o.id == id && o.tool == tool })
	}
	if i == nil && id != "" {
		i = s.findOpenInvocation(func(o *invocation) bool { return o.id == id })
	}
	if i == nil {
		i = s.findOpenInvocation(func(o *invocation) bool { return (o.id == "") != (id == "") && o.tool == tool })
		if i == nil {
			return
		}
		s.addFinding("AAEP-C-084", "", i.event, e.eventRef()).Call = firstNonEmpty(i.id, id)
	}
	s.openInvocations = slices.DeleteFunc(s.openInvocations, func(o *invocation) bool { return o == i })
	s.checkDurations(e, p, i)
	if p.Status == "success" && i.laterQuestion != nil {
		s.judgeLateQuestion(e, i)
	}
}

func (s *Session) checkDurations(e *Event, p *aaep.ToolCompleted, i *invocation) {
	seen := e.producerTime().Sub(i.invokedAt).Milliseconds()
	switch {
	case p.DurationMS != nil && durationsDiffer(*p.DurationMS, seen):
		s.addFinding("AAEP-C-086", "not what the events show", i.event, e.eventRef()).Call = i.id
	case i.expectedMS > 0 && seen > 2*i.expectedMS:
		s.addFinding("AAEP-C-086", "more than twice what was announced", i.event, e.eventRef()).Call = i.id
	}
}

// durationsDiffer tells whether two durations in milliseconds are apart by more than a
// second and a quarter of the longer one.
func durationsDiffer(a, b int64) bool {
	gap := max(a, b) - min(a, b)
	return gap > 1000 && gap > max(a, b)/4
}

// asHint makes a breach a hint.
func asHint(b *catalogue.Finding) *catalogue.Finding {
	b.Severity = events.SeverityInfo
	return b
}
