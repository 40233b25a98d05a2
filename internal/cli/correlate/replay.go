package correlate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/correlation"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/cli/proof"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/evidencereader"
	"github.com/countersign-dev/countersign/internal/recorded"
	"github.com/countersign-dev/countersign/internal/service/correlator"
	"github.com/countersign-dev/countersign/internal/service/erasures"
	"github.com/countersign-dev/countersign/internal/service/keys"
	"github.com/countersign-dev/countersign/internal/service/sessionsecrets"
)

// ReplayCmd is `countersign replay`.
type ReplayCmd struct {
	target.Flags
	proof.ScanFlags
	proof.EngineFlags
	restsOn proof.Basis // of the records read from the evidence
	Session string      `help:"The session." required:"" type:"session"`
	From    string      `help:"Where to read: the log (as an operator), or its evidence in ClickHouse, where redaction hides some of it." enum:"log,clickhouse" default:"log"`
	Whole   bool        `help:"Replay the whole shard, exactly as the correlator did. Slower."`
	Key     string      `help:"The public checkpoint key, or a file that holds it (default: the ready file's, from which the variable must not differ)." env:"COUNTERSIGN_PUBLIC_KEY" placeholder:"FILE"`
	system.DigestFlags
	MissingAfter time.Duration `help:"As the correlator has it: an open call counts as abandoned after this." default:"15m"`
	MaxCalls     int           `help:"As the correlator has it: how many calls are in memory at most. For --whole." default:"262144"`
	MaxSessions  int           `help:"How many sessions are in memory at most, in the same way." default:"65536"`
	NoVerdictOK  bool          `help:"As the correlator has it: executions without a request for admission are not reported."`
	Strict       bool          `help:"Exit 1 also if something cannot be compared."`
	JSON         bool          `name:"json" help:"Print JSON: one object for each incarnation of the log."`
}

// past is the source of a replay: the log or the evidence.
type past interface {
	// session returns the session's inputs and recorded outputs.
	session(ctx context.Context) (*recording, error)
	// firstInput finds the first message after a sequence, up to another, that was stored at or
	// after a time and advances time; 0 if there is none.
	firstInput(ctx context.Context, after, to uint64, at time.Time) (seq uint64, stored time.Time, err error)
	// everything passes all messages up to a sequence to fn, in order.
	everything(ctx context.Context, to uint64, fn func(events.LogMessage) error) error
}

// recording is a session in one incarnation of the log.
type recording struct {
	Shard    string
	inputs   []events.LogMessage // by sequence, with the shard's control records
	recorded []output            // the correlator's outputs
	last     uint64              // end of the log when it was read
	consumed uint64              // input sequence up to which the correlator has certainly written all outputs
	hidden   map[uint64]bool     // messages that evidence holds only in part
}

// output is a call or finding, recorded or replayed.
type output struct {
	seq    uint64 // of the record; of a replayed output, of its input
	call   bool
	id     string // of the CloudEvent
	body   []byte // RFC 8785
	hidden bool   // the copy is redacted
}

func (c *ReplayCmd) Run(ctx context.Context, io ui.Stdio) error {
	if c.MissingAfter <= 0 {
		return ui.UsageError{Err: fmt.Errorf("--missing-after must be above zero")}
	}
	if c.MaxCalls < 0 || c.MaxSessions < 0 {
		return ui.UsageError{Err: fmt.Errorf("--max-calls and --max-sessions must not be below zero (0 is the default)")}
	}
	t, err := c.Resolve()
	if err != nil {
		return err
	}
	options, err := c.options(t)
	if err != nil {
		return err
	}
	list, closeAll, err := c.pasts(ctx, io, t)
	if err != nil {
		return err
	}
	defer closeAll()
	failed := false
	for _, p := range list {
		r, err := c.replay(ctx, io, t, p, options)
		if err != nil {
			return err
		}
		if c.JSON {
			err = ui.WriteJSON(io, r)
		} else {
			r.print(ui.NewPrinter(io.Out))
		}
		if err == nil && c.restsOn.Text != "" {
			proof.PrintBasis(io, c.JSON, 1, c.restsOn)
		}
		if err != nil {
			return err
		}
		failed = failed || !r.Same || c.Strict && len(r.Inconclusive) > 0
	}
	if failed {
		return ui.ExitCode(ui.ExitFailed)
	}
	return nil
}

// options returns the options of the correlator that made the recording.
func (c *ReplayCmd) options(t *target.Target) (correlation.Options, error) {
	o := correlation.Options{Shard: t.Stream, Space: subject.Space{Prefix: t.Prefix}, RequireVerdict: !c.NoVerdictOK, MissingAfter: c.MissingAfter}
	o = correlator.WithBounds(o, c.MaxCalls, c.MaxSessions)
	list, err := system.TrustedKeys(c.Key, t)
	if err != nil {
		return o, err
	}
	known := note.VerifierList(list...)
	o.KeyVoucher = func(k events.KeyRecord) bool { return signing.CheckKeyRecord(known, k) }
	o.RetireVoucher = func(k events.KeyRetirement) bool { return signing.CheckRetirement(known, k) }
	if c.Keys != "" {
		_, err = keys.Master(c.Keys) // report key problems before reading anything
	}
	return o, err
}

