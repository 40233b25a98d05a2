package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/countersign-dev/countersign/cmd/internal/target"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence/retention"
	"github.com/countersign-dev/countersign/internal/service/erasureplan"
	"github.com/countersign-dev/countersign/streams"
)

type retentionEraseCmd struct {
	target.Flags
	asking
	Session string        `help:"A session." xor:"scope"`
	Subject string        `help:"A data subject: every session that names this agent's or user's id." xor:"scope" placeholder:"ID"`
	Seq     []string      `help:"Messages of the log without a session, by sequence: 12 or 20-25. May be repeated." xor:"scope" placeholder:"N"`
	Quiet   time.Duration `help:"How long its sessions must have been silent." default:"15m"`
	Yes     bool          `help:"Do it. It cannot be undone."`
	Wait    time.Duration `help:"With --yes: how long to wait until it is done." default:"2m"`
	JSON    bool          `name:"json" help:"Print JSON."`
}

// Exit codes and how often the state is looked at while waiting.
const erasePoll = 200 * time.Millisecond

func (c *retentionEraseCmd) Run(ctx context.Context, io stdio) error {
	seqs := strings.Join(c.Seq, ",")
	if scope := (retention.Scope{Session: c.Session, Subject: c.Subject, Seqs: seqs}); scope == (retention.Scope{}) {
		return usageError{errors.New("say what: --session S, --subject ID or --seq N")}
	}
	if seqs != "" {
		if _, err := retention.ParseSeqs(seqs); err != nil {
			return usageError{fmt.Errorf("--seq: %w", err)}
		}
	}
	if c.Quiet < 0 || c.Wait < 0 {
		return usageError{errors.New("--quiet and --wait must not be negative")}
	}
	b, err := openRetention(ctx, c.Flags)
	if err != nil {
		return err
	}
	defer b.nc.Close()
	if c.Session, err = b.evidenceName(ctx, c.Session); err != nil {
		return err
	}
	scope := retention.Scope{Session: c.Session, Subject: c.Subject, Seqs: seqs}
	if err := c.dryRun(ctx, io, b, scope); err != nil {
		return err
	}
	if !c.Yes {
		fmt.Fprintln(io.err, "nothing was changed; with --yes it is done, and cannot be undone")
		return nil
	}
	o := retention.Order{Scope: scope, Note: c.note("erasure-" + uuid.NewString()), IdleSeconds: int64(c.Quiet / time.Second)}
	if _, err := b.change(ctx, func(s retention.State) (retention.State, error) { return s.RequestErasure(o) }); err != nil {
		return err
	}
	return c.await(ctx, io, b, o.ID)
}

// dryRun says what would go, and fails if it must not.
func (c *retentionEraseCmd) dryRun(ctx context.Context, io stdio, b *retentionBucket, scope retention.Scope) error {
	l, err := openLedger(ctx, b.t)
	if err != nil {
		return err
	}
	defer func() { _ = l.DB.Close() }()
	st, err := streams.StreamState(ctx, b.js, b.t.Stream)
	if err != nil {
		return err
	}
	ev := erasureplan.Evidence{DB: l.DB, Shard: streams.EpochName(b.t.Stream, st.Created), Tenant: b.tenant, Space: subject.Space{Prefix: b.t.Prefix},
		Read: func(ctx context.Context, seq uint64) (*events.LogMessage, error) {
			return streams.MessageAt(ctx, b.js, b.t.Stream, seq)
		}}
	p, err := ev.NewPlan(ctx, retention.Order{Scope: scope})
	if err != nil {
		return err
	}
	s, _, err := b.read(ctx)
	if err != nil {
		return err
	}
	sealed, err := b.sealed(ctx)
	if err != nil {
		return err
	}
	if err := c.print(io, scope, ev.Shard, p, sealed); err != nil {
		return err
	}
	hold, err := ev.BlockingHold(ctx, s, p, scope.Subject)
	switch {
	case err != nil:
		return err
	case hold != nil:
		return &retention.HeldError{Hold: *hold}
	case len(sealed) > 0:
		return fmt.Errorf("%w: %s. They were made before there was erasure, and the server does not let that be changed (docs/retention.md, Logs from before)",
			streams.ErrSealed, strings.Join(sealed, ", "))
	}
	return p.CheckIdle(time.Now(), c.Quiet)
}

