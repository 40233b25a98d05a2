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
	"github.com/countersign-dev/countersign/events/cloudevents"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/build"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/streams"
)

// Errors that stop an auditor until an operator has investigated.
var (
	ErrRewound = errors.New("the log holds less than the evidence")
	ErrDiffers = errors.New("the log and the evidence differ")
)

// ruleRecreated is the finding about a log that was created anew.
const (
	ruleRecreated   = "log_recreated"
	remedyRecreated = "Find out which user deleted or replaced the stream. The earlier evidence still verifies by itself."
)

// restorePosition reads the position from ClickHouse and sets chain and tree to it.
func (a *auditor) restorePosition(ctx context.Context) error {
	state, err := streams.StreamState(ctx, a.js, a.flags.Stream)
	if err != nil {
		return err
	}
	a.shard = streams.EpochName(a.flags.Stream, state.Created)
	if a.builder, err = build.NewBuilder(a.shard, a.flags.Space()); err != nil {
		return err
	}
	a.redaction, a.classes = &redactionPolicies{}, &retentionClasses{}
	a.builder = a.builder.WithPolicies(a.redaction.policyOf).WithClasses(a.classes.classOf)
	if err = errors.Join(a.loadRedaction(ctx), a.loadClasses(ctx)); err != nil {
		return err
	}
	a.chain = build.NewChain(func(evidence.SessionID) (evidence.Head, error) { return evidence.Head{}, nil }, 0)
	if a.keys, err = newSessionSecrets(ctx, a.js, a.master); err != nil {
		return err
	}
	if a.quarantine, err = newQuarantine(ctx, a.nc, a.js, a.flags.Space(), a.shard); err != nil {
		return err
	}
	// A writer that died during an insert may have left incomplete tables from which session
	// heads are read.
	if err := a.repairDerived(ctx); err != nil {
		return err
	}
	// Before the position is read: after this no earlier auditor can announce anything.
	if err := a.claimIntents(ctx); err != nil {
		return err
	}
	position, _, err := a.db.Position(ctx, a.shard)
	if err != nil {
		return fmt.Errorf("reading the position: %w", err)
	}
	// Read again only now: if another auditor ran meanwhile, the evidence may be past what the
	// log held at the first read.
	if state, err = streams.StreamState(ctx, a.js, a.flags.Stream); err != nil {
		return err
	}
	if err := a.compareLog(ctx, position, state); err != nil {
		return err
	}
	if err := a.restoreTree(ctx, position); err != nil {
		return err
	}
	if err := a.checkAnnounced(ctx); err != nil {
		return err
	}
	last, err := a.db.LatestCheckpoint(ctx, a.shard)
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		return fmt.Errorf("reading the last checkpoint: %w", err)
	}
	// A checkpoint counts as signed only once it is published, too.
	published, err := a.publishedSize(ctx)
	if err != nil {
		return err
	}
	a.signed = min(int64(last.Size), published)
	if err := a.startCounting(ctx, position); err != nil {
		return err
	}
	a.env.Log.Info().Str("shard", a.shard).Uint64("position", position).Uint64("log", state.LastSeq).Msg("resuming")
	return nil
}

