package auditor

import (
	"context"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/evidence/retention"
	"github.com/countersign-dev/countersign/internal/service/erasureplan"
	"github.com/countersign-dev/countersign/streams"
)

// recordExpiryBegun writes the control records that name the records about to lose their texts, or waits for a checkpoint
// that covers them. It returns false if there are none.
func (w *expiryWorker) recordExpiryBegun(ctx context.Context, ev erasureplan.Evidence, o retention.Order) (bool, error) {
	policy, err := w.bucket.loadPolicy(ctx, ev.Tenant)
	if err != nil {
		return false, err
	}
	if policy == nil || policy.ID() != o.Expire { // another one, which will order it again
		return false, nil
	}
	texts, err := w.readTexts(ctx, ev, o.Sessions)
	if err != nil {
		return false, err
	}
	checkpoint, covered, err := w.covers(ctx, texts.seqs)
	if err != nil || !covered {
		return true, err
	}
	if err := w.prove(ctx, texts, checkpoint); err != nil {
		return false, err
	}
	var parts expiryParts
	for _, s := range texts.sessions {
		if keep := policy.EvidencePeriod(s.session); keep > 0 && o.At.Sub(s.newest) >= keep { // otherwise it was active since, and becomes due again later
			parts.addSession(s.session, s.places)
		}
	}
	var msgs []streams.Msg
	for i, sessions := range parts.list {
		e := events.Expiry{
			ExpiryID: o.ID, Shard: w.shard, State: events.ErasureBegun, Part: i + 1, Parts: len(parts.list), Tenant: ev.Tenant, Policy: o.Expire,
			Sessions: sessions, At: events.At(time.Now()), Writer: w.name,
		}
		for _, s := range sessions {
			for _, span := range s.Sequences {
				e.Records += span[1] - span[0] + 1
			}
		}
		msg, err := w.signedExpiry(e)
		if err != nil {
			return false, err
		}
		msgs = append(msgs, msg)
	}
	if len(msgs) == 0 {
		return false, nil
	}
	return true, streams.StoreLinked(ctx, w.js, w.stream, msgs...)
}

func (w *expiryWorker) publishExpired(ctx context.Context, e events.Expiry, records uint64) error {
	e.State, e.Part, e.Parts, e.At, e.Writer, e.Vouch = events.ErasureDone, 1, 1, events.At(time.Now()), w.name, ""
	e.Sessions, e.Records = []events.ExpiredSession{}, records
	msg, err := w.signedExpiry(e)
	if err != nil {
		return err
	}
	return streams.StoreLinked(ctx, w.js, w.stream, msg)
}

func (w *expiryWorker) signedExpiry(e events.Expiry) (m streams.Msg, err error) {
	if e.Vouch, err = signing.SignExpiry(w.signer, e); err != nil {
		return m, err
	}
	return w.controlMessage(events.ControlExpiry, fmt.Sprintf("%s-%s-%d", e.ExpiryID, e.State, e.Part), e)
}

// expiryParts divide an expiry into records that fit the log.
type expiryParts struct {
	list         [][]events.ExpiredSession
	spans, names int // of the last one
}

// Limits of one record.
const (
	spansInExpiry = 4000
	namesInExpiry = 64 << 10 // bytes of sessions' names
)

// addSession adds a session's records, which are ordered.
func (p *expiryParts) addSession(session string, places []recordPlace) {
	for i, at := range places {
		follows := i > 0 && places[i-1].index+1 == at.index
		if n := len(p.list); n == 0 || p.spans >= spansInExpiry || p.names >= namesInExpiry {
			p.list, p.spans, p.names, follows = append(p.list, nil), 0, 0, false
		}
		part := &p.list[len(p.list)-1]
		if !follows {
			*part = append(*part, events.ExpiredSession{Session: session, Index: at.index})
			p.names += len(session) + 50
		}
		s := &(*part)[len(*part)-1]
		if n := len(s.Sequences); n > 0 && s.Sequences[n-1][1]+1 == at.seq {
			s.Sequences[n-1][1] = at.seq
			continue
		}
		s.Sequences = append(s.Sequences, events.Span{at.seq, at.seq})
		p.spans++
	}
}
