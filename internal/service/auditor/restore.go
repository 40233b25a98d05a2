package auditor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/erasures"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/streams"
)

// Errors that stop an auditor until an operator has investigated.
var (
	ErrRewound = errors.New("the log holds less than the evidence")
	ErrDiffers = errors.New("the log and the evidence differ")
	ErrErased  = errors.New("messages were erased, and there is no evidence of them")
)

// restorePosition reads the position from ClickHouse and sets chain and tree to it. The health report tells of short
// questions that hang; what reads all checkpoints or compares the derived tables takes long when all is well.
func (a *auditor) restorePosition(ctx context.Context) error {
	state, err := streams.StreamState(ctx, a.js, a.stream)
	if err != nil {
		return err
	}
	a.shard = streams.IncarnationName(a.stream, state.Created)
	if err := a.openParts(ctx); err != nil {
		return err
	}
	// A writer that died during an insert may have left incomplete tables from which session
	// heads are read.
	if err := a.repairDerived(ctx); err != nil {
		return err
	}
	// Before the position is read: after this no earlier auditor can store an intent.
	if a.intents, err = claimIntents(ctx, a.shardAccess); err != nil {
		return err
	}
	var position uint64
	err = a.once("reading the position", func() (err error) { position, _, err = a.db.Position(ctx, a.shard); return err })
	if err != nil {
		return fmt.Errorf("reading the position: %w", err)
	}
	if a.signed, err = a.readSignedRoots(ctx, position); err != nil {
		return err
	}
	a.findings.written = uint64(a.signed.newest())
	signed, err := a.signedAbove(ctx, state.LastSeq)
	if err != nil {
		return err
	}
	// Read again only now: if another auditor ran meanwhile, the evidence and its checkpoints may be
	// past what the log held at the first read.
	if state, err = streams.StreamState(ctx, a.js, a.stream); err != nil {
		return err
	}
	if err := a.compareEnd(ctx, position, signed, state.LastSeq); err != nil {
		return err
	}
	err = a.once("restoring the tree", func() (err error) { a.tree, err = a.restoredTree(ctx, position); return err })
	if err != nil {
		return err
	}
	if err := a.intents.check(ctx, a.tree, &a.signed); err != nil {
		return err
	}
	if err := a.compareLog(ctx, position); err != nil { // not before the tree is known to be this auditor's
		return err
	}
	if err := a.signed.compare(a.tree); err != nil {
		return err
	}
	if err := a.openStore(ctx, position); err != nil {
		return err
	}
	a.env.Log.Info().Str("shard", a.shard).Uint64("position", position).Uint64("log", state.LastSeq).Msg("resuming")
	return nil
}

// openParts makes the parts that the shard alone determines.
func (a *auditor) openParts(ctx context.Context) (err error) {
	a.redaction, a.classes = &redactionPolicies{shardAccess: a.shardAccess}, &retentionClasses{shardAccess: a.shardAccess}
	a.findings = &ownFindings{shardAccess: a.shardAccess}
	known, err := a.ownVerifier()
	if err != nil {
		return err
	}
	a.erased = &erasures.Log{JS: a.js, Stream: a.stream, Space: a.space, Known: known}
	if err = errors.Join(a.redaction.load(ctx), a.classes.load(ctx)); err != nil {
		return err
	}
	if a.records, err = newRecordMaker(a.shardAccess, a.redaction, a.classes, a.secrets); err != nil {
		return err
	}
	a.quarantine, err = newQuarantine(ctx, a.nc, a.js, a.space, a.shard)
	return err
}

// openStore makes the parts that store what follows on the position.
func (a *auditor) openStore(ctx context.Context, position uint64) error {
	counts, err := startCounting(ctx, a.shardAccess, position)
	if err != nil {
		return err
	}
	a.checkpoints = &checkpointer{shardAccess: a.shardAccess, metrics: counts, every: a.flags.CheckpointEvery,
		begun: a.tree.Size(), ahead: a.signed.newest(), stored: a.tree.Clone()}
	a.checkpoints.restores.Store(1) // up to the position; auditShard begins it
	if a.checkpoints.ahead > a.checkpoints.begun {
		a.checkpoints.restores.Add(1) // what is made again; sign begins it
	}
	a.store = &batchStore{shardAccess: a.shardAccess, intents: a.intents, checkpoints: a.checkpoints, metrics: counts, checkpointEvery: a.flags.CheckpointEvery, stored: a.tree}
	return a.checkpoints.readSigned(ctx)
}

