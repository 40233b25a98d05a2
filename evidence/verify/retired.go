package verify

import (
	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/internal/scope"
	"github.com/countersign-dev/countersign/evidence/internal/view"
)

// RetiredKeys checks the signatures on decisions and approvals again with retirements of keys
// that are known from elsewhere, because a part of the log does not show the rest. A
// retirement takes effect at its own time. The result has a finding for each signature that
// a retired key made later. keys are the vouched keys of the records.
func RetiredKeys(key note.Verifier, keys []events.KeyRecord, retired []events.KeyRetirement, records func(yield func(evidence.Record) error) error) ([]Finding, error) {
	rep := newReport(0)
	t := newTrust(rep, []note.Verifier{key}, keys, nil, nil)
	e := &Examiner{recordVerifier: t.recordVerifier(), scopes: map[string]scope.Scope{}}
	before := rep.Total // unvouched keys are reported already
	for _, k := range retired {
		t.retireKey(0, k)
	}
	err := records(func(r evidence.Record) error {
		what, ok := map[string]factKind{evidence.KindDecision: factDecision, evidence.KindApproval: factApproval}[r.Kind]
		if !ok {
			return nil
		}
		e.result = &Examined{seq: r.Seq}
		v := view.OfRecord(r)
		if claim := e.checkSignature(what, &v); claim.keyID != "" && claim.valid {
			t.verifySignature(claim)
		}
		return nil
	})
	return rep.Findings[min(before, len(rep.Findings)):], err
}