// repairDerived makes the derived tables match the evidence, for this incarnation of the log and for
// the earlier ones: their tables may be of an earlier version.
func (a *auditor) repairDerived(ctx context.Context) error {
	shards, err := a.db.Shards(ctx)
	if err != nil {
		return err
	}
	if !slices.Contains(shards, a.shard) {
		shards = append(shards, a.shard)
	}
	for _, shard := range shards {
		if !strings.HasPrefix(shard, a.flags.Stream+"@") {
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

// publishedSize is the size of the newest checkpoint of this shard on NATS.
func (a *auditor) publishedSize(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	m, err := streams.LastBySubject(ctx, a.js, streams.StreamCheckpoints, a.flags.Space().Checkpoints(a.flags.Stream))
	if err != nil {
		return 0, fmt.Errorf("reading the published checkpoint: %w", err)
	}
	if m == nil {
		return 0, nil
	}
	cp, err := tree.PeekCheckpoint(string(m.Body))
	if err != nil || cp.Shard != a.shard {
		return 0, nil // of an earlier incarnation of the log
	}
	return cp.Size, nil
}

// readTimeout bounds reading one message from a stream.
const readTimeout = 5 * time.Second

// compareLog compares the evidence with the log: the log must reach at least as far, and the last
// record must match the message in the log.
func (a *auditor) compareLog(ctx context.Context, position uint64, state streams.State) error {
	if position == 0 {
		return a.reportRecreated(ctx)
	}
	if state.LastSeq < position {
		return fmt.Errorf("%w: the log of shard %s ends at sequence %d and the evidence at %d; acknowledged messages are gone. Keep both as they are and look for the cause (a restored backup, a lost disk) before anything is written",
			ErrRewound, a.shard, state.LastSeq, position)
	}
	m, err := a.messageAt(ctx, position)
	if err != nil {
		return err
	}
	var want string
	err = a.db.Scan(ctx, a.shard, position, position, func(r storage.EvidenceRow) error {
		want = r.BodyDigest
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading record %d: %w", position, err)
	}
	p, _ := a.flags.Space().Parse(m.Subject)
	keys := digest.Keys{Tenant: a.master.Tenant(p.Tenant)}
	if strings.HasPrefix(want, digest.PrefixSession) {
		k, there, err := a.keys.Lookup(ctx, a.builder.LogSession(*m))
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
	m, err := streams.MessageAt(ctx, a.js, a.flags.Stream, seq)
	if err != nil {
		return nil, fmt.Errorf("reading sequence %d of the log: %w", seq, err)
	}
	if m == nil {
		return nil, fmt.Errorf("%w: sequence %d of shard %s is gone from the log", ErrDiffers, seq, a.shard)
	}
	return m, nil
}

// reportRecreated writes a finding if there is evidence of an earlier incarnation of this log: a log
// that begins anew must not go unnoticed.
func (a *auditor) reportRecreated(ctx context.Context) error {
	shards, err := a.db.Shards(ctx)
	if err != nil {
		return err
	}
	for _, earlier := range shards {
		if !strings.HasPrefix(earlier, a.flags.Stream+"@") || earlier == a.shard {
			continue
		}
		f := events.Finding{
			FindingID: "log-recreated-" + a.shard, Rule: ruleRecreated, Severity: events.SeverityCritical, EventIDs: []string{},
			Explanation: fmt.Sprintf("The log began anew as %s; evidence of %s is there and its log is gone.", a.shard, earlier),
			Remedy:      remedyRecreated,
			DetectedAt:  events.At(time.Now()),
		}
		return a.reportFinding(ctx, f)
	}
	return nil
}

// reportFinding writes one of the auditor's own findings, unless an earlier attempt has written
// it.
func (a *auditor) reportFinding(ctx context.Context, f events.Finding) error {
	body, err := events.Encode(f)
	if err != nil {
		return err
	}
	subj := a.flags.Space().Finding("", string(f.Severity), "")
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	last, err := streams.LastBySubject(ctx, a.js, a.flags.Stream, subj)
	if err != nil {
		return err
	}
	if last != nil {
		if before, err := events.DecodeRecord[events.Finding](last.Body); err == nil && before.FindingID == f.FindingID {
			return nil
		}
	}
	return streams.StoreAll(ctx, a.nc, []streams.Msg{{
		Subject: subj, Body: body,
		Header: cloudevents.Binary(cloudevents.Attributes{
			ID: f.FindingID, Source: "/countersign/" + a.flags.Stream + "/auditor", Type: events.TypeFinding, Time: f.DetectedAt.Time,
		}),
	}})
}

// restoreTree loads the tree's right edge. Tree hashes are stored before the evidence that they
// cover, so they exist.
func (a *auditor) restoreTree(ctx context.Context, position uint64) error {
	indexes := tree.FrontierIndexes(int64(position))
	ask := make([]uint64, len(indexes))
	for i, n := range indexes {
		ask[i] = uint64(n)
	}
	hashes, err := a.db.TreeNodes(ctx, a.shard, ask)
	if err == nil {
		frontier := make([]tlog.Hash, len(hashes))
		for i, h := range hashes {
			frontier[i] = h
		}
		a.tree, err = tree.New(int64(position), frontier)
	}
	if err == nil {
		a.stored = a.tree.Clone()
		return nil
	}
	return fmt.Errorf("restoring the tree of %d records: %w", position, err)
}