// repairDerived makes the derived tables match the evidence, for this incarnation of the log and for
// the earlier ones: their tables may be of an earlier version.
func (a *auditor) repairDerived(ctx context.Context) error {
	var shards []string
	err := a.once("listing the shards", func() (err error) { shards, err = a.db.Shards(ctx); return err })
	if err != nil {
		return err
	}
	if !slices.Contains(shards, a.shard) {
		shards = append(shards, a.shard)
	}
	for _, shard := range shards {
		if !a.isOfStream(shard) {
			continue // of another stream's auditor
		}
		added, err := a.writer.Repair(ctx, shard)
		if err != nil {
			return fmt.Errorf("repairing the derived tables: %w", err)
		}
		if added > 0 {
			a.env.Log.Warn().Uint64("rows", added).Str("shard", shard).Msg("derived tables were not what the evidence says and were made so")
		}
	}
	return nil
}

// repairContents restores derived rows with changed contents: the start compares only their
// number. It runs once, beside the auditing, up to the position at the start.
func (a *auditor) repairContents(ctx context.Context, to uint64) {
	changed, err := a.writer.RepairContents(ctx, a.shard, to)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		a.env.Log.Warn().Err(err).Msg("the contents of the derived tables could not be compared with the evidence")
	case changed > 0:
		a.env.Log.Error().Uint64("rows", changed).Str("shard", a.shard).Msg("rows of derived tables were changed by hand and were made anew; find out which user did it")
	}
}

// readTimeout bounds reading one message from a stream.
const readTimeout = 5 * time.Second

// signedAbove is the largest size above another that this auditor's key has signed: in a published checkpoint, in one that
// the database has, or in an intent; 0 without one. The NATS store can be older than the database.
func (a *auditor) signedAbove(ctx context.Context, size uint64) (most uint64, err error) {
	known, err := a.ownVerifier()
	if err != nil {
		return 0, err
	}
	note := func(cp tree.Checkpoint, err error) {
		if err == nil && cp.Shard == a.shard && uint64(cp.Size) > size {
			most = max(most, uint64(cp.Size))
		}
	}
	for _, text := range a.intents.notes {
		note(tree.OpenIntent(text, known))
	}
	err = a.eachPublished(ctx, size+1, func(cp storage.Checkpoint) error {
		most = max(most, cp.Size)
		return nil
	})
	if err != nil {
		return 0, err
	}
	err = a.once("reading the checkpoints", func() error {
		return a.db.CheckpointsAbove(ctx, a.shard, size, func(cp storage.Checkpoint) error {
			note(tree.OpenCheckpoint(cp.Note, known))
			return nil
		})
	})
	return most, err
}

// compareEnd demands that the log reaches as far as what this auditor's key has signed. Rows alone prove nothing of the
// log: a user of the database can add some (TestAttackRowsBehindTheLog).
func (a *auditor) compareEnd(ctx context.Context, position, signed, logEnd uint64) error {
	switch {
	case signed > logEnd:
		return fmt.Errorf("%w: %w: the log of shard %s ends at sequence %d, and this auditor's key has signed evidence up to %d; acknowledged messages are gone. Keep both as they are and look for the cause (a restored backup, a lost disk) before anything is written",
			daemon.ErrUntrustedLog, ErrRewound, a.shard, logEnd, signed)
	case position > logEnd:
		return a.intents.refuse(ctx, position, fmt.Sprintf("the log ends at %d; another writer added rows, or the log lost messages that no checkpoint covered yet", logEnd))
	}
	return nil
}

