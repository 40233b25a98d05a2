package policycmd

import (
	"context"
	"fmt"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/recorded"
)

// signatureCheck is the result of checking the record's signature.
type signatureCheck struct {
	Valid   bool   `json:"valid"`
	KeyID   string `json:"kid,omitempty"`
	Vouched bool   `json:"vouched"` // the checkpoint key has signed the key's record
	Problem string `json:"problem,omitempty"`
}

// signature checks the record's bytes in the log with the keys that the log published.
func (c *ExplainCmd) signature(ctx context.Context, l recorded.Log, t *target.Target, e recorded.Entry) (signatureCheck, error) {
	known, err := c.checkpointKeys(t)
	if err != nil {
		return signatureCheck{}, err
	}
	set, err := publishedKeys(ctx, l, known)
	if err != nil {
		return signatureCheck{}, err
	}
	token := e.Message.HeaderValue(events.HeaderSignature)
	if token == "" {
		return signatureCheck{Problem: "the record has no signature: no admitter made it"}, nil
	}
	kid, err := set.keys.VerifyRecord(token, e.Message.Body)
	if err != nil {
		return signatureCheck{Problem: "the signature does not hold: " + err.Error()}, nil
	}
	s := signatureCheck{Valid: true, KeyID: kid, Vouched: known != nil}
	if at, retired := set.retired[kid]; retired && at < e.Message.Seq {
		s.Valid, s.Problem = false, fmt.Sprintf("the key was retired before, at sequence %d", at)
	}
	if known == nil {
		s.Problem = "no checkpoint key was given (--key), so nothing vouches for the key itself"
	}
	return s, nil
}

// checkpointKeys returns nil if no key is named: the remaining checks are still useful.
func (c *ExplainCmd) checkpointKeys(t *target.Target) (note.Verifiers, error) {
	if c.Key == "" && (t.ReadyInfo() == nil || t.ReadyInfo().PublicKey == "") {
		return nil, nil
	}
	list, err := system.TrustedKeys(c.Key, t)
	return note.VerifierList(list...), err
}

// keyBook is the log's information about the admitters' keys.
type keyBook struct {
	keys    signing.KeySet
	retired map[string]uint64 // by key: sequence of its retirement
}

// publishedKeys reads the admitters' keys from the log: those that the checkpoint key has signed
// or, if no checkpoint key is known, all.
func publishedKeys(ctx context.Context, l recorded.Log, known note.Verifiers) (keyBook, error) {
	book := keyBook{signing.KeySet{}, map[string]uint64{}}
	for m, err := range l.EachControl(ctx, events.ControlKey) {
		if err != nil {
			return book, fmt.Errorf("reading the published keys: %w", err)
		}
		k, err := events.DecodeRecord[events.KeyRecord](m.Body)
		if err != nil || known != nil && !signing.CheckKeyRecord(known, k) {
			continue
		}
		if pub, err := signing.DecodePublic(k.PublicKey); err == nil && signing.KeyID(pub) == k.KeyID {
			book.keys[k.KeyID] = pub
		}
	}
	for m, err := range l.EachControl(ctx, events.ControlKeyRetired) {
		if err != nil {
			return book, fmt.Errorf("reading the retired keys: %w", err)
		}
		k, err := events.DecodeRecord[events.KeyRetirement](m.Body)
		if _, twice := book.retired[k.KeyID]; err == nil && !twice && (known == nil || signing.CheckRetirement(known, k)) {
			book.retired[k.KeyID] = m.Seq
		}
	}
	return book, nil
}

// approvalSteps returns the records of the decision's workflow.
func approvalSteps(ctx context.Context, l recorded.Log, d events.Decision) (list []approvalStep, err error) {
	if d.Approval == nil {
		return nil, nil
	}
	records, err := l.Approvals(ctx, d.Tenant, d.Approval.WorkflowID)
	for _, m := range records {
		if a, err := events.DecodeRecord[events.Approval](m.Body); err == nil && a.WorkflowID == d.Approval.WorkflowID {
			list = append(list, approvalStep{m.Seq, a})
		}
	}
	return list, err
}
