package admitter

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/keys"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/internal/service/sessionsecrets"
	"github.com/countersign-dev/countersign/streams"
)

// made is how many revisions the session keys' bucket ever had, beside the key that checks the master key.
func made(t *testing.T, n *servicetest.NATS) uint64 {
	t.Helper()
	st, err := streams.StreamState(t.Context(), n.JS("auditor"), "KV_"+streams.BucketSessionSecrets)
	servicetest.OK(t, err)
	return st.LastSeq - 1
}

func inSession(body []byte, session string) []byte {
	return []byte(strings.ReplaceAll(string(body), "sess-mail-1", session))
}

// A decision's digests of a request use the key of the request's session, which its first request
// creates. A request that is refused before its session is known creates none, and without a
// session the tenant's key is used.
func TestDigestsAreTheSessions(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	put(t, n, "mail.yaml", file(t, "policies/assistant/mail.yaml"))
	serve(t, n)
	nc, good := n.Conn(servicetest.Runtime), file(t, "requests/pre-tool-use.json")
	ask(t, nc, "gov.admit.acme.nosuch", good, events.HeaderSession, "sess-x")
	if k := made(t, n); k != 0 {
		t.Errorf("%d keys of requests that are nobody's", k)
	}
	master, err := keys.Master(n.Keys)
	servicetest.OK(t, err)
	store, err := sessionsecrets.Open(t.Context(), n.JS("auditor"), master)
	servicetest.OK(t, err)
	for i, session := range []string{"sess-mail-1", "sess-mail-1", "sess-mail-2", strings.Repeat("l", 70)} {
		body := inSession(good, session)
		ask(t, nc, "gov.admit.acme.agenthook", body)
		request, d := lastTwo(t, n)
		k, there, err := store.Lookup(t.Context(), sessionsecrets.SessionOfName("acme", session))
		servicetest.OK(t, err)
		if !there || d.RequestDigest != k.Digests.Digest(request.Body) || digest.ComparableForm(d.ArgsDigest) != k.Digests.Form() {
			t.Errorf("%s: key %v, digests %s %s", session, there, d.RequestDigest, d.ArgsDigest)
		}
		if want := uint64([]int{1, 1, 2, 3}[i]); made(t, n) != want {
			t.Errorf("request %d: %d keys were made, want %d", i, made(t, n), want)
		}
	}
	ask(t, nc, "gov.admit.acme.agenthook", inSession(good, ""))
	if _, d := lastTwo(t, n); d.Session != "" || digest.ComparableForm(d.RequestDigest) != digest.PrefixKeyed || made(t, n) != 3 {
		t.Errorf("without a session: %q, %s, %d keys", d.Session, d.RequestDigest, made(t, n))
	}
}

// TestAnotherMasterKeyIsRefused: an admitter with a master key that is not the log's ends before it
// writes or takes anything, although its receipt key is the right one.
func TestAnotherMasterKeyIsRefused(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	serve(t, n)
	before := len(n.Log())
	f := flags(n)
	f.Keys = n.KeysWithAnother(keys.MasterFile)
	err := servicetest.Run(t, func(ctx context.Context, env daemon.Env) error { return Run(ctx, f, env) }).Wait()
	if !errors.Is(err, sessionsecrets.ErrOtherMaster) {
		t.Errorf("%v", err)
	}
	if got := len(n.Log()); got != before {
		t.Errorf("it wrote %d messages", got-before)
	}
}

// Without its key nothing of a session is decided.
func TestSessionKeyThatCannotBeHad(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	put(t, n, "mail.yaml", file(t, "policies/assistant/mail.yaml"))
	serve(t, n)
	nc, good := n.Conn(servicetest.Runtime), file(t, "requests/pre-tool-use.json")
	_, err := bucket(t, n, "auditor", streams.BucketSessionSecrets).Put(t.Context(), sessionsecrets.BucketKey(sessionsecrets.SessionOfName("acme", "sess-mail-1")), []byte("no key of ours"))
	servicetest.OK(t, err)
	reply := ask(t, nc, "gov.admit.acme.agenthook", good)
	if reply.Header.Get(events.HeaderVerdict) != "deny" || reply.Header.Get("Nats-Service-Error") != "audit_unavailable" || readNative(t, reply.Data).Decision != "deny" {
		t.Errorf("%v %s", reply.Header, reply.Data)
	}
	if list := of(n.Log(), "gov.decisions."); len(list) != 0 {
		t.Error("a decision is recorded all the same")
	}
	if got := ask(t, nc, "gov.admit.acme.agenthook", inSession(good, "sess-mail-2")).Header.Get(events.HeaderVerdict); got != "allow" {
		t.Errorf("another session: %s", got)
	}
}

// Once an erasure is on the log, the admitter has none of its keys any more, however
// short a time the session was silent for.
func TestErasureDropsTheKey(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	put(t, n, "mail.yaml", file(t, "policies/assistant/mail.yaml"))
	serve(t, n)
	nc, good := n.Conn(servicetest.Runtime), file(t, "requests/pre-tool-use.json")
	ask(t, nc, "gov.admit.acme.agenthook", good)
	_, before := lastTwo(t, n)
	_, err := streams.Erase(t.Context(), n.Conn("custodian"), "KV_"+streams.BucketSessionSecrets, 2)
	servicetest.OK(t, err)
	ask(t, nc, "gov.admit.acme.agenthook", good)
	if _, d := lastTwo(t, n); d.RequestDigest != before.RequestDigest {
		t.Fatal("the key was not in memory: the test shows nothing")
	}
	body, err := events.Encode(events.Erasure{ErasureID: "e1", Shard: "GOV", State: events.ErasureDone, Part: 1, Parts: 1, Tenant: "acme", Sessions: []string{"sess-mail-1"}})
	servicetest.OK(t, err)
	n.Publish("custodian", streams.Msg{Subject: "gov.control.GOV." + events.ControlErasure, Body: body})
	servicetest.Eventually(t, "a new key", func() bool {
		ask(t, nc, "gov.admit.acme.agenthook", good)
		_, d := lastTwo(t, n)
		return digest.ComparableForm(d.RequestDigest) != digest.ComparableForm(before.RequestDigest)
	})
}
