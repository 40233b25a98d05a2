package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/cmd/internal/target"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/streams"
)

type doctorCmd struct {
	target.Flags
	AcceptReplicated bool `help:"Assert that the servers of the cluster have separate power, so that replicas which are not synced are durable." env:"COUNTERSIGN_ACCEPT_REPLICATED"`
	JSON             bool `name:"json" help:"Print the findings as JSON, one a line."`
}

// Levels of a doctor's finding.
const (
	levelOK     = "ok"
	levelWarn   = "warn"
	levelUnsafe = "unsafe"
)

// examined is what a doctor says about one thing.
type examined struct {
	Check  string `json:"check"`
	Level  string `json:"level"`
	Detail string `json:"detail"`
}

// maxLag is how many messages the auditor may be behind without a warning.
const maxLag = 10_000

// maxSkew is how far the clocks of this machine and of the server may differ: a
// receipt lives a minute.
const maxSkew = 2 * time.Second

func (c *doctorCmd) Run(ctx context.Context, io stdio) error {
	t, err := c.Resolve()
	if err != nil {
		return err
	}
	o, err := operate(ctx, t)
	if err != nil {
		return err
	}
	defer o.nc.Close()
	d := doctor{operator: o, acceptReplicated: c.AcceptReplicated}
	var list []examined
	for _, examine := range []func(context.Context) []examined{d.durability, d.log, d.admitter, d.correlator, d.policies, d.permissions, d.clock, d.keys, d.evidence, d.retention} {
		list = append(list, examine(ctx)...)
	}
	return c.report(io, list)
}

func (c *doctorCmd) report(io stdio, list []examined) error {
	p := newPrinter(io.out)
	colour := map[string]string{levelOK: green, levelWarn: yellow, levelUnsafe: red}
	for _, e := range list {
		if c.JSON {
			if err := compactJSON(io, e); err != nil {
				return err
			}
			continue
		}
		p.printf("%s  %-11s %s\n", p.paint(colour[e.Level], fmt.Sprintf("%-6s", e.Level)), e.Check, clean(e.Detail, 400))
	}
	if slices.ContainsFunc(list, func(e examined) bool { return e.Level == levelUnsafe }) {
		return exitCode(exitFailed)
	}
	return nil
}

// doctor examines a running system as an operator.
type doctor struct {
	operator
	acceptReplicated bool
}

func one(check, level, format string, args ...any) []examined {
	return []examined{{check, level, fmt.Sprintf(format, args...)}}
}

// durability: what an acknowledged record is worth.
func (d doctor) durability(ctx context.Context) []examined {
	class, detail, err := streams.Durability(ctx, d.nc, d.t.Stream)
	if err != nil {
		return one("durability", levelUnsafe, "cannot be read from the server: %v", err)
	}
	if problem := class.Problem(detail, d.acceptReplicated); problem != "" {
		return one("durability", levelUnsafe, "%s", problem)
	}
	if class == streams.ClassReplicated {
		detail += "; accepted with --accept-replicated: durable as long as the servers do not lose power at the same time"
	}
	return one("durability", levelOK, "%s: %s", class, detail)
}

// log: the stream's settings that everything else rests on.
func (d doctor) log(ctx context.Context) []examined {
	s, err := d.js.Stream(ctx, d.t.Stream)
	if err != nil {
		return one("log", levelUnsafe, "stream %s: %v (create it with: countersign provision --streams)", d.t.Stream, err)
	}
	cfg, state := s.CachedInfo().Config, s.CachedInfo().State
	var wrong []string
	for _, w := range []struct {
		is   bool
		what string
	}{
		{cfg.Discard != jetstream.DiscardNew, "it discards old messages when full"},
		{!cfg.DenyPurge, "it can be purged"},
		{cfg.AllowRollup, "rollups can wipe it"},
		{cfg.MaxAge != 0, "messages expire"},
	} {
		if w.is {
			wrong = append(wrong, w.what)
		}
	}
	missing, erased := d.missing(ctx, state)
	if missing != "" {
		wrong = append(wrong, missing)
	}
	if len(wrong) > 0 {
		return one("log", levelUnsafe, "stream %s: %v", d.t.Stream, wrong)
	}
	return one("log", levelOK, "stream %s: %d messages, last sequence %d, never discards or purges%s", d.t.Stream, state.Msgs, state.LastSeq, erased)
}

func (d doctor) admitter(ctx context.Context) []examined {
	return d.answers(ctx, "admitter", "every runtime must treat that as deny")
}

