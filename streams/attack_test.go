package streams

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/events"
)

// guard bounds waits that a passing test never reaches.
const guard = 30 * time.Second

// pubDenied demands that the server refuses a publish by permission.
func pubDenied(t *testing.T, nc *nats.Conn, subj string) {
	t.Helper()
	errs := make(chan error, 16)
	nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { errs <- err })
	defer nc.SetErrorHandler(nil)
	ok(t, nc.Publish(subj, []byte("{}")))
	ok(t, nc.Flush())
	select {
	case err := <-errs:
		if !errors.Is(err, nats.ErrPermissionViolation) {
			t.Errorf("publish on %s: %v, want a permission violation", subj, err)
		}
	case <-time.After(guard):
		t.Errorf("publish on %s was not refused", subj)
	}
}

func subDenied(t *testing.T, nc *nats.Conn, subj string) {
	t.Helper()
	sub, err := nc.SubscribeSync(subj)
	ok(t, err)
	ok(t, nc.Flush())
	if _, err := sub.NextMsg(guard); !errors.Is(err, nats.ErrPermissionViolation) {
		t.Errorf("subscribe to %s: %v, want a permission violation", subj, err)
	}
}

// readAll reads the log as far as it goes now. That nothing comes for a while is not its end: a
// server that has just started may pause.
func (f *fixture) readAll() (out []events.LogMessage) {
	f.tb.Helper()
	stop, all := errors.New("caught up"), f.state().Messages
	idle := func() error {
		if uint64(len(out)) < all {
			return nil
		}
		return stop
	}
	err := ReadLog(ctx(f.tb), f.js(f.conn("auditor")), ReadOptions{Stream: DefaultShard, Idle: idle},
		func(b []events.LogMessage) error { out = append(out, b...); return nil })
	if !errors.Is(err, stop) {
		f.tb.Fatal(err)
	}
	return out
}

// settle makes sure that everything a connection sent has reached the log.
func (f *fixture) settle(user string) {
	f.tb.Helper()
	ok(f.tb, StoreAll(ctx(f.tb), f.conn("admitter"), []Msg{event(user, -1)}))
}

func (f *fixture) onlyEvents() {
	f.tb.Helper()
	for _, m := range f.readAll() {
		if !strings.HasPrefix(m.Subject, "gov.events.") {
			f.tb.Errorf("the log holds %s %q at %d", m.Subject, m.Body, m.Seq)
		}
	}
}

var weapons = []string{
	"gov.decisions.acme.allow.s1", "gov.approvals.acme.approved.w1", "gov.control.GOV.cursor", "gov.events.acme.runtime2.aaep.s1.x",
	"$KV.keys.k1", "$KV.policies.p1", "$JS.API.STREAM.PURGE.GOV", "$JS.API.STREAM.DELETE.GOV", "_INBOX_admitter.x",
}

// A publish acknowledgement aimed at the log by its reply subject: works where
// permissions in one account are all there is, and not across accounts.
func TestAttackPubAckReplySubject(t *testing.T) {
	flat := flatServer(t, `{ user: runtime, password: pw-runtime, permissions: { publish: { allow: ["gov.events.acme.runtime.>"] }, subscribe: "_INBOX_runtime.>" } }`)
	attack := func(f *fixture, target string) {
		nc := f.conn("runtime")
		m := event("runtime", 1)
		ok(t, nc.PublishMsg(&nats.Msg{Subject: m.Subject, Reply: target, Data: m.Body}))
		ok(t, nc.Flush())
	}
	attack(flat, weapons[0])
	ok(t, PublishEvents(ctx(t), flat.conn("runtime"), []Msg{event("runtime", 2)}))
	forged, err := LastBySubject(ctx(t), flat.js(flat.conn("provisioner")), DefaultShard, weapons[0])
	ok(t, err)
	if forged == nil {
		t.Fatal("the attack does not even work on a flat server: this test shows nothing")
	}

	f := start(t)
	kv, err := f.js(f.conn("admitter")).KeyValue(ctx(t), BucketKeys)
	ok(t, err)
	for _, w := range weapons {
		attack(f, w)
	}
	f.settle("runtime")
	f.onlyEvents()
	if _, err := kv.Get(ctx(t), "k1"); !errors.Is(err, jetstream.ErrKeyNotFound) {
		t.Errorf("KV key: %v", err)
	}
	if n := f.state().Messages; n != 1 { // no runtime reaches the log by itself
		t.Errorf("%d messages", n)
	}
}

