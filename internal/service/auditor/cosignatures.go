package auditor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/internal/service/witnessbucket"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/streams"
)

const (
	cosignEvery  = time.Second // how often the bucket of the witnesses is checked
	unknownAgain = time.Minute // after it a checkpoint that the evidence does not have is judged again
)

// cosignatures stores the signatures that witnesses hand in. It runs beside the auditing of the
// log and shares the database with it. One goroutine owns it. Its state only saves repeated work.
//
// A witness signature is not a message of the log: it is about the evidence, and evidence about
// it would need a signature again.
type cosignatures struct {
	shardAccess
	verifier       note.Verifier
	version        streams.BucketVersion // when all of the bucket was judged
	again          time.Time             // when it is judged again, without a change; zero: not
	loggedRefusals map[uint64]bool       // bucket revisions with a logged refusal
}

// run stores witness signatures until ctx ends. Errors are retried; nothing else waits for it.
func (c *cosignatures) run(ctx context.Context) {
	var err error
	if c.verifier, err = signing.CheckpointVerifier(c.verifierKey); err != nil {
		c.env.Log.Error().Err(err).Msg("signatures of witnesses cannot be judged")
		return
	}
	for ctx.Err() == nil {
		err := c.pollBucket(ctx)
		if ctx.Err() != nil {
			return
		}
		problem := ""
		if err != nil {
			problem = err.Error()
			c.env.Log.Warn().Err(err).Msg("signatures of witnesses are not taken in; it will be tried again")
		}
		c.env.Health.Set("witnesses", problem)
		_ = retry.Sleep(ctx, retry.UntilTick(cosignEvery))
	}
}

// pollBucket judges all entries if the bucket has changed, and now and then while the evidence does not have the checkpoint
// of one: an older database is filled up. Its error is what an operator has to look at: a failure, or a fork.
func (c *cosignatures) pollBucket(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, custodianWait)
	defer cancel()
	version, err := streams.VersionOf(ctx, c.js, streams.BucketWitnesses)
	if errors.Is(err, jetstream.ErrStreamNotFound) && c.version.Store == "" {
		return nil // a system without the bucket
	}
	if err != nil {
		return fmt.Errorf("reading the bucket of the witnesses: %w", err)
	}
	if version == c.version && (c.again.IsZero() || time.Now().Before(c.again)) {
		return nil
	}
	c.again = time.Time{}
	trusted, err := witnessbucket.TrustedWitnesses(ctx, c.js)
	if err != nil {
		return err
	}
	list, err := witnessbucket.HandedIn(ctx, c.js)
	if err != nil {
		return err
	}
	var forks error
	told := map[uint64]bool{}
	for _, e := range list {
		switch err := c.storeCosigned(ctx, e, witnessbucket.Verifiers(trusted)); {
		case errors.Is(err, tree.ErrFork):
			forks = errors.Join(forks, fmt.Errorf("%s handed in (revision %d of the bucket %s) a checkpoint that the log's key signed and that is not of this log: %w", e.Key, e.Revision, streams.BucketWitnesses, err))
		case isRefusal(err):
			c.logRefusal(e, err)
			told[e.Revision] = true
			if errors.Is(err, witnessbucket.ErrUnknown) {
				c.again = time.Now().Add(unknownAgain)
			}
		case err != nil:
			return err
		}
	}
	c.loggedRefusals = told
	if forks == nil {
		c.version = version
	}
	return forks
}

// isRefusal reports whether an error is about the entry itself, and not about reading or storing
// it.
func isRefusal(err error) bool {
	return errors.Is(err, tree.ErrCheckpoint) || errors.Is(err, witnessbucket.ErrUntrusted) || errors.Is(err, witnessbucket.ErrUnknown)
}

func (c *cosignatures) logRefusal(e streams.KVEntry, err error) {
	if !c.loggedRefusals[e.Revision] {
		c.env.Log.Warn().Str("key", e.Key).Uint64("revision", e.Revision).Err(err).Msg("a signature that was handed in is not taken")
	}
}

// storeCosigned stores a checkpoint with the witnesses' signatures, if it is valid and the
// evidence lacks one of them.
func (c *cosignatures) storeCosigned(ctx context.Context, e streams.KVEntry, trusted []note.Verifier) error {
	if len(e.Value) > witnessbucket.MaxNote {
		return fmt.Errorf("%w: %d bytes", tree.ErrCheckpoint, len(e.Value))
	}
	j, err := witnessbucket.CheckHandedIn(ctx, string(e.Value), c.verifier, trusted, c.db.CheckpointsAt)
	if err != nil {
		return err
	}
	if !c.isOfStream(j.Shard) {
		return fmt.Errorf("%w: of %s, which is another auditor's", witnessbucket.ErrUnknown, j.Shard)
	}
	stored, err := c.db.CheckpointsAt(ctx, j.Shard, uint64(j.Size))
	if err != nil || !j.LacksSignature(stored) {
		return err
	}
	cp := storage.Checkpoint{Shard: j.Shard, Size: uint64(j.Size), Root: j.Root, Note: j.Note, Created: time.Now()}
	if err := c.writer.InsertCheckpoint(ctx, cp); err != nil {
		return fmt.Errorf("storing a checkpoint that a witness signed: %w", err)
	}
	for _, by := range j.By {
		c.env.Log.Info().Str("witness", by.Witness).Str("shard", j.Shard).Int64("size", j.Size).Msg("a witness has signed a checkpoint")
	}
	return nil
}
