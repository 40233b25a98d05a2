package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/internal/cli/policycmd"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/evidencereader"
	"github.com/countersign-dev/countersign/storage/read"
	"github.com/countersign-dev/countersign/streams"
)

// DoctorCmd is `countersign doctor`.
type DoctorCmd struct {
	target.Flags
	Timeout          time.Duration `help:"How long one check may take." default:"15s"`
	AcceptReplicated bool          `help:"Assert that the servers of the cluster have separate power, so that replicas which are not synced are durable." env:"COUNTERSIGN_ACCEPT_REPLICATED"`
	JSON             bool          `name:"json" help:"Print the findings as JSON, one a line."`
}

// Levels of a doctor's finding.
const (
	levelOK     = "ok"
	levelWarn   = "warn"
	levelUnsafe = "unsafe"
)

// examined is the result of one check.
type examined struct {
	Check  string `json:"check"`
	Level  string `json:"level"`
	Detail string `json:"detail"`
}

// maxLag is how many messages the auditor may be behind without a warning.
const maxLag = 10_000

// maxSkew is how far two clocks may differ: a receipt lives a minute.
const maxSkew = 2 * time.Second

// slowRecord is how long an admitter waits for the record of a decision by default (--timeout).
const slowRecord = 4 * time.Second

func (c *DoctorCmd) Run(ctx context.Context, io ui.Stdio) error {
	t, err := c.Resolve()
	if err != nil {
		return err
	}
	if c.Timeout <= 0 {
		return ui.UsageError{Err: errors.New("--timeout must be above zero")}
	}
	list := limited(ctx, c.Timeout, "disk", func(context.Context) []examined { return disk(t.ReadyInfo()) }) // a full one stops NATS
	list = append(list, limited(ctx, c.Timeout, "services", func(ctx context.Context) []examined { return services(ctx, t.ReadyInfo()) })...)
	o, err := system.Connect(ctx, t)
	if err != nil {
		_ = c.report(io, list)
		return err
	}
	defer o.Conn.Close()
	d := doctor{Operator: o, acceptReplicated: c.AcceptReplicated}
	if wrong := limited(ctx, c.Timeout, "log", d.stream); len(wrong) > 0 { // every other check needs the log
		return c.report(io, append(list, wrong...))
	}
	for _, check := range []struct {
		name    string
		examine func(context.Context) []examined
	}{
		{"durability", d.durability}, {"log", d.log}, {"settings", d.settings}, {"admitter", d.admitter}, {"ingest", d.ingest}, {"correlator", d.correlator}, {"auditor", d.auditor},
		{"policies", d.policies}, {"gateway", d.gateway}, {"permissions", d.permissions}, {"clock", d.clock}, {"keys", d.keys}, {"evidence", d.evidence}, {"retention", d.retention},
	} {
		list = append(list, limited(ctx, c.Timeout, check.name, check.examine)...)
	}
	return c.report(io, list)
}

// limited runs a check with a time limit and reports if it took too long. A server does not
// answer a request that is not permitted, so no request may wait for ever.
func limited(ctx context.Context, timeout time.Duration, name string, examine func(context.Context) []examined) []examined {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	found := make(chan []examined, 1)
	go func() { found <- examine(ctx) }()
	late := time.NewTimer(timeout + afterTimeout)
	defer late.Stop()
	select {
	case list := <-found:
		return list
	case <-late.C:
		return one(name, levelUnsafe, "no answer within %v: may this user ask for it, and is the right server named?", timeout)
	}
}

// afterTimeout is how long a check may take to return after its time limit.
const afterTimeout = time.Second

func (c *DoctorCmd) report(io ui.Stdio, list []examined) error {
	p := ui.NewPrinter(io.Out)
	colour := map[string]string{levelOK: ui.Green, levelWarn: ui.Yellow, levelUnsafe: ui.Red}
	for _, e := range list {
		if c.JSON {
			if err := ui.WriteJSON(io, e); err != nil {
				return err
			}
			continue
		}
		p.Printf("%s  %-11s %s\n", p.Paint(colour[e.Level], fmt.Sprintf("%-6s", e.Level)), e.Check, ui.Clean(e.Detail, 400))
	}
	if slices.ContainsFunc(list, func(e examined) bool { return e.Level == levelUnsafe }) {
		return ui.ExitCode(ui.ExitFailed)
	}
	return nil
}

// doctor examines a running system as an operator.
type doctor struct {
	system.Operator
	acceptReplicated bool
}

func one(check, level, format string, args ...any) []examined {
	return []examined{{check, level, fmt.Sprintf(format, args...)}}
}

