package auditor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
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
	// Read again only now: if another auditor ran meanwhile, the evidence and its checkpoints may be
	// past what the log held at the first read.
	if state, err = streams.StreamState(ctx, a.js, a.stream); err != nil {
		return err
	}
	if err := a.compareLog(ctx, position, state); errors.Is(err, ErrRewound) || errors.Is(err, ErrDiffers) {
		return fmt.Errorf("%w: %w", daemon.ErrUntrustedLog, err)
	} else if err != nil {
		return err
	}
	err = a.once("restoring the tree", func() (err error) { a.tree, err = a.restoredTree(ctx, position); return err })
	if err != nil {
		return err
	}
	if err := a.intents.check(ctx, a.tree, &a.signed); err != nil {
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
	a.store = &batchStore{shardAccess: a.shardAccess, intents: a.intents, checkpoints: a.checkpoints, metrics: counts, checkpointEvery: a.flags.CheckpointEvery}
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

// compareLog compares the evidence with the log: the log must reach at least as far as the records and
// the published checkpoints, and the last record must match the message in the log.
func (a *auditor) compareLog(ctx context.Context, position uint64, state streams.State) error {
	if audited := max(position, uint64(a.signed.newest())); state.LastSeq < audited {
		return fmt.Errorf("%w: the log of shard %s ends at sequence %d and the evidence at %d; acknowledged messages are gone. Keep both as they are and look for the cause (a restored backup, a lost disk) before anything is written",
			ErrRewound, a.shard, state.LastSeq, audited)
	}
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
	var want string
	err = a.db.Scan(ctx, a.shard, position, position, func(r storage.EvidenceRow) error {
		want = r.BodyDigest
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading record %d: %w", position, err)
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
		return fmt.Errorf("%w at sequence %d of shard %s: run `countersign verify`", ErrDiffers, position, a.shard)
	}
	return nil
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
		return fmt.Errorf("%w: sequence %d of shard %s is gone from the log", ErrDiffers, seq, a.shard)
	} else if err != nil {
		return fmt.Errorf("looking for the erasure of sequence %d: %w", seq, err)
	}
	a.env.Log.Info().Uint64("position", seq).Msg("the last record's message was erased since")
	return nil
}

// restoredTree loads the right edge of the tree of position records. Tree hashes are stored before the
// evidence that they cover, so they exist.
func (a *auditor) restoredTree(ctx context.Context, position uint64) (*tree.Tree, error) {
	indexes := tree.FrontierIndexes(int64(position))
	ask := make([]uint64, len(indexes))
	for i, n := range indexes {
		ask[i] = uint64(n)
	}
	hashes, err := a.db.TreeNodes(ctx, a.shard, ask)
	var merkle *tree.Tree
	if err == nil {
		frontier := make([]tlog.Hash, len(hashes))
		for i, h := range hashes {
			frontier[i] = h
		}
		merkle, err = tree.New(int64(position), frontier)
	}
	if err != nil {
		return nil, fmt.Errorf("restoring the tree of %d records: %w", position, err)
	}
	return merkle, nil
}
