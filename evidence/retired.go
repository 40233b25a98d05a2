package evidence

import (
	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/events"
)

// RetiredKeys looks at decisions and approvals once more, with retirements of keys
// that are known from elsewhere: a part of the log cannot show what happened in the
// rest. The time of the retirement counts. The signatures that a retired key made
// later are problems; keys are the vouched keys of the records.
func RetiredKeys(key note.Verifier, keys []events.KeyRecord, retired []events.KeyRetirement, records func(yield func(Record) error) error) ([]Finding, error) {
	rep := newReport(0)
	t := newTrust(rep, []note.Verifier{key}, keys, nil, nil)
	e := &Examiner{recordVerifier: t.recordVerifier(), scopes: map[string]subjectScope{}}
	before := rep.Total // unvouched keys are reported already
	for _, k := range retired {
		t.retireKey(0, k)
	}
	err := records(func(r Record) error {
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
	return rep.Findings[min(before, len(rep.Findings)):], err
}
