package aaep

import (
	"math/bits"

	"github.com/countersign-dev/countersign/correlation/catalogue"
)

// reports is what the session was found to break: the findings of one event, and what was
// said that is said once a session.
type reports struct {
	findingList  `snapshot:"-"` // of one event
	givenHints   hintSet
	reportedOnce onceFlags
}

// findingList collects what one message proves.
type findingList []*catalogue.Finding

// add notes a violation that these events prove. The caller may complete it before the
// next one is noted.
func (f *findingList) add(check, what string, proof ...eventRef) *catalogue.Finding {
	found := newFinding(check, what, proof...)
	*f = append(*f, found)
	return found
}

// retract takes a finding back.
func (f *findingList) retract(found *catalogue.Finding, why string, e *Event) {
	back := f.add(found.Check, why, e.eventRef())
	back.Replaces, back.RetractsOnly = found, true
}

// newFinding makes the finding of a violation that these events prove.
func newFinding(check, what string, proof ...eventRef) *catalogue.Finding {
	found := &catalogue.Finding{Check: check, Text: what}
	for _, p := range proof {
		if p.id != "" {
			found.Events = append(found.Events, p.id)
		}
		if p.seq != 0 {
			found.Seqs = append(found.Seqs, p.seq)
		}
	}
	return found
}

// onceFlags holds what is said once a session.
type onceFlags uint8

const (
	reportedSkew onceFlags = 1 << iota
	reportedQuietState
	reportedMixedOutputs
)

// addOnce notes a violation unless the session was found to break it before. It gives nil
// then.
func (r *reports) addOnce(once onceFlags, check string, proof ...eventRef) *catalogue.Finding {
	if r.reportedOnce&once != 0 {
		return nil
	}
	r.reportedOnce |= once
	return r.add(check, "", proof...)
}

// addHints reports the checks that an event fails by itself.
func (r *reports) addHints(e *Event) {
	for left := e.hints; left != 0; left &= left - 1 {
		bit := left & -left
		c := hintChecks[bits.TrailingZeros16(uint16(bit))]
		if c.once && r.givenHints&bit != 0 {
			continue
		}
		r.givenHints |= bit
		r.add(c.check, c.what, e.eventRef())
	}
}

// checkSkew compares an event's time with that of its receipt. A recording does not say
// when its events were received: it is known only that they were by Event.Until.
func (r *reports) checkSkew(e *Event) {
	if e.Time.IsZero() || r.reportedOnce&reportedSkew != 0 {
		return
	}
	received := e.At
	if e.FromRecording && !e.RecordedUntil.IsZero() {
		received = e.RecordedUntil
	}
	if e.Time.Sub(received) > maxClockAhead || e.At.Sub(e.Time) > maxClockBehind {
		asHint(r.addOnce(reportedSkew, "AAEP-C-067", e.eventRef()))
	}
}