// stream checks that the shard's log is on this server; it returns nothing if so.
func (d doctor) stream(ctx context.Context) []examined {
	_, err := d.JS.Stream(ctx, d.Target.Stream)
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, jetstream.ErrStreamNotFound):
		return one("log", levelUnsafe, "stream %s cannot be asked about: %v", d.Target.Stream, err)
	}
	var others []string
	names := d.JS.StreamNames(ctx)
	for name := range names.Name() {
		if !strings.HasPrefix(name, "KV_") && name != streams.StreamQuarantine && name != streams.StreamCheckpoints {
			others = append(others, name)
		}
	}
	switch {
	case names.Err() != nil:
		return one("log", levelUnsafe, "stream %s is not on this server, and which are cannot be listed: %v", d.Target.Stream, names.Err())
	case len(others) == 0:
		if newest := d.newestShard(ctx); newest != "" {
			return one("log", levelUnsafe, "stream %s is not on this server, and there is evidence of it up to sequence %s: the NATS store was lost or is not mounted. Stop all services and put it back (docs/operating.md, The log was rewound), or name the right --server", d.Target.Stream, newest)
		}
		return one("log", levelUnsafe, "stream %s is not on this server, and no other log is: name the right --server; put the NATS store back if it was lost; only for a new log: countersign provision --streams", d.Target.Stream)
	}
	slices.Sort(others)
	return one("log", levelUnsafe, "stream %s is not on this server; it has %s: name it with --stream, or name the right --server", d.Target.Stream, strings.Join(others, ", "))
}

// newestShard names the end of the newest evidence of the stream; "" if there is none, or none can be read.
func (d doctor) newestShard(ctx context.Context) string {
	dsn, err := d.Target.DSN()
	if err != nil {
		return ""
	}
	db, err := read.Open(ctx, dsn)
	if err != nil {
		return ""
	}
	defer func() { _ = db.Close() }()
	shards, err := db.Shards(ctx)
	shards = slices.DeleteFunc(shards, func(s string) bool { return !strings.HasPrefix(s, d.Target.Stream+"@") })
	if err != nil || len(shards) == 0 {
		return ""
	}
	newest := slices.Max(shards)
	position, _, err := db.Position(ctx, newest)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%d (shard %s)", position, newest)
}

// settings checks that streams and buckets are as they were provisioned.
func (d doctor) settings(ctx context.Context) []examined {
	const check = "settings"
	list, err := streams.Differences(ctx, d.JS, streams.Shard{Name: d.Target.Stream, Space: subject.Space{Prefix: d.Target.Prefix}})
	switch {
	case err != nil:
		return one(check, levelUnsafe, "cannot be read: %v", err)
	case len(list) > 0:
		var text []string
		for _, diff := range list {
			text = append(text, diff.String())
		}
		return one(check, levelUnsafe, "%s: run countersign provision --streams, which creates what is missing and names the rest", strings.Join(text, "; "))
	}
	return one(check, levelOK, "every stream and bucket has the settings that it was provisioned with")
}

// log checks the stream settings that everything else depends on.
func (d doctor) log(ctx context.Context) []examined {
	s, err := d.JS.Stream(ctx, d.Target.Stream)
	if err != nil {
		return one("log", levelUnsafe, "stream %s: %v (create it with: countersign provision --streams)", d.Target.Stream, err)
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
		return one("log", levelUnsafe, "stream %s: %v", d.Target.Stream, wrong)
	}
	return one("log", levelOK, "stream %s: %d messages, last sequence %d, never discards or purges%s", d.Target.Stream, state.Msgs, state.LastSeq, erased)
}

func (d doctor) admitter(ctx context.Context) []examined {
	return d.answers(ctx, "admitter", "every runtime must treat that as deny")
}

func (d doctor) ingest(ctx context.Context) []examined {
	return d.answers(ctx, "ingest", "no admitter takes events in, and publishers are told so")
}

func (d doctor) correlator(ctx context.Context) []examined {
	return d.answers(ctx, "correlator", "nothing is found until one is; the log keeps everything")
}

func (d doctor) auditor(ctx context.Context) []examined {
	return d.answers(ctx, "auditor", "no evidence is made until one is; the log keeps everything")
}

// answers checks that a service responds.
func (d doctor) answers(ctx context.Context, service, otherwise string) []examined {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	m, err := d.Conn.RequestWithContext(ctx, "$SRV.PING."+service, nil)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return one(service, levelUnsafe, "none is listening: %s", otherwise)
	case err != nil:
		return one(service, levelUnsafe, "does not answer: %v", err)
	}
	var p micro.Ping
	if err := json.Unmarshal(m.Data, &p); err != nil {
		return one(service, levelWarn, "answers, but not as one of Countersign's services")
	}
	if tenants := p.Metadata[events.ModeObserve]; tenants != "" {
		return one(service, levelWarn, "answers, in mode observe: what policies refuse is recorded and NOT refused, for %s", tenants)
	}
	return one(service, levelOK, "answers")
}

func (d doctor) policies(ctx context.Context) []examined {
	b, err := policycmd.OpenPoliciesAt(ctx, d.Target)
	if err != nil {
		return one("policies", levelUnsafe, "%v", err)
	}
	defer b.Conn.Close()
	held, err := b.InForce(ctx)
	if err != nil {
		return one("policies", levelUnsafe, "%v", err)
	}
	files, err := policycmd.PolicyFiles(held)
	switch {
	case err != nil:
		return one("policies", levelUnsafe, "every request is denied: %v (push a good set: countersign policy push DIR)", err)
	case len(files) == 0:
		return one("policies", levelWarn, "none in force: every request is denied (countersign policy push DIR)")
	case len(held.Mixed()) > 0:
		return one("policies", levelWarn, "%d files in force, some of them put one by one and not by a push: no push signs for the whole (countersign policy push DIR)", len(files))
	}
	return one("policies", levelOK, "%d files in force, revision %d", len(files), held.Revision)
}

