package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"
	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/admission/receipt"
	"github.com/countersign-dev/countersign/client"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/internal/testkit"
	"github.com/countersign-dev/countersign/streams"
	"github.com/countersign-dev/countersign/streams/embedded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testTimeout bounds waits that a passing test never reaches.
const testTimeout = 30 * time.Second

// world is a NATS server with the accounts of a real one, and the keys. The
// admitter is whatever the test lets answer.
type world struct {
	srv       *embedded.Server
	conns     []*nats.Conn
	committer *streams.Committer
	receipts  signing.PrivateKey // the admitter's
	voucher   note.Signer        // the checkpoint key
	publicKey string             // its public half
	dir       string
}

func newWorld(shard streams.Shard) (*world, error) {
	dir, err := os.MkdirTemp("", "client-test-*")
	if err != nil {
		return nil, err
	}
	w := &world{dir: dir}
	user := func(name string, r streams.Role) streams.User {
		return streams.User{Name: name, Password: "pw-" + name, Role: r}
	}
	config, err := streams.ServerConfig{
		StoreDir: dir,
		Services: []streams.User{user("provisioner", streams.RoleProvisioner), user("admitter", streams.RoleAdmitter), user("auditor", streams.RoleAuditor)},
		Tenants:  []streams.Tenant{{Name: "acme", Users: []streams.User{user("rt1", streams.RoleRuntime), user("dana", streams.RoleReviewer)}}},
	}.Render()
	if err != nil {
		return nil, err
	}
	if w.srv, err = embedded.Start(context.Background(), config, zerolog.Nop()); err != nil {
		return nil, err
	}
	var errs [4]error
	var nc *nats.Conn
	nc, errs[0] = w.conn("provisioner")
	if errs[0] == nil {
		js, _ := jetstream.New(nc)
		_, errs[1] = streams.Provision(context.Background(), js, shard)
	}
	if errs[1] == nil {
		errs[1] = w.takeEvents()
	}
	w.receipts, errs[2] = signing.NewPrivateKey(bytes.Repeat([]byte{1}, 32))
	var private string
	private, w.publicKey, errs[3] = signing.NewCheckpointKey(bytes.NewReader(bytes.Repeat([]byte{2}, 32)))
	if err := errors.Join(errs[:]...); err != nil {
		w.close()
		return nil, err
	}
	w.voucher, err = signing.CheckpointSigner(private)
	return w, err
}

func (w *world) conn(user string) (*nats.Conn, error) {
	nc, err := streams.Connect(context.Background(), streams.ConnectOptions{URL: w.srv.ClientURL(), User: user, Password: "pw-" + user, Log: zerolog.Nop()})
	if err == nil {
		w.conns = append(w.conns, nc)
	}
	return nc, err
}

// takeEvents puts the events of publishers on the log, as the admitter's ingest
// does, but without its checks.
func (w *world) takeEvents() error {
	nc, err := w.conn("admitter")
	if err != nil {
		return err
	}
	if w.committer, err = streams.NewCommitter(nc, streams.CommitterOptions{Stream: streams.DefaultShard}); err != nil {
		return err
	}
	_, err = nc.Subscribe("gov.ingest.>", func(m *nats.Msg) {
		m.Header.Del("Nats-Request-Info")
		refuse := func(err error) {
			_ = m.Respond([]byte(fmt.Sprintf(`{"error":{"code":503,"err_code":10008,"description":%q}}`, err)))
		}
		err := w.committer.AppendAsync(streams.Msg{Subject: strings.Replace(m.Subject, ".ingest.", ".events.", 1), Header: m.Header, Body: m.Data},
			func(seq uint64, err error) {
				if err != nil {
					refuse(err)
					return
				}
				_ = m.Respond([]byte(fmt.Sprintf(`{"stream":%q,"seq":%d}`, streams.DefaultShard, seq)))
			})
		if err != nil {
			refuse(err)
		}
	})
	if err != nil {
		return err
	}
	return nc.Flush()
}

func (w *world) close() {
	if w.committer != nil {
		w.committer.Close()
	}
	for _, nc := range w.conns {
		nc.Close()
	}
	w.srv.Shutdown()
	_ = os.RemoveAll(w.dir)
}

