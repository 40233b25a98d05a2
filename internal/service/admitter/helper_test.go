package admitter

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"
	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/examples"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// file is one of the example files.
func file(tb testing.TB, name string) []byte {
	tb.Helper()
	b, err := examples.FS.ReadFile(name)
	servicetest.OK(tb, err)
	return b
}

// put changes one file of the policies in force.
func put(tb testing.TB, n *servicetest.NATS, name string, text []byte) (revision uint64) {
	tb.Helper()
	revision, err := bucket(tb, n, "operator", streams.BucketPolicies).Put(tb.Context(), name, text)
	servicetest.OK(tb, err)
	return revision
}

func bucket(tb testing.TB, n *servicetest.NATS, user, name string) jetstream.KeyValue {
	tb.Helper()
	kv, err := n.JS(user).KeyValue(tb.Context(), name)
	servicetest.OK(tb, err)
	return kv
}

// recordWithin is what a busy machine needs at most for a record.
const recordWithin = 30 * time.Second

func flags(n *servicetest.NATS) Flags {
	return Flags{Flags: n.Flags("admitter"), MaxInflight: 64, MemoryLimit: 2048, Timeout: recordWithin}
}

// serve runs an admitter and waits until it answers.
func serve(tb testing.TB, n *servicetest.NATS) *servicetest.Service {
	tb.Helper()
	f := flags(n)
	return servicetest.Run(tb, func(ctx context.Context, env daemon.Env) error { return Run(ctx, f, env) }).AwaitReady()
}

// ask sends one request as a runtime.
func ask(tb testing.TB, nc *nats.Conn, subj string, body []byte, header ...string) *nats.Msg {
	tb.Helper()
	msg := nats.NewMsg(subj)
	msg.Data = body
	for i := 0; i+1 < len(header); i += 2 {
		msg.Header.Set(header[i], header[i+1])
	}
	ctx, cancel := context.WithTimeout(tb.Context(), servicetest.Guard)
	defer cancel()
	reply, err := nc.RequestMsgWithContext(ctx, msg)
	servicetest.OK(tb, err)
	return reply
}

// native is the part of an AgentHook reply that tests look at.
type native struct {
	EventID  string `json:"event_id"`
	Decision string `json:"decision"`
	Reason   string `json:"reason"`
}

func readNative(tb testing.TB, body []byte) (r native) {
	tb.Helper()
	servicetest.OK(tb, json.Unmarshal(body, &r))
	return r
}

// of picks the messages of a log that have a subject of a class, by prefix.
func of(log []events.LogMessage, prefix string) (out []events.LogMessage) {
	for _, m := range log {
		if len(m.Subject) >= len(prefix) && m.Subject[:len(prefix)] == prefix {
			out = append(out, m)
		}
	}
	return out
}

// fake is a request that never saw a server. It keeps the answer.
type fake struct {
	subject, reply string
	header         micro.Headers
	data           []byte

	code, description string
	answered          int
	body              []byte
	answer            micro.Headers
}

func (f *fake) Respond(b []byte, opts ...micro.RespondOpt) error { return f.take(b, opts) }

func (f *fake) RespondJSON(any, ...micro.RespondOpt) error { panic("not used") }

func (f *fake) Error(code, description string, b []byte, opts ...micro.RespondOpt) error {
	f.code, f.description = code, description
	return f.take(b, opts)
}

func (f *fake) take(b []byte, opts []micro.RespondOpt) error {
	m := nats.NewMsg("")
	for _, o := range opts {
		o(m)
	}
	f.answered++
	f.body, f.answer = b, micro.Headers(m.Header)
	return nil
}

func (f *fake) Data() []byte           { return f.data }
func (f *fake) Headers() micro.Headers { return f.header }
func (f *fake) Subject() string        { return f.subject }
func (f *fake) Reply() string          { return f.reply }

// unstarted is a service with everything but a subscription.
func unstarted(tb testing.TB, n *servicetest.NATS) *service {
	tb.Helper()
	f := flags(n)
	s, err := newService(f, daemon.Env{Health: daemon.NewHealth()})
	servicetest.OK(tb, err)
	s.durability.Store("fsync")
	by, err := s.keys.readSigner()
	servicetest.OK(tb, err)
	s.keys.signer.Store(by)
	s.js = n.JS("admitter")
	s.committer, err = streams.NewCommitter(n.Conn("admitter"), streams.CommitterOptions{Stream: f.Stream, Sign: s.keys.signBatch})
	servicetest.OK(tb, err)
	tb.Cleanup(s.committer.Close)
	return s
}

// preToolUse is a request as the server hands it to the admitter.
func preToolUse(tb testing.TB) *fake {
	return &fake{
		subject: "gov.admit.acme.agenthook", reply: "_R_.abc.def", data: file(tb, "requests/pre-tool-use.json"),
		header: micro.Headers{"Nats-Request-Info": {`{"acc":"tenant-acme:rt1","user":"rt1"}`}},
	}
}