// sealed lists the streams that nothing can be taken out of.
func (b *retentionBucket) sealed(ctx context.Context) (list []string, err error) {
	for _, name := range append(streams.ErasableStreams(), b.t.Stream) {
		s, err := b.js.Stream(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("reading stream %s: %w", name, err)
		}
		if s.CachedInfo().Config.DenyDelete {
			list = append(list, name)
		}
	}
	return list, nil
}

func (c *retentionEraseCmd) print(io stdio, scope retention.Scope, shard string, p erasureplan.Plan, sealed []string) error {
	if c.JSON {
		return compactJSON(io, map[string]any{"scope": scope, "shard": shard, "sessions": p.Sessions, "messages": len(p.Seqs), "without_session": p.Sessionless,
			"kinds": p.Kinds, "first_seq": p.Seqs[0], "last_seq": p.Seqs[len(p.Seqs)-1], "newest": p.Newest, "records_with_commitments": p.Redacted,
			"records_without_body": p.Withheld, "sealed": sealed})
	}
	var kinds []string
	for _, k := range slices.Sorted(maps.Keys(p.Kinds)) {
		kinds = append(kinds, plural(p.Kinds[k], k))
	}
	fmt.Fprintf(io.out, "Erasing %s destroys, in %s:\n", scope, shard)
	for _, session := range p.Sessions {
		fmt.Fprintf(io.out, "  the key of session %q\n", clean(session, 200))
	}
	fmt.Fprintf(io.out, "  %s of the log, sequences %d to %d: %s\n", plural(len(p.Seqs), "message"), p.Seqs[0], p.Seqs[len(p.Seqs)-1], strings.Join(kinds, ", "))
	if p.Sessionless > 0 {
		fmt.Fprintf(io.out, "    %d of them without a session: the key of their commitments, which others share, stays\n", p.Sessionless)
	}
	fmt.Fprintf(io.out, "  its approval workflows, and what %s left in quarantine\n", plural(p.Withheld, "message"))
	fmt.Fprintf(io.out, "It leaves the evidence: redacted texts, hashes, and %s whose commitments nobody can open any more.\n", plural(p.Redacted, "record"))
	fmt.Fprintln(io.out, "It does not reach what subscribers have read, backups, and values that redaction left in the evidence.")
	return nil
}

// await follows an order until it is over.
func (c *retentionEraseCmd) await(ctx context.Context, io stdio, b *retentionBucket, id string) error {
	fmt.Fprintf(io.err, "%s is ordered\n", id)
	for end := time.Now().Add(c.Wait); ; {
		s, _, err := b.read(ctx)
		if err != nil {
			return err
		}
		o, ok := s.FindOrder(id)
		switch {
		case !ok:
			return fmt.Errorf("%s is gone from the bucket: see gov.control.%s.erasure on the log", id, b.t.Stream)
		case o.Status == retention.Refused:
			return fmt.Errorf("%s was refused: %s", id, o.Problem)
		case o.Status == retention.Done:
			fmt.Fprintf(io.out, "erased: %s, %s, %s, %s\n", plural(int(o.Result.Messages), "message"), plural(o.Result.Keys, "key"),
				plural(o.Result.Quarantined, "message")+" in quarantine", plural(o.Result.Approvals, "approval revision"))
			return nil
		case time.Now().After(end):
			return fmt.Errorf("%s is %s and goes on by itself; is the auditor running, with a custodian's credentials, and the correlator? See countersign doctor", id, o.Status)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(erasePoll):
		}
	}
}
