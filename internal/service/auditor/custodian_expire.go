package auditor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/evidence/retention"
	"github.com/countersign-dev/countersign/internal/service/erasureplan"
	"github.com/countersign-dev/countersign/storage/write"
	"github.com/countersign-dev/countersign/streams"
)

// Texts of evidence expire as log messages do: a policy makes sessions due, an order names them,
// and no legal hold may cover them when it begins. Then a signed record names the evidence
// records. Only once that record is evidence and covered by a checkpoint is the first text
// deleted. The database holds the progress.

// expiryWorker carries out orders that let texts expire.
type expiryWorker struct {
	custodyAccess
	bucket  *retentionBucket
	records map[string][]loggedExpiry // by id: the records of expiries that are not done
	done    map[string]uint64         // by id: the number of texts that went; the order may still be open
	readSeq uint64                    // log sequence up to which those were read
}

// beginExpiry makes an order irrevocable, unless there is a reason against it, which it returns.
func (w *expiryWorker) beginExpiry(ctx context.Context, ev erasureplan.Evidence, key string, o retention.Order) (why string, err error) {
	return w.bucket.beginUnheld(ctx, ev, key, o, erasureplan.Plan{Sessions: o.Sessions})
}

// continueExpiry continues an expiry that has begun. It returns true when the expiry is done.
func (w *expiryWorker) continueExpiry(ctx context.Context, ev erasureplan.Evidence, key string, o retention.Order) (finished bool, err error) {
	begun, done, err := w.expiryRecords(ctx, o.ID)
	if err != nil {
		return false, err
	}
	if done {
		return true, w.finishExpiry(ctx, key, o, w.done[o.ID])
	}
	if begun == nil {
		if recorded, err := w.recordExpiryBegun(ctx, ev, o); err != nil || recorded {
			return false, err // continues once the record is in the log
		}
		return true, w.finishExpiry(ctx, key, o, 0) // every session is active again, or has no text left
	}
	x := write.ExpiryBatch{Shard: w.shard, Tenant: ev.Tenant}
	var seqs []uint64
	for _, e := range begun {
		x.Records = append(x.Records, e.seq)
		for _, s := range e.Sessions {
			for _, span := range s.Sequences {
				for seq := span[0]; seq <= span[1]; seq++ {
					seqs = append(seqs, seq)
				}
			}
		}
	}
	if provable, err := w.isProvable(ctx, slices.Max(x.Records)); err != nil || !provable {
		return false, err
	}
	slices.Sort(seqs)
	for x.Seqs = range slices.Chunk(seqs, write.MaxExpiryBatch) {
		if gone, err := w.writer.Expire(ctx, x); err != nil || !gone {
			return false, err
		}
	}
	if err := w.publishExpired(ctx, begun[0].Expiry, uint64(len(seqs))); err != nil {
		return false, err
	}
	return true, w.finishExpiry(ctx, key, o, uint64(len(seqs)))
}

func (w *expiryWorker) finishExpiry(ctx context.Context, key string, o retention.Order, records uint64) error {
	r := retention.Result{Sessions: len(o.Sessions), Records: records}
	if err := w.bucket.changeState(ctx, key, func(s retention.State) (retention.State, error) { return s.FinishOrder(o.ID, r, time.Now()) }); err != nil {
		return err
	}
	delete(w.records, o.ID)
	w.env.Log.Info().Str("expiry", o.ID).Uint64("records", records).Msg("texts of evidence expired")
	return nil
}

// isProvable reports whether the record of an expiry is evidence and covered by a checkpoint.
func (w *expiryWorker) isProvable(ctx context.Context, seq uint64) (bool, error) {
	position, _, err := w.db.Position(ctx, w.shard)
	if err != nil || position < seq {
		return false, err
	}
	_, covered, err := w.covers(ctx, []uint64{seq})
	return covered, err
}

// loggedExpiry is an expiry record with its log sequence.
type loggedExpiry struct {
	seq uint64
	events.Expiry
}

// expiryRecords returns the records of an expiry in the log: begun only if all parts of one
// attempt are there and the expiry is not done.
func (w *expiryWorker) expiryRecords(ctx context.Context, id string) (begun []loggedExpiry, done bool, err error) {
	subj := w.space.Control(w.stream, events.ControlExpiry)
	for m, err := range streams.EachLinked(ctx, w.js, w.stream, subj, w.readSeq+1) {
		if err != nil {
			return nil, false, fmt.Errorf("reading the expiry records: %w", err)
		}
		w.readSeq = m.Seq
		e, err := events.DecodeRecord[events.Expiry](m.Body)
		if err != nil || e.Shard != w.shard || e.LastSequence() >= m.Seq || !signing.CheckExpiry(w.log.Known, e) {
			continue
		}
		if e.State == events.ErasureDone {
			w.done[e.ExpiryID] = e.Records
			delete(w.records, e.ExpiryID)
			continue
		}
		w.records[e.ExpiryID] = append(w.records[e.ExpiryID], loggedExpiry{m.Seq, e})
	}
	var attempt []loggedExpiry
	for _, e := range w.records[id] {
		switch {
		case e.Part == 1:
			attempt = []loggedExpiry{e}
		case e.Part == len(attempt)+1:
			attempt = append(attempt, e)
		}
		if n := len(attempt); n > 0 && n == attempt[0].Parts {
			begun = attempt
		}
	}
	_, done = w.done[id]
	return begun, done, nil
}