// clock compares clocks: receipts expire by the clocks of their verifiers.
func (d doctor) clock(ctx context.Context) []examined {
	m, err := streams.LastBySubject(ctx, d.JS, d.Target.Stream, subject.Space{Prefix: d.Target.Prefix}.All(subject.Decisions))
	if err != nil || m == nil {
		return one("clock", levelOK, "no decision yet to compare clocks by")
	}
	r, err := events.DecodeRecord[events.Decision](m.Body)
	if err != nil {
		return one("clock", levelWarn, "the last decision, at sequence %d, does not read as one", m.Seq)
	}
	return compareClocks(m.Time.Sub(r.DecidedAt.Time))
}

// compareClocks judges how long after its decision a record was stored, by the clocks of the broker
// and of the admitter. The broker stores it at once, or on a slow disk up to slowRecord later.
func compareClocks(skew time.Duration) []examined {
	apart := skew.Abs().Round(time.Millisecond)
	switch {
	case skew < -maxSkew || skew > maxSkew+slowRecord:
		return one("clock", levelUnsafe, "the admitter's and the NATS server's clocks differ by %s: set both by NTP", apart)
	case skew > maxSkew:
		return one("clock", levelWarn, "the last decision was stored %s after it was made: the disk of the NATS server is slow (countersign_admission_record_seconds), or the clocks differ (set both by NTP)", apart)
	}
	return one("clock", levelOK, "the admitter's and the NATS server's agree within %s", maxSkew)
}

// keys checks that the signing key can be verified by others.
func (d doctor) keys(ctx context.Context) []examined {
	m, err := streams.LastBySubject(ctx, d.JS, d.Target.Stream, subject.Space{Prefix: d.Target.Prefix}.Control(d.Target.Stream, events.ControlKey))
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

// schema checks that the tables match the migrations; it returns nothing if so.
func (d doctor) schema(ctx context.Context, db *read.Reader) []examined {
	list, _, err := evidencereader.Reader{DB: db}.SchemaFindings(ctx)
	switch {
	case err != nil:
		return one("evidence", levelUnsafe, "%v", err)
	case len(list) > 0:
		return one("evidence", levelUnsafe, "%d differences from what the migrations make; the first: %s (an auditor of this version migrates when it starts; otherwise the database was changed by hand)", len(list), list[0])
	}
	return nil
}

// evidence checks how far the auditor is behind, and that nothing signed is missing.
func (d doctor) evidence(ctx context.Context) []examined {
	dsn, err := d.Target.DSN()
	if err != nil {
		return one("evidence", levelWarn, "not looked at: %v", err)
	}
	db, err := read.Open(ctx, dsn)
	if err != nil {
		return one("evidence", levelUnsafe, "%v", err)
	}
	defer func() { _ = db.Close() }()
	if wrong := d.schema(ctx, db); wrong != nil {
		return wrong
	}
	published, err := d.published(ctx) // before the position: evidence is stored first
	if err != nil {
		return one("evidence", levelUnsafe, "reading the published checkpoint: %v", err)
	}
	state, err := streams.StreamState(ctx, d.JS, d.Target.Stream)
	if err != nil {
		return one("evidence", levelUnsafe, "reading the log's state: %v", err)
	}
	shard := streams.IncarnationName(d.Target.Stream, state.Created)
	position, _, err := db.Position(ctx, shard)
	if err != nil {
		return one("evidence", levelUnsafe, "%v", err)
	}
	if published.Shard != shard {
		published.Size = 0
	}
	return compareEvidence(shard, position, state.LastSeq, uint64(published.Size))
}

// published is the newest published checkpoint; of size 0 without one.
func (d doctor) published(ctx context.Context) (c tree.Checkpoint, err error) {
	m, err := streams.LastBySubject(ctx, d.JS, streams.StreamCheckpoints, subject.Space{Prefix: d.Target.Prefix}.Checkpoints(d.Target.Stream))
	if err != nil || m == nil {
		return c, err
	}
	return tree.PeekCheckpoint(string(m.Body))
}

// compareEvidence judges the position of the evidence, in a log up to last of which a checkpoint was published.
func compareEvidence(shard string, position, last, published uint64) []examined {
	switch {
	case position > last:
		return one("evidence", levelUnsafe, "the log ends at %d and the evidence at %d: acknowledged messages are gone", last, position)
	case position < published:
		return one("evidence", levelUnsafe, "a checkpoint of %d records was published, and the evidence ends at %d: rows were deleted, or the database is older (countersign verify)", published, position)
	case last-position > maxLag:
		return one("evidence", levelWarn, "the auditor is %d messages behind", last-position)
	}
	return one("evidence", levelOK, "shard %s: %d of %d messages audited", shard, position, last)
}
