package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/client"
	"github.com/countersign-dev/countersign/cmd/internal/target"
	"github.com/countersign-dev/countersign/compliance/otlp"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/internal/evidencereader"
	"github.com/countersign-dev/countersign/storage"
)

type otelCmd struct {
	target.Flags
	Session  string `help:"Send this session, from the evidence." type:"session"`
	Follow   bool   `help:"Send what comes out of the log from now on."`
	Since    string `help:"With --follow: begin with what was stored since then (a duration such as 24h, or an RFC 3339 time)." placeholder:"TIME"`
	Position string `help:"With --follow: go on where this file says, and keep it up to date." type:"path" placeholder:"FILE"`
}

// otelBatch is how many records are sent at a time.
const otelBatch = 500

func (c *otelCmd) Run(ctx context.Context, io stdio) error {
	switch {
	case c.Follow == (c.Session != ""):
		return usageError{errors.New("give --session SESSION, or --follow")}
	case !c.Follow && (c.Since != "" || c.Position != ""):
		return usageError{errors.New("--since and --position are for --follow; a session is always sent whole")}
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
		return exitCode(exitFailed)
	}
	return nil
}

// session sends the evidence of a session.
func (c *otelCmd) session(ctx context.Context, io stdio, t *target.Target, s *otelSender) error {
	l, err := openLedger(ctx, t)
	if err != nil {
		return err
	}
	defer func() { _ = l.DB.Close() }()
	found, mapper, batch, n := false, otlp.NewMapper(), otlp.Signals{}, 0
	flush := func() error {
		err := s.send(ctx, batch)
		batch, n = otlp.Signals{}, 0
		return err
	}
	expired := newExpiredRows(l)
	defer func() { expired.note(io, "not sent") }()
	err = l.DB.Chain(ctx, t.Tenant, c.Session, func(r storage.EvidenceRow) error {
		found = true
		if gone, err := expired.take(ctx, r); gone || err != nil {
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
		return fmt.Errorf("%w: tenant %q, session %q", evidencereader.ErrNoSession, clean(t.Tenant, 60), clean(c.Session, 60))
	}
	return errors.Join(err, flush())
}

// follow sends what comes out of the log. The next page is asked for once the
// last one was taken and the position is kept: where the collector is slow, so
// is this, and the log waits.
func (c *otelCmd) follow(ctx context.Context, io stdio, t *target.Target, s *otelSender) error {
	nc, err := t.Connect(ctx, target.Subscriber)
	if err != nil {
		return err
	}
	defer nc.Close()
	o := client.FollowOptions{Tenant: t.Tenant, Space: subject.Space{Prefix: c.Prefix}, OnTrouble: troubleOn(io),
		Kinds: []string{string(subject.Decisions), string(subject.Calls), string(subject.Findings)}}
	if err := c.begin(&o); err != nil {
		return err
	}
	f := otelFollower{cmd: c, sender: s, io: io, mapper: otlp.NewMapper(), space: o.Space, kept: o.From}
	if _, err := rand.Read(f.key[:]); err != nil {
		return err
	}
	err = client.Follow(ctx, nc, o, func(page []events.Output, at client.Position) error { return f.take(ctx, page, at) })
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return nil // stopped while it waited: the position is before what was not sent
	}
	return err
}

func (c *otelCmd) begin(o *client.FollowOptions) (err error) {
	if c.Position != "" {
		if o.From, err = positionIn(c.Position); err != nil || o.From != (client.Position{}) {
			return err
		}
	}
	if c.Since != "" {
		if o.Since, err = moment(c.Since, time.Now()); err != nil {
			return usageError{fmt.Errorf("--since %w", err)}
		}
	}
	return nil
}

// otelFollower sends pages of outputs.
type otelFollower struct {
	cmd    *otelCmd
	sender *otelSender
	io     stdio
	mapper *otlp.Mapper
	space  subject.Space
	kept   client.Position
	key    [digest.KeySize]byte // of commitments that nobody sees
}

// TenantKey and SessionKey make evidence.Keys of the follower.
func (f *otelFollower) TenantKey(string) []byte                      { return f.key[:] }
func (f *otelFollower) SessionSecret(string, string) ([]byte, error) { return f.key[:], nil }

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
	return keepPosition(f.cmd.Position, at)
}

// mapped redacts outputs as the auditor does, by the built-in rules, and maps
// what is left.
func (f *otelFollower) mapped(page []events.Output, log string) (batch otlp.Signals, err error) {
	b, err := evidence.NewBuilder(log, f.space)
	if err != nil {
		return batch, err
	}
	for _, out := range page {
		m := events.LogMessage{Seq: out.Seq, Subject: out.Subject, Time: out.At.Time, Body: out.Record}
		built, err := b.Build(m, evidence.Head{}, f)
		if err != nil {
			return batch, fmt.Errorf("redacting record %d: %w", out.Seq, err)
		}
		if built.Record.Kind == evidence.KindUnparseable || !f.mapper.Add(&batch, built.Record) {
			f.sender.unreadable++ // also what was too large for a page
		}
	}
	return batch, nil
}
