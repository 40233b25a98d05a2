package evidence

import (
	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/events"
)

// WitnessCheck demands that a bundle's checkpoint is signed by a quorum of
// witnesses, by all if it is 0.
func WitnessCheck(witnesses []note.Verifier, quorum int) BundleCheck {
	witnesses = distinct(witnesses)
	if quorum <= 0 {
		quorum = len(witnesses)
	}
	return func(c BundleContents) []Problem {
		if have := len(Cosigners(c.CheckpointText, witnesses)); have < quorum {
			return []Problem{problemOf(CodeWitnesses, 0, memberCheckpoint, "signed by %d of the %d witnesses, and %d are asked for", have, len(witnesses), quorum)}
		}
		return nil
	}
}

// RetiredCheck looks at a bundle's decisions and approvals once more, with what
// somebody else knows of retired keys: a bundle cannot show what happened
// elsewhere in the log. The time of the retirement counts.
func RetiredCheck(key note.Verifier, retired []events.KeyRetirement) BundleCheck {
	return func(c BundleContents) []Problem {
		rep := newReport(0)
		t := newTrust(rep, []note.Verifier{key}, c.Keys, nil, nil)
		e := &Examiner{records: t.records(), scopes: map[string]scope{}}
		before := rep.Total // unvouched keys are reported already
		for _, k := range retired {
			t.retire(0, k)
		}
		_ = c.Each(func(r Record) error { // that they can be read was seen before
			what, ok := map[string]factKind{KindDecision: factDecision, KindApproval: factApproval}[r.Kind]
			if !ok {
				return nil
			}
			e.out = &Examined{seq: r.Seq}
			v := viewOf(r)
			if claim := e.claim(what, &v); claim.kid != "" && claim.good {
				t.claim(claim)
			}
			return nil
		})
		return rep.Problems[min(before, len(rep.Problems)):]
	}
}
