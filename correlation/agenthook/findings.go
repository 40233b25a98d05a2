package agenthook

import "github.com/countersign-dev/countersign/correlation/catalogue"

// eventRef refers to an event that proves a finding.
type eventRef struct {
	id  string
	seq uint64
}

func (x *Event) eventRef() eventRef { return eventRef{x.ID, x.Seq} }

// findingList collects the findings of one event, in order.
type findingList []*catalogue.Finding

// add adds a finding with these events as its proof. The caller may complete it before the
// next call.
func (l *findingList) add(check, what string, proof ...eventRef) *catalogue.Finding {
	found := &catalogue.Finding{Check: check, Text: what}
	for _, p := range proof {
		if p.id != "" {
			found.Events = append(found.Events, p.id)
		}
		if p.seq != 0 {
			found.Seqs = append(found.Seqs, p.seq)
		}
	}
	*l = append(*l, found)
	return found
}

// retract adds the retraction of an earlier finding.
func (l *findingList) retract(earlier *catalogue.Finding, why string, proof ...eventRef) *catalogue.Finding {
	found := l.add(earlier.Check, why, proof...)
	found.Replaces, found.RetractsOnly = earlier, true
	return found
}