// compareLog compares the last record with the log's message. The record is in the tree, which this auditor's key has
// signed.
func (a *auditor) compareLog(ctx context.Context, position uint64) error {
	if position == 0 {
		return a.findings.reportRecreated(ctx)
	}
	m, err := a.messageAt(ctx, position)
	if err != nil {
		return err
	}
	if m == nil {
		return a.explainMissing(ctx, position)
	}
	want, err := a.lastDigest(ctx, position)
	if want == "" || err != nil {
		return err
	}
	p, _ := a.space.Parse(m.Subject)
	keys := digest.Keys{Tenant: a.master.Tenant(p.Tenant)}
	if strings.HasPrefix(want, digest.PrefixSession) {
		k, there, err := a.records.keys.Lookup(ctx, a.records.builder.LogSession(*m))
		if err != nil {
			return fmt.Errorf("the key of record %d: %w", position, err)
		}
		if keys.Session = k.Digests; !there || digest.ComparableForm(want) != k.Digests.Form() {
			a.env.Log.Info().Uint64("position", position).Msg("the last record's session was erased since: its digest says nothing any more")
			return nil
		}
	}
	got, known := digest.InFormOf(want, keys, m.Body)
	if !known || !digest.Equal(got, want) {
		return fmt.Errorf("%w: %w at sequence %d of shard %s: run `countersign verify`", daemon.ErrUntrustedLog, ErrDiffers, position, a.shard)
	}
	return nil
}

// lastDigest is the digest of the message in the text of the last record; "" if the text expired, or is not that of the
// record in the tree.
func (a *auditor) lastDigest(ctx context.Context, position uint64) (string, error) {
	var text string
	err := a.db.Scan(ctx, a.shard, position, position, func(r storage.EvidenceRow) error {
		text = r.Record
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("reading record %d: %w", position, err)
	}
	if text == "" {
		a.env.Log.Info().Uint64("position", position).Msg("the last record has no text: it cannot be compared with the log")
		return "", nil
	}
	proofs, err := tree.InclusionProofs(a.hashReader(ctx), a.tree.Size(), []uint64{position})
	if err != nil {
		return "", err
	}
	rec, err := evidence.ParseRecord([]byte(text))
	if err != nil || !tree.CheckInclusion(proofs[0], a.tree.Size(), a.tree.Root(), position, evidence.HashRecord([]byte(text))) {
		a.env.Log.Error().Uint64("position", position).Str("shard", a.shard).Msg("the text of the last record was changed by hand, so it cannot be compared with the log; run `countersign verify` and find out which user did it")
		return "", nil
	}
	return rec.BodyDigest, nil
}

func (a *auditor) messageAt(ctx context.Context, seq uint64) (*events.LogMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	m, err := streams.MessageAt(ctx, a.js, a.stream, seq)
	if err != nil {
		return nil, fmt.Errorf("reading sequence %d of the log: %w", seq, err)
	}
	return m, nil
}

// explainMissing checks that the message of the last record was erased; otherwise the log has lost it. The database can
// be older than the erasure.
func (a *auditor) explainMissing(ctx context.Context, seq uint64) error {
	var gap *streams.GapError
	if err := a.erased.Explain(ctx, seq, seq); errors.As(err, &gap) {
		return fmt.Errorf("%w: %w: sequence %d of shard %s is gone from the log", daemon.ErrUntrustedLog, ErrDiffers, seq, a.shard)
	} else if err != nil {
		return fmt.Errorf("looking for the erasure of sequence %d: %w", seq, err)
	}
	a.env.Log.Info().Uint64("position", seq).Msg("the last record's message was erased since")
	return nil
}

// restoredTree loads the right edge of the tree of position records. Tree hashes are stored before the
// evidence that they cover, so they exist, unless the rows behind the newest checkpoint are another writer's.
func (a *auditor) restoredTree(ctx context.Context, position uint64) (*tree.Tree, error) {
	frontier, err := a.hashReader(ctx).ReadHashes(tree.FrontierIndexes(int64(position)))
	var merkle *tree.Tree
	if err == nil {
		merkle, err = tree.New(int64(position), frontier)
	}
	var conflict *storage.ConflictError
	switch {
	case err != nil && a.signed.newest() == 0 && (errors.Is(err, storage.ErrNotFound) || errors.As(err, &conflict)):
		return nil, a.intents.refuse(ctx, position, err.Error())
	case err != nil:
		return nil, fmt.Errorf("restoring the tree of %d records: %w", position, err)
	}
	return merkle, nil
}
