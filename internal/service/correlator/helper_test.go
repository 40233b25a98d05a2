package correlator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"
	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/correlation"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/examples"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/keys"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/internal/service/sessionsecrets"
	"github.com/countersign-dev/countersign/streams"
)

// envChild makes the test program be the service: what is to be killed must be a
// process of its own.
const envChild = "COUNTERSIGN_TEST_CORRELATOR"

func TestMain(m *testing.M) {
	if os.Getenv(envChild) != "" {
		os.Exit(Main(os.Args[1:]))
	}
	goleak.VerifyTestMain(m)
}

func flags(n *servicetest.NATS, missingAfter time.Duration) Flags {
	return Flags{Flags: n.Flags("correlator"), MissingAfter: missingAfter, StateEvery: 200_000}
}

// start runs a correlator.
func start(tb testing.TB, n *servicetest.NATS, missingAfter time.Duration) *servicetest.Service {
	tb.Helper()
	return run(tb, flags(n, missingAfter))
}

// supervised is start with a supervisor.
func supervised(tb testing.TB, n *servicetest.NATS, missingAfter time.Duration) *servicetest.Service {
	tb.Helper()
	f := flags(n, missingAfter)
	return servicetest.Run(tb, servicetest.Supervise(func(ctx context.Context, env daemon.Env) error { return Run(ctx, f, env) }))
}

func run(tb testing.TB, f Flags) *servicetest.Service {
	tb.Helper()
	return servicetest.Run(tb, func(ctx context.Context, env daemon.Env) error { return Run(ctx, f, env) })
}

// newCore is a core as Run makes it.
func newCore(tb testing.TB, n *servicetest.NATS, missingAfter time.Duration) *correlation.Correlator {
	tb.Helper()
	return correlation.New(newOptions(tb, n, missingAfter))
}

// openSecrets opens the session keys over a connection of its own.
func openSecrets(tb testing.TB, n *servicetest.NATS) (digest.Master, *nats.Conn, *sessionsecrets.Store) {
	tb.Helper()
	master, err := keys.Master(n.Keys)
	servicetest.OK(tb, err)
	nc := n.Conn("correlator")
	js, err := jetstream.New(nc)
	servicetest.OK(tb, err)
	store, err := sessionsecrets.Open(tb.Context(), js, master)
	servicetest.OK(tb, err)
	return master, nc, store
}

func newOptions(tb testing.TB, n *servicetest.NATS, missingAfter time.Duration) correlation.Options {
	tb.Helper()
	master, _, store := openSecrets(tb, n)
	v, err := keys.CheckpointVerifier(n.Keys, "")
	servicetest.OK(tb, err)
	return correlation.Options{
		Shard: streams.DefaultShard, TenantKey: master.Tenant, RequireVerdict: true, MissingAfter: missingAfter,
		KeyVoucher: func(k events.KeyRecord) bool { return signing.CheckKeyRecord(note.VerifierList(v), k) },
		SessionSecret: func(tenant, session string) (*digest.Session, bool) {
			k, err := store.GetOrCreate(tb.Context(), sessionsecrets.SessionOfSubject(tenant, session))
			servicetest.OK(tb, err)
			return k.Digests, true
		},
	}
}

// alone is a worker that stands where the last cursor left off, active without a
// lease, for a test that does one thing after the other.
func alone(tb testing.TB, n *servicetest.NATS, missingAfter time.Duration, name string) *worker {
	tb.Helper()
	nc := n.Conn("correlator")
	js, err := jetstream.New(nc)
	servicetest.OK(tb, err)
	env := daemon.Env{Log: zerolog.Nop(), Health: daemon.NewHealth(), Ready: func() error { return nil }}
	w := newWorker(flags(n, missingAfter), env, nc, js, newCore(tb, n, missingAfter))
	w.writer, w.role = name, daemon.RoleActive
	servicetest.OK(tb, w.restoreCursor(tb.Context()))
	return w
}

// feedOne applies one message.
func (w *worker) feedOne(tb testing.TB, m events.LogMessage) {
	tb.Helper()
	in := w.core.NewDecoder().Decode(m)
	servicetest.OK(tb, w.applyMessage(&in))
}

// flush writes everything that waits.
func (w *worker) flush(ctx context.Context) error {
	for len(w.pending) > 0 {
		if err := w.handleResult(ctx, w.writeBatch(ctx, w.nextOutgoing())); err != nil {
			return err
		}
	}
	return nil
}

