package admin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence/retention"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/internal/service/erasureplan"
	"github.com/countersign-dev/countersign/streams"
)

type retentionEraseCmd struct {
	target.Flags
	asking
	Session string        `help:"A session." xor:"scope"`
	Subject string        `help:"A data subject: every session that names this agent's or user's id." xor:"scope" placeholder:"ID"`
	Seq     []string      `help:"Messages of the log without a session, by sequence: 12 or 20-25. May be repeated." xor:"scope" placeholder:"N"`
	Quiet   time.Duration `help:"How long its sessions must have been idle." default:"15m"`
	Yes     bool          `help:"Do it. It cannot be undone."`
	Wait    time.Duration `help:"With --yes: how long to wait until it is done." default:"2m"`
	JSON    bool          `name:"json" help:"Print JSON: one object, with --yes also the order as it ended."`
}

// erasure is what an erasure would delete, and with --yes the order to do it.
type erasure struct {
	Scope       retention.Scope  `json:"scope"`
	Shard       string           `json:"shard"`
	Sessions    []string         `json:"sessions"`
	Messages    int              `json:"messages"`
	Sessionless int              `json:"without_session"`
	Kinds       map[string]int   `json:"kinds"`
	OpenCalls   int              `json:"open_calls"` // calls that have not ended
	First       uint64           `json:"first_seq"`
	Last        uint64           `json:"last_seq"`
	Newest      time.Time        `json:"newest"`
	Redacted    int              `json:"records_with_commitments"`
	Withheld    int              `json:"records_without_body"`
	Order       *retention.Order `json:"order,omitempty"` // as it was seen last
}

// erasePoll is how often the state is read while waiting.
const erasePoll = 200 * time.Millisecond

func (c *retentionEraseCmd) Run(ctx context.Context, io ui.Stdio) error {
	seqs := strings.Join(c.Seq, ",")
	if scope := (retention.Scope{Session: c.Session, Subject: c.Subject, Seqs: seqs}); scope == (retention.Scope{}) {
		return ui.UsageError{Err: errors.New("say what: --session S, --subject ID or --seq N")}
	}
	if seqs != "" {
		if _, err := retention.ParseSeqs(seqs); err != nil {
			return ui.UsageError{Err: fmt.Errorf("--seq: %w", err)}
		}
	}
	if c.Quiet < 0 || c.Wait < 0 {
		return ui.UsageError{Err: errors.New("--quiet and --wait must not be negative")}
	}
	b, err := openRetention(ctx, c.Flags)
	if err != nil {
		return err
	}
	defer b.Conn.Close()
	if c.Session, err = b.evidenceName(ctx, c.Session); err != nil {
		return err
	}
	e, err := c.dryRun(ctx, io, b, retention.Scope{Session: c.Session, Subject: c.Subject, Seqs: seqs})
	if err == nil && c.Yes {
		e.Order, err = c.order(ctx, io, b, e.Scope)
	}
	if c.JSON && e != nil {
		if failed := ui.WriteJSON(io, e); failed != nil {
			return failed
		}
	}
	if err == nil && !c.Yes {
		fmt.Fprintln(io.Err, "nothing was changed; with --yes it is done, and cannot be undone")
	}
	return err
}

// order orders an erasure and returns it as it was seen last.
func (c *retentionEraseCmd) order(ctx context.Context, io ui.Stdio, b *RetentionBucket, scope retention.Scope) (*retention.Order, error) {
	o := retention.Order{Scope: scope, Note: c.note("erasure-" + uuid.NewString()), IdleSeconds: int64(c.Quiet / time.Second)}
	if _, err := b.change(ctx, func(s retention.State) (retention.State, error) { return s.RequestErasure(o) }); err != nil {
		return nil, err
	}
	return &o, c.await(ctx, io, b, &o)
}