// keyed adds the digest keys to the options, and reports whether they cover all recorded digests.
func (c *ReplayCmd) keyed(ctx context.Context, t *target.Target, rec *recording, o correlation.Options) (correlation.Options, bool, error) {
	k, err := c.SessionDigests(ctx, t, t.Tenant, c.Session)
	if err != nil || k.Tenant == nil || len(rec.hidden) > 0 {
		return o, false, err // digests of redacted arguments would be wrong; make none
	}
	o.TenantKey = func(string) []byte { return k.Tenant }
	if !rec.underSessionKey() {
		return o, true, nil
	}
	own := sessionsecrets.SessionOfSubject(t.Tenant, c.Session)
	o.SessionSecret = func(tenant, session string) (*digest.Session, bool) {
		if sessionsecrets.SessionOfSubject(tenant, session) != own {
			return nil, true
		}
		return k.Session, true
	}
	return o, k.Session != nil, nil
}

// erasedAt returns the sequences of the erasure records that name the session. The correlator then
// forgot what came before.
func (r *recording) erasedAt(space subject.Space, tenant, session string) (seqs []uint64) {
	for _, m := range r.inputs {
		if p, err := space.Parse(m.Subject); err != nil || p.Class != subject.Control || p.Kind != events.ControlErasure {
			continue
		}
		e, err := events.DecodeRecord[events.Erasure](m.Body)
		if err == nil && e.State == events.ErasureBegun && e.Tenant == tenant && slices.Contains(e.Sessions, session) {
			seqs = append(seqs, m.Seq)
		}
	}
	return seqs
}

// underSessionKey reports whether recorded digests were made with the session's key.
func (r *recording) underSessionKey() bool {
	return slices.ContainsFunc(r.recorded, func(o output) bool { return bytes.Contains(o.body, []byte(`"`+digest.PrefixSession)) })
}

// pasts returns the log, or each incarnation of it that there is evidence of.
func (c *ReplayCmd) pasts(ctx context.Context, io ui.Stdio, t *target.Target) (list []past, closeAll func(), err error) {
	if c.From == "log" {
		l, closeLog, tenant, err := system.OpenLog(ctx, c.Flags)
		if err != nil {
			return nil, nil, err
		}
		erased, err := c.erased(t, l)
		if err != nil {
			closeLog()
			return nil, nil, err
		}
		return []past{&pastLog{log: l, tenant: tenant, name: c.Session, erased: erased}}, closeLog, nil
	}
	l, err := system.OpenEvidence(ctx, t)
	if err != nil {
		return nil, nil, err
	}
	own, restsOn, done, err := c.ProveShard(ctx, io, l, t, c.Key, c.CacheDir, "", evidencereader.CopyFilter{Tenant: t.Tenant, Others: true, Texts: c.Whole})
	if err != nil {
		return nil, nil, errors.Join(err, l.DB.Close())
	}
	c.restsOn = restsOn
	closeAll = func() {
		done()
		_ = l.DB.Close()
	}
	if list, err = c.evidencePasts(ctx, own, t.Tenant); err != nil {
		closeAll()
	}
	return list, closeAll, err
}

// evidencePasts returns each incarnation of the log that there is evidence of.
func (c *ReplayCmd) evidencePasts(ctx context.Context, l evidencereader.Reader, tenant string) (list []past, err error) {
	parts, err := l.Session(ctx, tenant, c.Session)
	if err != nil {
		return nil, system.SuggestSession(ctx, l.DB, tenant, c.Session, err)
	}
	for _, part := range parts {
		if err := whole(ctx, l, part); err != nil {
			return nil, err
		}
		list = append(list, &pastEvidence{db: l.DB, part: part, tenant: tenant})
	}
	return list, nil
}

// erased reads the log's erasure records, with the checkpoint key that options has checked.
func (c *ReplayCmd) erased(t *target.Target, l recorded.Log) (*erasures.Log, error) {
	known, err := system.TrustedKeys(c.Key, t)
	if err != nil {
		return nil, err
	}
	return system.Erasures(l.JS, l.Stream, l.Space.Prefix, known), nil
}

// replay runs the session through a new core and compares the outputs.
func (c *ReplayCmd) replay(ctx context.Context, io ui.Stdio, t *target.Target, p past, o correlation.Options) (*replayReport, error) {
	rec, err := p.session(ctx)
	if err != nil {
		return nil, err
	}
	o, hasKeys, err := c.keyed(ctx, t, rec, o)
	if err != nil {
		return nil, err
	}
	r := &rerun{core: correlation.New(o), past: p, space: o.Space, shard: t.Stream, last: rec.last,
		tenant: subject.Escape(t.Tenant), session: subject.Token(c.Session)}
	if c.Whole {
		tell := ui.CountProgress(io, "replaying")
		err = p.everything(ctx, rec.last, func(m events.LogMessage) error {
			r.apply(m)
			tell(m.Seq, rec.last)
			return nil
		})
	} else {
		err = r.run(ctx, rec.inputs)
	}
	if err != nil {
		return nil, err
	}
	report := compareOutputs(rec, r.outputs, blind{noKey: !hasKeys, copies: c.From != "log", alone: !c.Whole})
	report.Tenant, report.Session, report.Shard, report.From, report.Whole, report.Messages = t.Tenant, c.Session, rec.Shard, c.From, c.Whole, r.applied
	report.Proved, report.Erased = c.restsOn.Proved, rec.erasedAt(o.Space, t.Tenant, c.Session)
	return report, nil
}
