package aaep

import (
	"math/bits"

	"github.com/countersign-dev/countersign/correlation/catalogue"
)

// reports collects the findings of a session's event, and remembers findings that are made
// once a session.
type reports struct {
	findingList  `snapshot:"-"` // of the current event
	givenHints   hintSet
	reportedOnce onceFlags
}

// findingList collects the findings of one message.
type findingList []*catalogue.Finding

// add adds a finding with these events as its proof. The caller may complete it before the
// next call.
func (f *findingList) add(check, what string, proof ...eventRef) *catalogue.Finding {
	found := newFinding(check, what, proof...)
	*f = append(*f, found)
	return found
}

// retract adds the retraction of a finding.
func (f *findingList) retract(found *catalogue.Finding, why string, e *Event) {
	back := f.add(found.Check, why, e.eventRef())
	back.Replaces, back.RetractsOnly = found, true
}

// newFinding makes a finding with these events as its proof.
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

// onceFlags are the findings that are made once a session.
type onceFlags uint8

const (
	reportedSkew onceFlags = 1 << iota
	reportedQuietState
	reportedMixedOutputs
)

// addOnce is add for a finding that is made once a session. It returns nil if it was made
// before.
func (r *reports) addOnce(once onceFlags, check string, proof ...eventRef) *catalogue.Finding {
	if r.reportedOnce&once != 0 {
		return nil
	}
	r.reportedOnce |= once
	return r.add(check, "", proof...)
}

// addHints adds the findings of checks that the event breaks by itself.
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

// checkSkew compares an event's time with the broker's. In a recording, RecordedUntil takes
// the place of the broker's time.
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
