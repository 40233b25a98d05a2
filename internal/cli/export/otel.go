package export

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/client"
	"github.com/countersign-dev/countersign/compliance/otlp"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/build"
	"github.com/countersign-dev/countersign/internal/cli/proof"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/evidencereader"
	"github.com/countersign-dev/countersign/storage"
)

// OtelCmd is `countersign otel`.
type OtelCmd struct {
	target.Flags
	Session  string `help:"Send this session, from the evidence." type:"session"`
	Follow   bool   `help:"Send what comes out of the log from now on."`
	Since    string `help:"With --follow: begin with what was stored since then (a duration such as 24h, or an RFC 3339 time)." placeholder:"TIME"`
	Position string `help:"With --follow: go on where this file says, and keep it up to date." type:"path" placeholder:"FILE"`
}

// otelBatch is how many records are sent at a time.
const otelBatch = 500

func (c *OtelCmd) Run(ctx context.Context, io ui.Stdio) error {
	switch {
	case c.Follow == (c.Session != ""):
		return ui.UsageError{Err: errors.New("give --session SESSION, or --follow")}
	case !c.Follow && (c.Since != "" || c.Position != ""):
		return ui.UsageError{Err: errors.New("--since and --position are for --follow; a session is always sent whole")}
	}
	t, err := c.Resolve()
	if err != nil {
		return err
	}
	s, err := newOtelSender(ctx, t.Tenant)
	if err != nil {
		return err
	}
	defer s.close()
	if c.Follow {
		err = c.follow(ctx, io, t, s)
	} else {
		err = c.session(ctx, io, t, s)
	}
	if err != nil {
		return err
	}
	s.report(io)
	if s.rejected > 0 {
		return ui.ExitCode(ui.ExitFailed)
	}
	return nil
}

// session sends the evidence of a session.
func (c *OtelCmd) session(ctx context.Context, io ui.Stdio, t *target.Target, s *otelSender) error {
	l, err := system.OpenEvidence(ctx, t)
	if err != nil {
		return err
	}
	defer func() { _ = l.DB.Close() }()
	found, mapper, batch, n := false, otlp.NewMapper(), otlp.Signals{}, 0
	flush := func() error {
		err := s.deliver(ctx, &batch)
		batch, n = otlp.Signals{}, 0
		return err
	}
	expired := proof.NewExpiredRows(l)
	defer func() { expired.Note(io, "not sent") }()
	err = l.DB.Chain(ctx, t.Tenant, c.Session, func(r storage.EvidenceRow) error {
		found = true
		if gone, err := expired.Expired(ctx, r); gone || err != nil {
			return err
		}
		item, err := formatItem(r)
		if err != nil {
			return err
		}
		if !mapper.Add(&batch, item.Record) {
			s.unreadable++
		}
		if n++; n == otelBatch {
			return flush()
		}
		return nil
	})
	if err == nil && !found {
		return fmt.Errorf("%w: tenant %q, session %q", evidencereader.ErrNoSession, ui.Clean(t.Tenant, 60), ui.Clean(c.Session, 60))
	}
	return errors.Join(err, flush())
}

// follow sends the outputs of the log. It requests the next page once the last one was accepted
// and the position is kept, so a slow collector slows it down and loses nothing.
func (c *OtelCmd) follow(ctx context.Context, io ui.Stdio, t *target.Target, s *otelSender) error {
	nc, err := t.Connect(ctx, target.Subscriber)
	if err != nil {
		return err
	}
	defer nc.Close()
	o := client.FollowOptions{Tenant: t.Tenant, Space: subject.Space{Prefix: c.Prefix}, OnTrouble: system.ReportOutages(io),
		Kinds: []string{string(subject.Decisions), string(subject.Calls), string(subject.Findings)}}
	if err := c.begin(&o); err != nil {
		return err
	}
	f := otelFollower{cmd: c, sender: s, io: io, mapper: otlp.NewMapper(), space: o.Space, kept: o.From, key: make(build.OneKey, digest.KeySize)}
	if _, err := rand.Read(f.key); err != nil {
		return err
	}
	err = client.Follow(ctx, nc, o, func(page []events.Output, at client.Position) error { return f.take(ctx, page, at) })
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return nil // stopped while waiting: the position is before what was not sent
	}
	return err
}

func (c *OtelCmd) begin(o *client.FollowOptions) (err error) {
	if c.Position != "" {
		if o.From, err = system.ReadPosition(c.Position); err != nil || o.From != (client.Position{}) {
			return err
		}
	}
	if c.Since != "" {
		if o.Since, err = ui.ParseMoment(c.Since, time.Now()); err != nil {
			return ui.UsageError{Err: fmt.Errorf("--since %w", err)}
		}
	}
	return nil
}

// otelFollower sends pages of outputs.
type otelFollower struct {
	cmd    *OtelCmd
	sender *otelSender
	io     ui.Stdio
	mapper *otlp.Mapper
	space  subject.Space
	kept   client.Position
	key    build.OneKey // of commitments that are not sent
}

func (f *otelFollower) take(ctx context.Context, page []events.Output, at client.Position) error {
	batch, err := f.mapped(page, at.Log)
	if err != nil {
		return err
	}
	if err := f.sender.sendPatiently(ctx, f.io, batch); err != nil {
		return err
	}
	if f.cmd.Position == "" || at == f.kept {
		return nil
	}
	f.kept = at
	return system.WritePosition(f.cmd.Position, at)
}

// mapped redacts outputs as the auditor does, with the built-in rules, and maps the result.
func (f *otelFollower) mapped(page []events.Output, log string) (batch otlp.Signals, err error) {
	b, err := build.NewBuilder(log, f.space)
	if err != nil {
		return batch, err
	}
	for _, out := range page {
		m := events.LogMessage{Seq: out.Seq, Subject: out.Subject, Time: out.At.Time, Body: out.Record}
		built, err := b.Build(m, evidence.Head{}, f.key)
		if err != nil {
			return batch, fmt.Errorf("redacting record %d: %w", out.Seq, err)
		}
		if built.Record.Kind == evidence.KindUnparseable || !f.mapper.Add(&batch, built.Record) {
			f.sender.unreadable++ // including outputs that were too large for a page
		}
	}
	return batch, nil
}