// The admitter's own reply aimed at the log.
func TestAttackAdmitterReplyIntoLog(t *testing.T) {
	f := start(t)
	adm := f.conn("admitter")
	replied := make(chan string, len(weapons))
	_, err := adm.Subscribe("gov.admit.>", func(m *nats.Msg) {
		ok(t, m.Respond([]byte("verdict")))
		replied <- m.Reply
	})
	ok(t, err)
	ok(t, adm.Flush())
	rt := f.conn("runtime")
	for _, w := range weapons {
		ok(t, rt.PublishRequest("gov.admit.acme.aaep", w, nil))
	}
	for range weapons {
		select {
		case r := <-replied:
			if !strings.HasPrefix(r, "_R_.") {
				t.Errorf("the admitter saw reply subject %s", r)
			}
		case <-time.After(guard):
			t.Fatal("request did not arrive")
		}
	}
	ok(t, adm.Flush())
	f.settle("runtime")
	f.onlyEvents()
	if n := f.state().Messages; n != 1 {
		t.Errorf("%d messages in the log", n)
	}
}

// An answer aimed at a sibling: a requester chooses the reply subject inside its
// own account, and no other user is in there. The target is what the victim does
// listen on: an output, or its inbox.
func TestAttackReplyToSibling(t *testing.T) {
	f := start(t)
	adm := f.conn("admitter")
	replied := make(chan struct{}, 64)
	for _, s := range []string{"gov.admit.>", "gov.resolve.>"} {
		_, err := adm.Subscribe(s, func(m *nats.Msg) {
			ok(t, m.Respond([]byte("forged")))
			replied <- struct{}{}
		})
		ok(t, err)
	}
	cor := f.conn("correlator")
	_, err := cor.Subscribe("gov.follow.>", func(m *nats.Msg) {
		ok(t, m.Respond([]byte("forged")))
		replied <- struct{}{}
	})
	ok(t, err)
	ok(t, adm.Flush())
	ok(t, cor.Flush())
	victims := map[string]*nats.Conn{}
	heard := map[string]chan *nats.Msg{}
	for user, subjects := range map[string][]string{
		"subscriber": {"gov.findings.acme.>", "_INBOX_subscriber.>"}, "reviewer": {"gov.approvals.acme.>", "_INBOX_reviewer.>"},
		"runtime2": {"_INBOX_runtime2.>"}, "mallory-sub": {"gov.findings.globex.>"},
	} {
		victims[user], heard[user] = f.conn(user), make(chan *nats.Msg, 64)
		for _, subj := range subjects {
			_, err := victims[user].ChanSubscribe(subj, heard[user])
			ok(t, err)
		}
		ok(t, victims[user].Flush())
	}
	targets := []string{"gov.findings.acme.critical.s1", "gov.approvals.acme.approved.w1", "gov.findings.globex.critical.s1",
		"_INBOX_subscriber.x.y", "_INBOX_reviewer.x.y", "_INBOX_runtime2.x.y"}
	for _, attack := range []struct{ user, via string }{
		{"runtime", "gov.admit.acme.aaep"}, {"subscriber", "gov.follow.acme"}, {"reviewer", "gov.resolve.acme"}, {"mallory", "gov.admit.globex.aaep"},
	} {
		nc := f.conn(attack.user)
		for _, target := range targets {
			ok(t, nc.PublishRequest(attack.via, target, nil))
			select {
			case <-replied:
			case <-time.After(guard):
				t.Fatalf("%s: the request on %s did not arrive", attack.user, attack.via)
			}
		}
		// An answer that was asked for arrives, so the others had their time.
		own, err := nc.RequestWithContext(ctx(t), attack.via, nil)
		ok(t, err)
		if string(own.Data) != "forged" {
			t.Errorf("%s: %q", attack.user, own.Data)
		}
		<-replied
		for user, messages := range heard {
			ok(t, victims[user].Flush())
			for len(messages) > 0 {
				if m := <-messages; user != attack.user { // its own connections share its account
					t.Errorf("%s: %s was delivered to %s on %s", attack.user, m.Subject, user, m.Sub.Subject)
				}
			}
		}
	}
}

