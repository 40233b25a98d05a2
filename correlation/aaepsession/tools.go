package aaepsession

import (
	"slices"
	"time"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aaep"
)

// invocation is a tool call that is open.
type invocation struct {
	id, tool string
	ref      ref
	when     time.Time
	expected int64 // milliseconds; 0 if it was not announced
	final    bool  // irreversible
	risk     risk

	correlation string // of an invocation without an id

	unasked *catalogue.Breach // of an invocation that nobody was asked about first
	late    *ask              // the question that came after it
}

// risk is ordered.
type risk uint8

const (
	riskLow risk = iota
	riskMedium
	riskHigh
)

var risks = map[string]risk{"medium": riskMedium, "high": riskHigh}

// grave tells whether the user must have been asked (A-05 of the digest).
func (i *invocation) grave() bool { return i.final || i.risk == riskHigh }

func (s *Session) invoked(e *Event, p *aaep.ToolInvoked) {
	i := &invocation{id: bounded(p.ToolCallID), tool: bounded(p.Tool), ref: e.ref(), when: e.when(),
		final: isTrue(p.Irreversible), risk: risks[p.RiskLevel]}
	if p.ExpectedDurationMS != nil {
		i.expected = *p.ExpectedDurationMS
	}
	s.invocations++
	s.explained, s.wentOn = true, true
	if s.tools != nil && !s.tools[i.tool] {
		s.breach("AAEP-C-088", "", e.ref()).Call = i.id
	}
	if i.id == "" {
		i.correlation = e.correlation
		if o := s.openFor(func(o *invocation) bool { return o.id == "" && o.tool == i.tool }); o != nil {
			s.breach("AAEP-C-085", "", o.ref, e.ref())
		}
	}
	s.judge(e, i)
	if len(s.open) >= maxOpen {
		s.open = slices.Delete(s.open, 0, 1)
	}
	s.open = append(s.open, i)
}

// openFor gives the oldest open invocation that fits.
func (s *Session) openFor(fits func(*invocation) bool) *invocation {
	for _, i := range s.open {
		if fits(i) {
			return i
		}
	}
	return nil
}

// completed pairs a completion by its id, else by tool and correlation id, else by tool
// in order; among several invocations of one id, that of its own tool comes first. That nothing was invoked,
// or nothing completed, is found where calls are correlated.
func (s *Session) completed(e *Event, p *aaep.ToolCompleted) {
	id, tool := bounded(p.ToolCallID), bounded(p.Tool)
	s.explained = true
	var i *invocation
	if id == "" && e.correlation != "" {
		i = s.openFor(func(o *invocation) bool { return o.id == "" && o.tool == tool && o.correlation == e.correlation })
	}
	if i == nil {
		i = s.openFor(func(o *invocation) bool { return o.id == id && o.tool == tool })
	}
	if i == nil && id != "" {
		i = s.openFor(func(o *invocation) bool { return o.id == id })
	}
	if i == nil {
		i = s.openFor(func(o *invocation) bool { return (o.id == "") != (id == "") && o.tool == tool })
		if i == nil {
			return
		}
		s.breach("AAEP-C-084", "", i.ref, e.ref()).Call = first(i.id, id)
	}
	s.open = slices.DeleteFunc(s.open, func(o *invocation) bool { return o == i })
	s.durations(e, p, i)
	if p.Status == "success" && i.late != nil {
		s.judgeLate(e, i)
	}
}

func (s *Session) durations(e *Event, p *aaep.ToolCompleted, i *invocation) {
	seen := e.when().Sub(i.when).Milliseconds()
	switch {
	case p.DurationMS != nil && differs(*p.DurationMS, seen):
		s.breach("AAEP-C-086", "not what the events show", i.ref, e.ref()).Call = i.id
	case i.expected > 0 && seen > 2*i.expected:
		s.breach("AAEP-C-086", "more than twice what was announced", i.ref, e.ref()).Call = i.id
	}
}

// differs tells whether two durations in milliseconds are apart by more than a
// second and a quarter of the longer one.
func differs(a, b int64) bool {
	gap := max(a, b) - min(a, b)
	return gap > 1000 && gap > max(a, b)/4
}

// hint makes a breach a hint.
func hint(b *catalogue.Breach) *catalogue.Breach {
	b.Severity = events.SeverityInfo
	return b
}