// dryRun says what an erasure would delete, and fails if it is not permitted.
func (c *retentionEraseCmd) dryRun(ctx context.Context, io ui.Stdio, b *RetentionBucket, scope retention.Scope) (*erasure, error) {
	l, err := system.OpenEvidence(ctx, b.Target)
	if err != nil {
		return nil, err
	}
	defer func() { _ = l.DB.Close() }()
	st, err := streams.StreamState(ctx, b.JS, b.Target.Stream)
	if err != nil {
		return nil, err
	}
	ev := erasureplan.Evidence{DB: l.DB, Shard: streams.IncarnationName(b.Target.Stream, st.Created), Tenant: b.Tenant, Space: subject.Space{Prefix: b.Target.Prefix},
		Read: func(ctx context.Context, seq uint64) (*events.LogMessage, error) {
			return streams.MessageAt(ctx, b.JS, b.Target.Stream, seq)
		}}
	p, err := ev.NewPlan(ctx, retention.Order{Scope: scope})
	if err != nil {
		return nil, err
	}
	s, _, err := b.Read(ctx)
	if err != nil {
		return nil, err
	}
	e := &erasure{Scope: scope, Shard: ev.Shard, Sessions: p.Sessions, Messages: len(p.Seqs), Sessionless: p.Sessionless, Kinds: p.Kinds, OpenCalls: p.OpenCalls(),
		First: p.Seqs[0], Last: p.Seqs[len(p.Seqs)-1], Newest: p.Newest, Redacted: p.Redacted, Withheld: p.Withheld}
	if !c.JSON {
		e.print(io)
	}
	hold, err := ev.BlockingHold(ctx, s, p, scope.Subject)
	switch {
	case err != nil:
		return e, err
	case hold != nil:
		return e, &retention.HeldError{Hold: *hold}
	}
	if err := p.CheckIdle(st.At, c.Quiet); err != nil {
		return e, fmt.Errorf("%w: wait, or give --quiet %s if it is over", err, max(0, st.At.Sub(p.Newest)).Truncate(time.Second))
	}
	return e, nil
}

func (e *erasure) print(io ui.Stdio) {
	var kinds []string
	for _, k := range slices.Sorted(maps.Keys(e.Kinds)) {
		kinds = append(kinds, ui.Plural(e.Kinds[k], k))
	}
	fmt.Fprintf(io.Out, "Erasing %s destroys, in %s:\n", e.Scope, e.Shard)
	for _, session := range e.Sessions {
		fmt.Fprintf(io.Out, "  the key of session %q\n", ui.Clean(session, 200))
	}
	fmt.Fprintf(io.Out, "  %s of the log, sequences %d to %d: %s\n", ui.Plural(e.Messages, "message"), e.First, e.Last, strings.Join(kinds, ", "))
	if e.Sessionless > 0 {
		fmt.Fprintf(io.Out, "    %d of them without a session: the key of their commitments, which others share, stays\n", e.Sessionless)
	}
	if e.OpenCalls > 0 {
		fmt.Fprintf(io.Out, "    %s still open: an end that comes later is an orphan_completion, as what announced the call is erased\n", ui.Plural(e.OpenCalls, "call"))
	}
	fmt.Fprintf(io.Out, "  its approval workflows, and what %s left in quarantine\n", ui.Plural(e.Withheld, "message"))
	fmt.Fprintf(io.Out, "It leaves the evidence: redacted texts, hashes, and %s whose commitments cannot be opened any more.\n", ui.Plural(e.Redacted, "record"))
	fmt.Fprintln(io.Out, "It does not reach what subscribers have read, backups, and values that redaction left in the evidence.")
}

// await follows an order until it ends, and keeps in seen how it stands.
func (c *retentionEraseCmd) await(ctx context.Context, io ui.Stdio, b *RetentionBucket, seen *retention.Order) error {
	id := seen.ID
	fmt.Fprintf(io.Err, "%s is ordered\n", id)
	for end := time.Now().Add(c.Wait); ; {
		s, _, err := b.Read(ctx)
		if err != nil {
			return err
		}
		o, ok := s.FindOrder(id)
		if !ok {
			return fmt.Errorf("%s is gone from the bucket: see gov.control.%s.erasure on the log", id, b.Target.Stream)
		}
		*seen = o
		switch {
		case o.Status == retention.Refused:
			return fmt.Errorf("%s was refused: %s", id, o.Problem)
		case o.Status == retention.Done:
			if !c.JSON {
				fmt.Fprintf(io.Out, "erased: %s, %s, %s, %s\n", ui.Plural(int(o.Result.Messages), "message"), ui.Plural(o.Result.Keys, "key"),
					ui.Plural(o.Result.Quarantined, "message")+" in quarantine", ui.Plural(o.Result.Approvals, "approval revision"))
			}
			return nil
		case time.Now().After(end):
			return fmt.Errorf("%s is %s and goes on by itself; is the auditor running, with a custodian's credentials and not behind the log, and the correlator? See countersign doctor", id, o.Status)
		}
		if err := retry.Sleep(ctx, erasePoll); err != nil {
			return err
		}
	}
}