// start is a world for one test.
func start(t *testing.T, shard streams.Shard) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a server: left out of -short")
	}
	w, err := newWorld(shard)
	ok(t, err)
	t.Cleanup(w.close)
	return w
}

var ok = testkit.OK

// client is a client of the runtime rt1.
func (w *world) client(t testing.TB, timeout time.Duration) *client.Client {
	t.Helper()
	nc, err := w.conn("rt1")
	ok(t, err)
	c, err := client.New(nc, client.Options{Tenant: "acme", Publisher: "rt1", PublicKey: w.publicKey + "\n", Timeout: timeout})
	ok(t, err)
	return c
}

// answer lets f answer every request.
func (w *world) answer(f func(*nats.Msg) *nats.Msg) error {
	nc, err := w.conn("admitter")
	if err != nil {
		return err
	}
	_, err = nc.Subscribe("gov.admit.>", func(m *nats.Msg) {
		if reply := f(m); reply != nil {
			_ = m.RespondMsg(reply)
		}
	})
	if err != nil {
		return err
	}
	return nc.Flush()
}

// keyRecord is the admitter's public key with the checkpoint key's word for it.
func (w *world) keyRecord() (events.KeyRecord, error) {
	k := events.KeyRecord{KeyID: w.receipts.ID, Use: "receipt", Algorithm: "EdDSA", PublicKey: signing.EncodePublic(w.receipts.Public()), CreatedAt: events.At(time.Now())}
	var err error
	k.Vouch, err = signing.SignKeyRecord(w.voucher, k)
	return k, err
}

// The call that tests ask about.
var (
	arguments = []byte(`{"to":"dana@acme.example","amount":10}`)
	theCall   = client.Call{
		Protocol: "agenthook", Body: []byte(`{"event_id":"e1"}`), Tool: "send_email", Session: "s1", ToolCallID: "c1", Arguments: arguments,
	}
)

// grant is an answer in the making.
type grant struct {
	claims receipt.Claims
	args   []byte // what the receipt binds
	signer signing.PrivateKey
	key    events.KeyRecord
	header http.Header
	body   string
}

// allow makes a good answer; change spoils it.
func (w *world) allow(change func(*grant)) *nats.Msg {
	now := time.Now()
	g := grant{
		claims: receipt.Claims{
			DecisionID: "d1", Tenant: "acme", Source: "rt1", Session: "s1", ToolCallID: "c1", Tool: "send_email", Verdict: events.Allow,
			IssuedAt: events.At(now), ExpiresAt: events.At(now.Add(time.Minute)), Nonce: nats.NewInbox(),
		},
		args: arguments, signer: w.receipts, body: `{"decision":"allow","reason":"fine"}`, header: http.Header{},
	}
	var err error
	if g.key, err = w.keyRecord(); err != nil {
		panic(err)
	}
	if change != nil {
		change(&g)
	}
	return g.message()
}

func (g *grant) message() *nats.Msg {
	m := nats.NewMsg("")
	m.Data = []byte(g.body)
	m.Header.Set(events.HeaderVerdict, string(g.claims.Verdict))
	m.Header.Set(events.HeaderDecisionID, "d1")
	var canonical []byte
	if g.args != nil {
		canonical, _ = strictjson.CanonicalBytes(g.args)
	}
	_ = g.claims.BindArguments(bytes.Repeat([]byte{7}, receipt.SaltSize), canonical)
	token, _, err := receipt.Issue(g.signer, g.claims)
	if err != nil {
		panic(err)
	}
	record, _ := events.Encode(g.key)
	m.Header.Set(events.HeaderReceipt, token)
	m.Header.Set(events.HeaderKey, string(record))
	for name, v := range g.header {
		m.Header.Del(name)
		if len(v) > 0 {
			m.Header.Set(name, v[0])
		}
	}
	return m
}

// other is the key of another issuer.
func other() signing.PrivateKey {
	k, err := signing.NewPrivateKey(bytes.Repeat([]byte{9}, 32))
	if err != nil {
		panic(err)
	}
	return k
}
