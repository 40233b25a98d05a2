package format

import (
	"github.com/countersign-dev/countersign/compliance/format/encode"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
)

// severityGrade is a severity in the scales of the two SIEM formats.
type severityGrade struct {
	ocsf int // severity_id: 1 informational, 2 low, 3 medium, 4 high, 5 critical
	cef  int // 0 to 10
}

// The grades.
var (
	verdictGrades = map[events.Verdict]severityGrade{events.Allow: {1, 1}, events.Ask: {2, 3}, events.Defer: {2, 3}, events.Deny: {3, 5}}
	stateGrades   = map[events.CallState]severityGrade{events.CallOpen: {1, 1}, events.CallCompleted: {1, 1}, events.CallFailed: {2, 3}, events.CallDenied: {1, 1},
		events.CallAbandoned: {2, 3}, events.CallOrphaned: {3, 5}}
	findingGrades = map[events.Severity]severityGrade{events.SeverityInfo: {1, 1}, events.SeverityLow: {2, 3}, events.SeverityMedium: {3, 5},
		events.SeverityHigh: {4, 8}, events.SeverityCritical: {5, 10}}
	approvalGrade = severityGrade{1, 1}
	unknownGrade  = severityGrade{3, 5} // of an unknown value
)

func gradeOf[K comparable](table map[K]severityGrade, key K) severityGrade {
	if g, known := table[key]; known {
		return g
	}
	return unknownGrade
}

// siemEncoder passes the records that a SIEM receives to the writers of one format.
type siemEncoder struct {
	out      *encode.Writer
	decision func(encode.Item, events.Decision) error
	call     func(encode.Item, events.Call) error
	approval func(encode.Item, events.Approval) error
	finding  func(encode.Item, events.Finding) error
}

func (s siemEncoder) End() error { return nil }

func (s siemEncoder) Add(i encode.Item) error {
	switch i.Record.Kind {
	case evidence.KindDecision:
		return writeDecoded(s, i, s.decision)
	case evidence.KindCall:
		return writeDecoded(s, i, s.call)
	case evidence.KindApproval:
		return writeDecoded(s, i, s.approval)
	case evidence.KindFinding:
		return writeDecoded(s, i, s.finding)
	}
	return nil // requests and events are described by decisions and calls
}

func writeDecoded[T any](s siemEncoder, i encode.Item, write func(encode.Item, T) error) error {
	v, ok := encode.ReadRecord[T](s.out, i.Record)
	if !ok {
		return nil
	}
	return write(i, v)
}

// callSpan returns when a call began and ended, by the log's clock.
func callSpan(c events.Call) (begin, end events.Time) {
	for _, step := range c.Timeline {
		if begin.IsZero() || step.At.Before(begin.Time) {
			begin = step.At
		}
		if step.At.After(end.Time) {
			end = step.At
		}
	}
	return begin, end
}

// observedVerdict is what the policies would have given if they had been enforced; "" if that is the
// verdict.
func observedVerdict(d events.Decision) string {
	if !d.ObservedOnly() {
		return ""
	}
	return string(d.EnforcedVerdict())
}
