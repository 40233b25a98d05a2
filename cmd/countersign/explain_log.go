package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/cmd/internal/recorded"
	"github.com/countersign-dev/countersign/cmd/internal/target"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/streams"
)

// signatureCheck is what the record's signature is worth.
type signatureCheck struct {
	Valid   bool   `json:"valid"`
	KeyID   string `json:"kid,omitempty"`
	Vouched bool   `json:"vouched"` // the checkpoint key vouches for the key
	Problem string `json:"problem,omitempty"`
}

// signature checks the record's bytes as they are in the log, with the keys that
// the log published.
func (c *explainCmd) signature(ctx context.Context, l recorded.Log, t *target.Target, e recorded.Entry) (signatureCheck, error) {
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

// checkpointKeys gives nil where no key is named: what can be checked without is
// worth something, too.
func (c *explainCmd) checkpointKeys(t *target.Target) (note.Verifiers, error) {
	if c.Key == "" && (t.ReadyInfo() == nil || t.ReadyInfo().PublicKey == "") {
		return nil, nil
	}
	key, err := checkpointKey(c.Key, t)
	if err != nil {
		return nil, err
	}
	list, err := verifiers(key)
	return note.VerifierList(list...), err
}

// keyBook is what the log says about the admitters' keys.
type keyBook struct {
	keys    signing.KeySet
	retired map[string]uint64 // the sequence of the retirement, by key
}

// publishedKeys reads the admitters' keys off the log: those that the checkpoint
// key vouches for or, if no checkpoint key is known, all.
func publishedKeys(ctx context.Context, l recorded.Log, known note.Verifiers) (keyBook, error) {
	book := keyBook{signing.KeySet{}, map[string]uint64{}}
	err := each(ctx, l, l.Space.Control(l.Stream, events.ControlKey), 1, func(m events.LogMessage) error {
		k, err := events.DecodeRecord[events.KeyRecord](m.Body)
		if err != nil || known != nil && !signing.CheckKeyRecord(known, k) {
			return nil
		}
		if pub, err := signing.DecodePublic(k.PublicKey); err == nil && signing.KeyID(pub) == k.KeyID {
			book.keys[k.KeyID] = pub
		}
		return nil
	})
	if err != nil {
		return book, fmt.Errorf("reading the published keys: %w", err)
	}
	err = each(ctx, l, l.Space.Control(l.Stream, events.ControlKeyRetired), 1, func(m events.LogMessage) error {
		k, err := events.DecodeRecord[events.KeyRetirement](m.Body)
		if _, twice := book.retired[k.KeyID]; err == nil && !twice && (known == nil || signing.CheckRetirement(known, k)) {
			book.retired[k.KeyID] = m.Seq
		}
		return nil
	})
	return book, err
}

var errEnough = errors.New("enough")

// each gives fn the messages of a subject from a sequence on, in order.
func each(ctx context.Context, l recorded.Log, subj string, from uint64, fn func(events.LogMessage) error) error {
	for next := from; ; {
		m, err := streams.NextBySubject(ctx, l.JS, l.Stream, subj, next)
		if err != nil || m == nil {
			return err
		}
		if err := fn(*m); err != nil {
			if errors.Is(err, errEnough) {
				return nil
			}
			return err
		}
		next = m.Seq + 1
	}
}

// approvalSteps are the records of the workflow that a decision names.
func approvalSteps(ctx context.Context, l recorded.Log, d events.Decision) (list []approvalStep, err error) {
	if d.Approval == nil {
		return nil, nil
	}
	filter := strings.TrimSuffix(l.Space.All(subject.Approvals), ">") + subject.Escape(d.Tenant) + ".*." + subject.Escape(d.Approval.WorkflowID)
	err = each(ctx, l, filter, 1, func(m events.LogMessage) error {
		if a, err := events.DecodeRecord[events.Approval](m.Body); err == nil && a.WorkflowID == d.Approval.WorkflowID {
			list = append(list, approvalStep{m.Seq, a})
		}
		return nil
	})
	return list, err
}
