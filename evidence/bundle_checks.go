package evidence

import (
	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/events"
)

// WitnessCheck demands that a bundle's checkpoint is signed by a quorum of
// witnesses, by all if it is 0.
func WitnessCheck(witnesses []note.Verifier, quorum int) BundleCheck {
	witnesses = distinctKeys(witnesses)
	if quorum <= 0 {
		quorum = len(witnesses)
	}
	return func(c BundleContents) []Finding {
		if have := len(Cosigners(c.CheckpointText, witnesses)); have < quorum {
			return []Finding{newFinding(CodeWitnesses, 0, memberCheckpoint, "signed by %d of the %d witnesses, and %d are asked for", have, len(witnesses), quorum)}
		}
		return nil
	}
}

// RetiredCheck looks at a bundle's decisions and approvals once more, with what
// somebody else knows of retired keys: a bundle cannot show what happened
// elsewhere in the log. The time of the retirement counts.
func RetiredCheck(key note.Verifier, retired []events.KeyRetirement) BundleCheck {
	return func(c BundleContents) []Finding {
		rep := newReport(0)
		t := newTrust(rep, []note.Verifier{key}, c.Keys, nil, nil)
		e := &Examiner{recordVerifier: t.recordVerifier(), scopes: map[string]subjectScope{}}
		before := rep.Total // unvouched keys are reported already
		for _, k := range retired {
			t.retireKey(0, k)
		}
		_ = c.Each(func(r Record) error { // that they can be read was seen before
			what, ok := map[string]factKind{KindDecision: factDecision, KindApproval: factApproval}[r.Kind]
			if !ok {
				return nil
			}
			e.result = &Examined{seq: r.Seq}
			v := viewOf(r)
			if claim := e.checkSignature(what, &v); claim.keyID != "" && claim.valid {
				t.verifySignature(claim)
			}
			return nil
		})
		return rep.Findings[min(before, len(rep.Findings)):]
	}
}