// session is a sample session under another name.
func session(tb testing.TB, name string) []streams.Msg {
	tb.Helper()
	text, err := examples.FS.ReadFile("sessions/agenthook-rogue.jsonl")
	servicetest.OK(tb, err)
	var out []streams.Msg
	for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		line = strings.ReplaceAll(line, "sess-rogue-1", name)
		line = strings.ReplaceAll(line, "9a3e5b70-1111", "9a3e5b70-"+name[len(name)-4:])
		typ := []string{"PreToolUse", "PostToolUse"}[i%2]
		out = append(out, streams.Msg{Subject: "gov.events.acme.rt1.agenthook." + name + "." + typ, Body: []byte(line)})
	}
	return out
}

// pre is an event that announces a call which never ends.
func pre(i int) streams.Msg {
	body := fmt.Sprintf(`{"schema_version":1,"event_id":"9a3e5b70-2222-4c22-8d33-%012d","event_type":"PreToolUse","timestamp":"2026-11-20T09:02:00Z",`+
		`"source":"a","session_id":"sess-open","evidence_phase":"pre_commit","tool_name":"read_file","tool_input":{"path":"/x"},`+
		`"metadata":{"tool_call_id":"call-%d"},"action":"read","resource_kind":"file","resource":"/x","resource_scope":"workspace","operation_risk":"read_only"}`, i, i)
	return streams.Msg{Subject: "gov.events.acme.rt1.agenthook.sess-open.PreToolUse", Body: []byte(body)}
}

// output is a record of the correlator as it stands in the log.
type output struct{ subject, id, typ, body string }

// outputs are the calls and findings in a log, in order.
func outputs(log []events.LogMessage) (out []output) {
	for _, m := range log {
		if strings.HasPrefix(m.Subject, "gov.calls.") || strings.HasPrefix(m.Subject, "gov.findings.") {
			out = append(out, output{m.Subject, m.HeaderValue("ce-id"), m.HeaderValue("ce-type"), string(m.Body)})
		}
	}
	return out
}

// undisturbed is what one correlator that never stopped puts out for a log.
func undisturbed(core *correlation.Correlator, log []events.LogMessage) (out []output, most int) {
	for _, m := range log {
		now := core.Apply(m)
		most = max(most, len(now))
		for _, o := range now {
			out = append(out, output{o.Subject, o.ID, o.Type, string(o.Body)})
		}
	}
	return out, most
}

// compare demands that a log holds exactly what an undisturbed run puts out.
func compare(t *testing.T, n *servicetest.NATS, missingAfter time.Duration) (most int) {
	t.Helper()
	log := n.Log()
	want, most := undisturbed(newCore(t, n, missingAfter), log)
	got := outputs(log)
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Fatalf("output %d of %d is\n%+v\nwant\n%+v", i, len(want), got[i], want[i])
		}
	}
	if len(got) != len(want) || len(want) == 0 {
		t.Fatalf("%d outputs in the log, want %d", len(got), len(want))
	}
	checkCursors(t, log)
	return most
}

// checkCursors demands that the cursors account for every output before them.
func checkCursors(t *testing.T, log []events.LogMessage) {
	t.Helper()
	since := 0
	for _, m := range log {
		if m.Subject != "gov.control.GOV.cursor" {
			since += len(outputs([]events.LogMessage{m}))
			continue
		}
		c, err := events.DecodeRecord[events.Cursor](m.Body)
		servicetest.OK(t, err)
		if c.Outputs != since || c.Consumed >= m.Seq {
			t.Errorf("cursor at %d: %+v after %d outputs", m.Seq, c, since)
		}
		since = 0
	}
	if since != 0 {
		t.Errorf("%d outputs without a cursor", since)
	}
}

var errCut = errors.New("cut")

// cut drives a worker over the log until it has applied the message with a
// sequence, flushing after every so many messages, and lets it die there: what it
// has not flushed is lost with it.
func cut(tb testing.TB, w *worker, at uint64, every int) {
	tb.Helper()
	seen := 0
	err := streams.ReadLog(tb.Context(), w.js, streams.ReadOptions{Stream: streams.DefaultShard, MaxBatch: 1}, func(batch []events.LogMessage) error {
		for _, m := range batch {
			w.feedOne(tb, m)
			if seen++; seen%every == 0 {
				if err := w.flush(tb.Context()); err != nil {
					return err
				}
			}
			if m.Seq == at {
				return errCut
			}
		}
		return nil
	})
	if !errors.Is(err, errCut) {
		tb.Fatal(err)
	}
}