func (d doctor) correlator(ctx context.Context) []examined {
	return d.answers(ctx, "correlator", "nothing is found until one is; the log keeps everything")
}

// answers: whether a service does.
func (d doctor) answers(ctx context.Context, service, otherwise string) []examined {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, err := d.nc.RequestWithContext(ctx, "$SRV.PING."+service, nil)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return one(service, levelUnsafe, "none is listening: %s", otherwise)
	case err != nil:
		return one(service, levelUnsafe, "does not answer: %v", err)
	}
	return one(service, levelOK, "answers")
}

func (d doctor) policies(ctx context.Context) []examined {
	b, err := openPoliciesAt(ctx, d.t)
	if err != nil {
		return one("policies", levelUnsafe, "%v", err)
	}
	defer b.nc.Close()
	held, err := b.inForce(ctx)
	if err != nil {
		return one("policies", levelUnsafe, "%v", err)
	}
	files, err := policyFiles(held)
	switch {
	case err != nil:
		return one("policies", levelUnsafe, "every request is denied: %v (push a good set: countersign policy push DIR)", err)
	case len(files) == 0:
		return one("policies", levelWarn, "none in force: every request is denied (countersign policy push DIR)")
	case len(held.Mixed()) > 0:
		return one("policies", levelWarn, "%d files in force, some of them put one by one and not by a push: nobody signs for the whole (countersign policy push DIR)", len(files))
	}
	return one("policies", levelOK, "%d files in force, revision %d", len(files), held.Revision)
}

// clock: receipts expire by the clocks of those who check them.
func (d doctor) clock(ctx context.Context) []examined {
	m, err := streams.LastBySubject(ctx, d.js, d.t.Stream, subject.Space{Prefix: d.t.Prefix}.All(subject.Decisions))
	if err != nil || m == nil {
		return one("clock", levelOK, "no decision yet to compare clocks by")
	}
	r, err := events.DecodeRecord[events.Decision](m.Body)
	if err != nil {
		return one("clock", levelWarn, "the last decision, at sequence %d, does not read as one", m.Seq)
	}
	// The broker stored the decision right after the admitter made it.
	if skew := m.Time.Sub(r.DecidedAt.Time).Abs(); skew > maxSkew {
		return one("clock", levelUnsafe, "the admitter's and the NATS server's clocks differ by %s: set both by NTP", skew.Round(time.Millisecond))
	}
	return one("clock", levelOK, "the admitter's and the NATS server's agree within %s", maxSkew)
}

// keys: whether the key that signs is one that others can check.
func (d doctor) keys(ctx context.Context) []examined {
	m, err := streams.LastBySubject(ctx, d.js, d.t.Stream, subject.Space{Prefix: d.t.Prefix}.Control(d.t.Stream, events.ControlKey))
	if err != nil {
		return one("keys", levelUnsafe, "reading the key records: %v", err)
	}
	if m == nil {
		return one("keys", levelWarn, "no receipt key is published yet: an admitter does so when it starts")
	}
	k, err := events.DecodeRecord[events.KeyRecord](m.Body)
	if err != nil {
		return one("keys", levelUnsafe, "the key record at sequence %d does not read as one", m.Seq)
	}
	return one("keys", levelOK, "receipt key %s, published at sequence %d", k.KeyID, m.Seq)
}

// evidence: how far the auditor is.
func (d doctor) evidence(ctx context.Context) []examined {
	dsn, err := d.t.DSN()
	if err != nil {
		return one("evidence", levelWarn, "not looked at: %v", err)
	}
	db, err := storage.Open(ctx, dsn)
	if err != nil {
		return one("evidence", levelUnsafe, "%v", err)
	}
	defer func() { _ = db.Close() }()
	state, err := streams.StreamState(ctx, d.js, d.t.Stream)
	if err != nil {
		return one("evidence", levelUnsafe, "reading the log's state: %v", err)
	}
	shard := streams.EpochName(d.t.Stream, state.Created)
	position, _, err := db.Position(ctx, shard)
	if err != nil {
		return one("evidence", levelUnsafe, "%v", err)
	}
	switch {
	case position > state.LastSeq:
		return one("evidence", levelUnsafe, "the log ends at %d and the evidence at %d: acknowledged messages are gone", state.LastSeq, position)
	case state.LastSeq-position > maxLag:
		return one("evidence", levelWarn, "the auditor is %d messages behind", state.LastSeq-position)
	}
	return one("evidence", levelOK, "shard %s: %d of %d messages audited", shard, position, state.LastSeq)
}
