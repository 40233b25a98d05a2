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
	"github.com/countersign-dev/countersign/internal/service/witnessbucket"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/streams"
)

const cosignEvery = time.Second // how often the bucket of the witnesses is checked

// cosignatures stores the signatures that witnesses hand in. It runs beside the auditing of the
// log and shares the database with it. One goroutine owns it. Its state only saves repeated work.
//
// A witness signature is not a message of the log: it is about the evidence, and evidence about
// it would need a signature again.
type cosignatures struct {
	shardAccess
	checkpoints    *checkpointer // only its restores are read
	verifier       note.Verifier
	version        streams.BucketVersion // when all of the bucket was judged
	loggedRefusals map[uint64]bool       // bucket revisions with a logged refusal
}

// run stores witness signatures until ctx ends. Errors are retried; nothing else waits for it.
func (c *cosignatures) run(ctx context.Context) {
	var err error
	if c.verifier, err = signing.CheckpointVerifier(c.verifierKey); err != nil {
		c.env.Log.Error().Err(err).Msg("signatures of witnesses cannot be judged")
		return
	}
	c.poll(ctx, "witnesses", "signatures of witnesses are not taken in", cosignEvery, c.pollBucket)
}

// pollBucket judges all entries if the bucket has changed, or while the evidence does not reach the checkpoint of one: an
// older database is filled up. Its error is what an operator has to look at: a failure, or a fork.
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
	if version == c.version {
		return nil
	}
	trusted, err := witnessbucket.TrustedWitnesses(ctx, c.js)
	if err != nil {
		return err
	}
	list, err := witnessbucket.HandedIn(ctx, c.js)
	if err != nil {
		return err
	}
	var forks error
	ahead, told := false, map[uint64]bool{}
	for _, e := range list {
		switch err := c.storeCosigned(ctx, e, witnessbucket.Verifiers(trusted)); {
		case errors.Is(err, tree.ErrFork), errors.Is(err, witnessbucket.ErrForeign):
			forks = errors.Join(forks, fmt.Errorf("%s handed in (revision %d of the bucket %s) a checkpoint that the log's key signed and that is not of this log: %w", e.Key, e.Revision, streams.BucketWitnesses, err))
		case isRefusal(err):
			ahead = ahead || errors.Is(err, witnessbucket.ErrAhead)
			c.logRefusal(e, err)
			told[e.Revision] = true
		case err != nil:
			return err
		}
	}
	c.loggedRefusals = told
	if forks == nil && !ahead { // what is ahead is judged again, until the log reaches it
		c.version = version
	}
	return forks
}

// isRefusal reports whether an error is about the entry itself, and not about reading or storing
// it.
func isRefusal(err error) bool {
	return errors.Is(err, tree.ErrCheckpoint) || errors.Is(err, errOtherStream) || errors.Is(err, witnessbucket.ErrUntrusted) || errors.Is(err, witnessbucket.ErrAhead)
}

// errOtherStream refuses a checkpoint of another stream: that stream's auditor judges it.
var errOtherStream = errors.New("a checkpoint of another stream")

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
	if cp, err := tree.PeekCheckpoint(string(e.Value)); err == nil && !c.isOfStream(cp.Shard) {
		return fmt.Errorf("%w: %s", errOtherStream, cp.Shard)
	}
	restoring := c.checkpoints.restores.Load() > 0 // read first: a restore may end during the check
	j, err := witnessbucket.CheckHandedIn(ctx, string(e.Value), c.shard, c.verifier, trusted, c.db)
	if restoring && j.Shard == c.shard && errors.Is(err, witnessbucket.ErrForeign) {
		return fmt.Errorf("%w: published checkpoints of %s are being stored again, and this is of size %d", witnessbucket.ErrAhead, j.Shard, j.Size)
	}
	if err != nil {
		return err
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