// An operator is apart too: neither a PubAck of a KV write nor the answer of
// an API call or a micro service can be aimed at the log.
func TestAttackOperatorReplySubject(t *testing.T) {
	f := start(t)
	op := f.conn("operator")
	for _, w := range weapons[:5] {
		for _, via := range []string{"$KV.policies.p", "$JS.API.STREAM.INFO.GOV", "$JS.API.INFO", durabilitySubject} {
			ok(t, op.PublishRequest(via, w, nil))
		}
	}
	ok(t, op.Flush())
	if _, _, err := Durability(ctx(t), op, DefaultShard); err != nil { // everything before it is done
		t.Error(err)
	}
	f.settle("runtime")
	f.onlyEvents()
}

func TestAttackForbiddenSubjects(t *testing.T) {
	f := start(t)
	tests := []struct {
		user     string
		pub, sub []string
	}{
		{"runtime",
			[]string{"gov.events.acme.runtime2.aaep.s1.x", "gov.events.globex.runtime.aaep.s1.x", "gov.events.acme.runtime.aaep.s1.request",
				"gov.admit.globex.aaep", "gov.decisions.acme.allow.s1", "gov.calls.acme.open.s1", "gov.findings.acme.low.s1",
				"gov.approvals.acme.approved.w", "gov.control.GOV.cursor", "gov.resolve.acme", "gov.follow.acme", "gov.quarantine.acme", "gov.checkpoints.GOV",
				"$KV.keys.k", "$KV.policies.p", "$JS.API.INFO", "$JS.API.STREAM.INFO.GOV", "$JS.API.STREAM.PURGE.GOV", "$JS.API.STREAM.DELETE.GOV", "$JS.API.STREAM.MSG.DELETE.GOV", "$JS.API.CONSUMER.CREATE.GOV",
				"$JS.API.STREAM.MSG.GET.GOV", "$JS.API.STREAM.MSG.GET.KV_policies", "$JS.API.DIRECT.GET.KV_policies.$KV.policies.p", "$SYS.REQ.SERVER.PING", durabilitySubject, "anything",
				"_INBOX_runtime2.x", "_R_.x", "$SRV.PING", "gov.ingest.acme.runtime.aaep.s1.x"},
			[]string{"gov.admit.>", "gov.ingest.>", "gov.admit.acme.>", ">", "*", "gov.>", "gov.events.>", "gov.events.acme.>", "gov.decisions.>", "gov.decisions.acme.>", "gov.control.>",
				"_INBOX.>", "_INBOX_runtime2.>", "_INBOX_admitter.>", "$KV.>", "$JS.API.>", "$SRV.>", "_R_.>"}},
		{"mallory",
			[]string{"gov.events.acme.runtime.aaep.s1.x", "gov.events.acme.mallory.aaep.s1.x", "gov.admit.acme.aaep"},
			[]string{"gov.decisions.acme.>", "gov.events.acme.>"}},
		{"mallory-sub", []string{"gov.events.globex.mallory.aaep.s1.x", "gov.decisions.globex.allow.s1"}, []string{"gov.decisions.acme.>", "gov.decisions.>", "gov.decisions.*.>"}},
		{"subscriber", []string{"gov.events.acme.subscriber.aaep.s1.x", "gov.admit.acme.aaep", "anything", "gov.follow.globex", "gov.follow.acme.x"}, []string{"gov.follow.acme", "gov.events.acme.>", "gov.admit.acme.*"}},
		{"reviewer", []string{"gov.resolve.globex", "gov.admit.acme.aaep", "gov.approvals.acme.approved.w"}, []string{"gov.resolve.acme"}},
		{"gateway", // taken over: no records, no approvals, no other tenant, no request copies, no tokens of its own, no list of other tenants' users
			[]string{"gov.events.globex.mallory.aaep.s1.x", "gov.admit.globex.aaep", "gov.follow.globex", "gov.events.acme.runtime.aaep.s1.request",
				"gov.ingest.acme.runtime.aaep.s1.x", "gov.decisions.acme.allow.s1", "gov.calls.acme.open.s1", "gov.findings.acme.low.s1", "gov.approvals.acme.approved.w",
				"gov.control.GOV.cursor", "gov.resolve.acme", "gov.quarantine.acme", "gov.checkpoints.GOV", "$KV.tokens.acme.x", "$KV.publishers.acme.registration.x",
				"$JS.API.STREAM.MSG.GET.GOV", "$KV.keys.x", "$JS.API.STREAM.MSG.DELETE.KV_keys", "$JS.API.STREAM.MSG.GET.KV_session_keys", "$JS.API.CONSUMER.CREATE.KV_tokens",
				"$JS.API.STREAM.MSG.DELETE.KV_tokens", "$JS.API.STREAM.PURGE.KV_tokens", "$JS.API.STREAM.INFO.KV_tokens", "$JS.API.STREAM.MSG.GET.KV_tokens",
				"$JS.API.DIRECT.GET.KV_tokens.$KV.tokens.acme.x", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.LIST", "gov.tokens.globex", "_INBOX_runtime.x", "_R_.x", "$SRV.PING"},
			[]string{"gov.admit.>", "gov.ingest.>", "gov.follow.>", "gov.events.>", "gov.decisions.acme.>", "gov.resolve.acme", "gov.tokens.>", "gov.tokens.acme", "_INBOX_runtime.>", ">", "_R_.>"}},
		{"operator",
			[]string{"gov.admit.acme.aaep", "gov.decisions.acme.allow.s1", "gov.control.GOV.policy", "gov.events.acme.runtime.aaep.s1.x", "gov.resolve.acme",
				"$JS.API.STREAM.PURGE.GOV", "$JS.API.STREAM.DELETE.GOV", "$JS.API.STREAM.MSG.DELETE.GOV", "$JS.API.STREAM.UPDATE.GOV",
				"$JS.API.STREAM.CREATE.X", "$JS.API.CONSUMER.CREATE.GOV", "$KV.keys.k", "$KV.approvals.w", "$KV.session_keys.s", "$KV.mandates.acme.m.revoked_by_principal.h",
				"$JS.API.STREAM.MSG.GET.KV_session_keys", "$JS.API.STREAM.MSG.GET." + StreamQuarantine},
			[]string{"gov.admit.>", "gov.>", "$KV.>", "_INBOX_admitter.>", ">"}},
		{"admitter",
			[]string{"gov.admit.acme.aaep", "gov.resolve.acme", "gov.ingest.acme.runtime.aaep.s1.tool", "gov.findings.acme.critical.s1", "gov.calls.acme.open.s1", "gov.checkpoints.GOV",
				"$KV.policies.p", "$KV.mandates.acme.m.revoked.h", "$JS.API.STREAM.MSG.DELETE.KV_session_keys", "$JS.API.STREAM.PURGE.KV_session_keys", "$JS.API.STREAM.PURGE.GOV", "$JS.API.STREAM.DELETE.GOV", "$JS.API.STREAM.CREATE.X", "$JS.API.STREAM.UPDATE.GOV"},
			[]string{"gov.decisions.>", "_INBOX_auditor.>", "gov.events.>"}},
		{"correlator",
			[]string{"gov.decisions.acme.allow.s1", "gov.events.acme.runtime.aaep.s1.request", "gov.admit.acme.aaep", "gov.checkpoints.GOV", "$KV.keys.k", "$JS.API.STREAM.MSG.DELETE.KV_session_keys", "$JS.API.STREAM.PURGE.GOV"},
			[]string{"gov.admit.>", "gov.resolve.>", "gov.admit.acme.aaep", "_INBOX_admitter.>"}},
		{"auditor",
			[]string{"gov.decisions.acme.allow.s1", "gov.calls.acme.open.s1", "gov.admit.acme.aaep", "$KV.policies.p", "$JS.API.STREAM.PURGE.GOV"},
			[]string{"gov.admit.>", "gov.resolve.>", "gov.>"}},
		{"provisioner", []string{"gov.admit.acme.aaep", "gov.decisions.acme.allow.s1", "$JS.API.STREAM.UPDATE.GOV", "$JS.API.STREAM.DELETE.GOV", "$KV.keys.k",
			"$JS.API.STREAM.UPDATE." + StreamCheckpoints, "$JS.API.STREAM.UPDATE." + StreamQuarantine, "$JS.API.STREAM.UPDATE.KV_keys", "$JS.API.STREAM.DELETE.KV_keys",
			"$JS.API.STREAM.PURGE.KV_keys", "$JS.API.STREAM.MSG.DELETE.KV_keys", "$JS.API.STREAM.MSG.GET.KV_keys", "$JS.API.CONSUMER.CREATE.KV_keys"},
			[]string{"gov.admit.>", ">"}},
	}
	for _, tt := range tests {
		t.Run(tt.user, func(t *testing.T) {
			nc := f.conn(tt.user)
			for _, s := range tt.pub {
				pubDenied(t, nc, s)
			}
			for _, s := range tt.sub {
				subDenied(t, nc, s)
			}
		})
	}
	if n := f.state().Messages; n != 0 {
		t.Errorf("%d messages got into the log", n)
	}
}

// Who has the admitter's password and claims a Nats-Msg-Id first makes another service's message
// vanish with a success acknowledgement, if that service relies on ids. Ours never do. No tenant
// reaches JetStream.
func TestAttackMsgIDClaimedFirst(t *testing.T) {
	f := start(t, func(c *ServerConfig) { c.SyncInterval = "1m" }) // the disk must not outlast the server's memory of ids
	service := f.conn("admitter")
	claim := func() *nats.Msg {
		m := event("runtime", 1)
		return &nats.Msg{Subject: m.Subject, Header: nats.Header{"Nats-Msg-Id": {"decision-1"}}, Data: m.Body}
	}
	var again *nats.Msg
	eventually(t, func() bool { // a busy machine may do so, too
		_, err := service.RequestMsg(claim(), guard)
		ok(t, err)
		again, err = service.RequestMsg(claim(), guard)
		ok(t, err)
		return bytes.Contains(again.Data, []byte(`"duplicate"`))
	})
	if _, err := readAck(again, ""); !errors.Is(err, ErrAmbiguous) {
		t.Errorf("an acknowledgement marked duplicate: %v, want ErrDoubt", err)
	}
	c, err := NewCommitter(f.conn("admitter"), CommitterOptions{Stream: DefaultShard})
	ok(t, err)
	defer c.Close()
	d := decision(1)
	d.Header = map[string][]string{"Nats-Msg-Id": {"decision-1"}}
	if _, err := c.Append(ctx(t), d); !errors.Is(err, ErrReservedHeader) || !errors.Is(err, ErrRefused) {
		t.Errorf("%v, want ErrReservedHeader", err)
	}
	seqs, err := c.Append(ctx(t), decision(1))
	ok(t, err)
	got, err := MessageAt(ctx(t), f.js(f.conn("auditor")), DefaultShard, seqs[0])
	ok(t, err)
	if got == nil || got.Subject != decision(1).Subject {
		t.Errorf("%+v", got)
	}
}

// Headers that steer the server, with the admitter's password: each is refused.
func TestAttackSteeringHeaders(t *testing.T) {
	f := start(t)
	c, err := NewCommitter(f.conn("admitter"), CommitterOptions{Stream: DefaultShard})
	ok(t, err)
	defer c.Close()
	_, err = c.Append(ctx(t), decision(1), decision(2))
	ok(t, err)
	service := f.conn("admitter")
	for _, h := range []nats.Header{
		{"Nats-Rollup": {"all"}}, {"Nats-Rollup": {"sub"}}, {"Nats-TTL": {"1s"}}, {"Nats-Incr": {"1"}},
		{"Nats-Expected-Last-Sequence": {"0"}}, {"Nats-Expected-Last-Subject-Sequence": {"99"}}, {"Nats-Expected-Stream": {"OTHER"}},
		{"Nats-Expected-Last-Msg-Id": {"x"}}, {"Nats-Schedule": {"@at 2030-01-01T00:00:00Z"}, "Nats-Schedule-Target": {"gov.decisions.acme.allow.s1"}},
		{"Nats-Batch-Id": {"b"}, "Nats-Batch-Sequence": {"7"}, "Nats-Batch-Commit": {"1"}},
	} {
		reply, err := service.RequestMsg(&nats.Msg{Subject: event("runtime", 1).Subject, Header: h, Data: []byte("{}")}, guard)
		ok(t, err)
		if _, err := readAck(reply, ""); !errors.Is(err, ErrRefused) {
			t.Errorf("%v: %v, %s", h, err, reply.Data)
		}
	}
	seqs, err := c.Append(ctx(t), decision(3))
	ok(t, err)
	if st := f.state(); st.FirstSeq != 1 || st.Messages != 3 || seqs[0] != 3 {
		t.Errorf("%+v, %v", st, seqs)
	}
}

// Who has the admitter's password and holds all fifty atomic batches slows group commit down to
// single publishes; that stops nothing and loses nothing. The server drops a batch that
// is held for ten seconds, so no acknowledgement waits for the disk here.
func TestAttackFiftyBatches(t *testing.T) {
	f := start(t, func(c *ServerConfig) { c.SyncInterval = "1m" })
	service := f.conn("admitter")
	for i := range 50 {
		m := event("runtime", i)
		reply, err := service.RequestMsg(&nats.Msg{Subject: m.Subject, Data: m.Body,
			Header: nats.Header{headerBatchID: {fmt.Sprint("hold-", i)}, headerBatchSeq: {"1"}}}, guard)
		ok(t, err)
		if len(reply.Data) > 0 {
			t.Fatalf("batch %d: %s", i, reply.Data)
		}
	}
	c, err := NewCommitter(f.conn("admitter"), CommitterOptions{Stream: DefaultShard})
	ok(t, err)
	defer c.Close()
	msgs := make([]Msg, 40)
	for i := range msgs {
		msgs[i] = decision(i)
	}
	for round := range 3 {
		seqs, err := c.Append(ctx(t), msgs...)
		ok(t, err)
		if len(seqs) != 40 || seqs[0] != uint64(round*40+1) || seqs[39] != uint64(round*40+40) {
			t.Fatal(seqs)
		}
	}
	if c.backoff == 0 {
		t.Error("the batch was not refused: this test shows nothing")
	}
	cor := f.conn("correlator")
	_, err = AppendFenced(ctx(t), cor, DefaultShard, []Msg{
		{Subject: "gov.calls.acme.open.s1"}, {Subject: "gov.control.GOV.cursor"}}, Fence{Subject: "gov.control.GOV.cursor"})
	if !errors.Is(err, ErrBatchBusy) || !errors.Is(err, ErrRefused) {
		t.Errorf("fenced: %v, want ErrBatchBusy", err)
	}
	ok(t, StoreAll(ctx(t), f.conn("admitter"), events64("runtime2", 30)))
	if st := f.state(); st.Messages != 150 {
		t.Errorf("%+v", st)
	}
}

// Whoever knows the id of another's batch breaks it: ours are random, and the
// ids of earlier batches, which subscribers see, say nothing about the next.
func TestAttackBatchID(t *testing.T) {
	f := start(t)
	adm, service := f.conn("admitter"), f.conn("admitter")
	known := nats.Header{headerBatchID: {"known"}, headerBatchSeq: {"1"}}
	_, err := service.RequestMsg(&nats.Msg{Subject: event("runtime", 1).Subject, Header: known}, guard)
	ok(t, err)
	reply, err := adm.RequestMsg(&nats.Msg{Subject: decision(1).Subject, Header: mergeHeaders(known, nats.Header{headerBatchCommit: {"1"}})}, guard)
	ok(t, err)
	if _, err := readAck(reply, ""); !errors.Is(err, ErrRefused) {
		t.Fatalf("breaking into a batch of known id does not work: this test shows nothing (%s)", reply.Data)
	}
	c := newCommitter(t, f, CommitterOptions{BatchAbove: 1})
	ids := map[string]bool{}
	for i := range 3 {
		_, err := c.Append(ctx(t), decision(i), decision(i))
		ok(t, err)
	}
	for _, m := range f.readAll() {
		ids[m.HeaderValue(headerBatchID)] = true
	}
	if len(ids) != 3 {
		t.Errorf("3 batches with %d ids", len(ids))
	}
	for id := range ids {
		if len(id) != 32 {
			t.Errorf("batch id %q is not 128 random bits", id)
		}
	}
}

// Only the server states the sender of a request.
func TestAttackForgedRequestInfo(t *testing.T) {
	f := start(t)
	adm := f.conn("admitter")
	requests := make(chan *nats.Msg, 1)
	_, err := adm.ChanSubscribe("gov.admit.>", requests)
	ok(t, err)
	ok(t, adm.Flush())
	rt := f.conn("runtime")
	lie := `{"acc":"tenant-globex:mallory","user":"mallory","svc":"x"}`
	for _, raw := range []string{
		"", "Nats-Request-Info: " + lie + "\r\n", "Nats-Request-Info: " + lie + "\r\nNats-Request-Info: " + lie + "\r\n",
		"nats-request-info: " + lie + "\r\n", "Nats-Request-Info:" + lie + "\r\n", "Nats-Request-Info : " + lie + "\r\n",
		"A: b\r\n Nats-Request-Info: " + lie + "\r\n", "X-Nats-Request-Info: " + lie + "\r\n", "NATS-REQUEST-INFO: " + lie + "\r\n",
		"X-Nats-Request-Info: x\r\nNats-Request-Info: " + lie + "\r\n", "Nats-Request-Info-X: x\r\nNats-Request-Info: " + lie + "\r\n",
		"Nats-Request-Info: " + lie + "\r\nX-Nats-Request-Info: x\r\nNats-Request-Info: " + lie + "\r\n",
	} {
		t.Run(fmt.Sprintf("%q", raw), func(t *testing.T) {
			rawPublish(t, rt, "gov.admit.acme.aaep", "NATS/1.0\r\n"+raw+"\r\n")
			var m *nats.Msg
			select {
			case m = <-requests:
			case <-time.After(guard):
				t.Fatal("no request")
			}
			id, err := RequestIdentity(m.Header)
			if err == nil && id != (Identity{"tenant-acme:runtime", "runtime"}) {
				t.Errorf("taken in: %+v by %v", id, m.Header)
			}
			if raw == "" && err != nil {
				t.Error(err)
			}
			t.Log(id, err)
		})
	}
}

// rawPublish sends a header block byte for byte, as no client library would, and waits
// until the server has read it.
func rawPublish(t *testing.T, nc *nats.Conn, subj, header string) {
	t.Helper()
	raw := dialRaw(t, nc.ConnectedAddr(), nc.Opts.User, nc.Opts.Password)
	_, err := fmt.Fprintf(raw, "HPUB %s %d %d\r\n%s\r\nPING\r\n", subj, len(header), len(header), header)
	ok(t, err)
	for r, line := bufio.NewReader(raw), ""; line != "PONG\r\n"; {
		line, err = r.ReadString('\n')
		ok(t, err)
	}
}

// A stored message with a header that looks like a status of the server ("409
// Consumer Deleted") must be read like any other: libraries that look at the
// Status header first stop or skip it.
func TestAttackStatusLineInStoredMessage(t *testing.T) {
	f := start(t)
	service := f.conn("admitter")
	subj := event("runtime", 1).Subject
	for _, h := range []string{
		"NATS/1.0 409 Consumer Deleted\r\n\r\n", "NATS/1.0 100 Idle Heartbeat\r\n\r\n", "NATS/1.0 503\r\n\r\n", "NATS/1.0 404 No Messages\r\n\r\n",
		"NATS/1.0 100 FlowControl Request\r\nNats-Consumer-Stalled: $JS.API.STREAM.PURGE.GOV\r\n\r\n",
		"NATS/1.0\r\nStatus: 408\r\n\r\n", "NATS/1.0\r\nbroken\r\n\r\n",
	} {
		rawPublish(t, service, subj, h)
	}
	f.settle("runtime")
	n := f.state().Messages
	if got := f.readAll(); uint64(len(got)) != n || n < 7 {
		t.Errorf("read %d of %d messages", len(got), n)
	}
}

// Why the log has no direct get: there a publisher's own Nats-Sequence header
// stands before the server's.
func TestAttackDirectGetHeaders(t *testing.T) {
	f := start(t)
	service := f.conn("admitter")
	m := event("runtime", 1)
	_, err := service.RequestMsg(&nats.Msg{Subject: m.Subject, Data: m.Body, Header: nats.Header{
		"Nats-Sequence": {"999"}, "Nats-Subject": {"gov.decisions.acme.allow.s1"}, "Nats-Time-Stamp": {"2001-01-01T00:00:00Z"}}}, guard)
	ok(t, err)
	got, err := LastBySubject(ctx(t), f.js(f.conn("auditor")), DefaultShard, m.Subject)
	ok(t, err)
	all := f.readAll()
	for _, g := range []events.LogMessage{*got, all[0]} {
		if g.Seq != 1 || g.Subject != m.Subject || g.Time.Year() == 2001 || g.HeaderValue("Nats-Sequence") != "999" {
			t.Errorf("%+v", g)
		}
	}
	_, err = f.conn("provisioner").Request("$JS.API.DIRECT.GET.GOV", []byte(`{"seq":1}`), 200*time.Millisecond)
	if err == nil {
		t.Error("direct get is on")
	}
}

// TestAttackManySubscriptions: a user that subscribes again and again, and connects again and again, gets no more than
// its limits; another user has its own.
func TestAttackManySubscriptions(t *testing.T) {
	t.Parallel()
	f := start(t)
	for _, user := range []Role{RoleSubscriber, RoleReviewer} {
		most := roles[user].limits
		nc := f.conn(string(user))
		for range most.subscriptions + 1 {
			_, err := nc.Subscribe("gov.decisions.acme.>", func(*nats.Msg) {})
			ok(t, err)
		}
		ok(t, nc.Flush())
		if err := nc.LastError(); !errors.Is(err, nats.ErrMaxSubscriptionsExceeded) {
			t.Errorf("%s: %v", user, err)
		}
		for range most.connections - 1 {
			f.conn(string(user))
		}
		more, err := Connect(t.Context(), ConnectOptions{URL: f.srv.ClientURL(), User: string(user), Password: "pw-" + string(user)})
		if !errors.Is(err, nats.ErrMaxAccountConnectionsExceeded) || !strings.Contains(err.Error(), "close some") {
			t.Errorf("%s: connection %d: %v", user, most.connections+1, err)
			if err == nil {
				more.Close()
			}
		}
	}
}
