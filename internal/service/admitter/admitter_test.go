package admitter

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/admission/receipt"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/internal/service/keys"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/internal/service/shares"
	"github.com/countersign-dev/countersign/streams"
)

func TestDecisionIsRecordedInOrderBeforeTheReply(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	put(t, n, "mail.yaml", file(t, "policies/assistant/mail.yaml"))
	serve(t, n)
	body := file(t, "requests/pre-tool-use.json")
	reply := ask(t, n.Conn(servicetest.Runtime), "gov.admit.acme.agenthook", body,
		"Countersign-Agent", "a1", "content-type", "application/cloudevents+json", "Other", "x")
	if got := reply.Header.Get(events.HeaderVerdict); got != "allow" {
		t.Fatalf("verdict %q, %s", got, reply.Data)
	}
	log := n.Log()
	requests, decisions := of(log, "gov.events."), of(log, "gov.decisions.")
	if len(requests) != 1 || len(decisions) != 1 {
		t.Fatalf("%d requests and %d decisions in the log", len(requests), len(decisions))
	}
	req, dec := requests[0], decisions[0]
	if req.Subject != "gov.events.acme.rt1.agenthook.sess-mail-1.request" || dec.Subject != "gov.decisions.acme.allow.sess-mail-1" {
		t.Errorf("subjects %s, %s", req.Subject, dec.Subject)
	}
	if !bytes.Equal(req.Body, body) {
		t.Error("the logged request is not what was sent")
	}
	if req.Seq >= dec.Seq || reply.Header.Get(events.HeaderDecisionSeq) != fmt.Sprint(dec.Seq) {
		t.Errorf("request at %d, decision at %d, the reply says %s", req.Seq, dec.Seq, reply.Header.Get(events.HeaderDecisionSeq))
	}
	for name, want := range map[string]string{events.HeaderAgent: "a1", "content-type": "", "Other": "", "Nats-Request-Info": ""} {
		if got := req.HeaderValue(name); got != want {
			t.Errorf("header %s of the logged request is %q, want %q", name, got, want)
		}
	}
	d, err := events.DecodeRecord[events.Decision](dec.Body)
	servicetest.OK(t, err)
	if d.Source != servicetest.Runtime || d.DecisionID != req.HeaderValue(events.HeaderDecisionID) || d.Durability != "fsync" || d.Occurrence != 1 {
		t.Errorf("decision %+v, request of %s", d, req.HeaderValue(events.HeaderDecisionID))
	}
	token := reply.Header.Get(events.HeaderReceipt)
	if d.ReceiptHash != receipt.Hash(token) {
		t.Error("the decision names another receipt than the one that was sent")
	}
	checkReceipt(t, n, token, reply.Header.Get(events.HeaderKey), body)
	key, err := keys.Receipt(n.Keys)
	servicetest.OK(t, err)
	_, err = signing.KeySet{key.ID: key.Public()}.VerifyRecord(dec.HeaderValue(events.HeaderSignature), dec.Body)
	servicetest.OK(t, err)
}

// checkReceipt verifies a receipt with nothing but the public checkpoint key.
func checkReceipt(t *testing.T, n *servicetest.NATS, token, keyRecord string, body []byte) {
	t.Helper()
	k, err := events.DecodeRecord[events.KeyRecord]([]byte(keyRecord))
	servicetest.OK(t, err)
	v, err := keys.CheckpointVerifier(n.Keys, "")
	servicetest.OK(t, err)
	if !signing.CheckKeyRecord(note.VerifierList(v), k) {
		t.Error("the key in the reply is not vouched for")
	}
	pub, err := signing.DecodePublic(k.PublicKey)
	servicetest.OK(t, err)
	var event struct {
		ToolInput json.RawMessage `json:"tool_input"`
	}
	servicetest.OK(t, json.Unmarshal(body, &event))
	args, err := strictjson.CanonicalBytes(event.ToolInput)
	servicetest.OK(t, err)
	_, err = receipt.Verify(signing.KeySet{k.KeyID: pub}, token, receipt.Expectation{
		Tenant: "acme", Source: servicetest.Runtime, Session: "sess-mail-1", ToolCallID: "call-mail-1", Tool: "send_email", ArgsCanonical: args,
	}, time.Now())
	servicetest.OK(t, err)
}

func TestBadRequestsAreDeniedNativelyAndRecorded(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	put(t, n, "mail.yaml", file(t, "policies/assistant/mail.yaml"))
	serve(t, n)
	nc := n.Conn(servicetest.Runtime)
	for name, c := range map[string]struct {
		subject, body, verdict string
		receipt                bool
	}{
		"not JSON":         {"gov.admit.acme.agenthook", "{nope", "deny", true},
		"wrong type":       {"gov.admit.acme.agenthook", `{"schema_version":"one"}`, "deny", true},
		"too large":        {"gov.admit.acme.agenthook", `{"x":"` + strings.Repeat("a", 1<<20) + `"}`, "deny", true},
		"unknown protocol": {"gov.admit.acme.telnet", `{}`, "deny", false},
		"observational":    {"gov.admit.acme.agenthook", string(bytes.Split(file(t, "sessions/agenthook-mail.jsonl"), []byte("\n"))[1]), "allow", false},
	} {
		before := len(of(n.Log(), "gov.decisions."))
		reply := ask(t, nc, c.subject, []byte(c.body))
		if got := reply.Header.Get(events.HeaderVerdict); got != c.verdict {
			t.Errorf("%s: verdict %q", name, got)
		}
		if !json.Valid(reply.Data) {
			t.Errorf("%s: reply %q", name, reply.Data)
		}
		if got := reply.Header.Get(events.HeaderReceipt) != ""; got != c.receipt {
			t.Errorf("%s: has a receipt: %t", name, got)
		}
		if after := len(of(n.Log(), "gov.decisions.")); after != before+1 {
			t.Errorf("%s: %d decisions were recorded", name, after-before)
		}
	}
}

func TestAnAdmitterThatCannotRecordDenies(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{MaxBytes: 64 << 10})
	put(t, n, "mail.yaml", file(t, "policies/assistant/mail.yaml"))
	s := serve(t, n)
	nc := n.Conn(servicetest.Runtime)
	fill := streams.Msg{Subject: "gov.events.acme.rt1.agenthook.s.X", Body: bytes.Repeat([]byte("x"), 6<<10)}
	for streams.PublishEvents(t.Context(), nc, []streams.Msg{fill}) == nil {
	}
	for fill.Body = fill.Body[:16]; streams.PublishEvents(t.Context(), nc, []streams.Msg{fill}) == nil; {
	}
	before := len(n.Log())
	reply := ask(t, nc, "gov.admit.acme.agenthook", file(t, "requests/pre-tool-use.json"))
	got := readNative(t, reply.Data)
	if got.Decision != "deny" || got.Reason != admission.CodeAuditUnavailable || got.EventID == "" {
		t.Errorf("reply %s", reply.Data)
	}
	if h := reply.Header; h.Get(events.HeaderVerdict) != "deny" || h.Get(events.HeaderReceipt) != "" || h.Get("Nats-Service-Error-Code") != "503" {
		t.Errorf("headers %v", h)
	}
	if after := len(n.Log()); after != before {
		t.Errorf("%d messages were recorded", after-before)
	}
	if s.Health.Report().Problems["log"] == "" {
		t.Error("the admitter calls itself healthy")
	}
}

func TestDeniesWhenTheServerGoesAwayInTheMiddle(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	s := unstarted(t, n)
	n.Stop()
	r := preToolUse(t)
	s.admitRequest(t.Context(), r, time.Now())
	got := readNative(t, r.body)
	if r.answered != 1 || got.Decision != "deny" || got.Reason != admission.CodeAuditUnavailable || r.answer.Get(events.HeaderReceipt) != "" {
		t.Errorf("%d answers, %s, %v", r.answered, r.body, r.answer)
	}
}

func TestReplySubjectsThatTheServerDidNotChooseAreNotAnswered(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	s := unstarted(t, n)
	for _, reply := range []string{
		"", "gov.decisions.acme.allow.s1", "$KV.policies.mail", "_INBOX_correlator.x", "_INBOX.x", "_R_", "_R.x", "_Rx_.y", "gov._R_.x", "$JS.API.STREAM.DELETE.GOV",
	} {
		r := preToolUse(t)
		r.reply = reply
		s.admitRequest(t.Context(), r, time.Now())
		s.denyUnrecorded(r, codeOverloaded, nil)
		if r.answered != 0 {
			t.Errorf("%q was answered", reply)
		}
	}
	if log := n.Log(); len(log) != 0 {
		t.Errorf("%d messages were recorded", len(log))
	}
}

func TestIdentityIsTheServersWord(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	s := unstarted(t, n)
	for name, c := range map[string]struct {
		info []string
		want string
	}{
		"other tenant's account": {[]string{`{"acc":"tenant-globex:mallory","user":"mallory"}`}, admission.CodeUnknownTenant},
		"a sibling's account":    {[]string{`{"acc":"tenant-acme:rt2","user":"rt1"}`}, admission.CodeUnknownTenant},
		"no stamp":               {nil, admission.CodeUnknownTenant},
		"two stamps":             {[]string{`{"acc":"tenant-acme:rt1","user":"rt1"}`, `{"acc":"tenant-acme:rt2","user":"rt2"}`}, admission.CodeUnknownTenant},
		"own":                    {[]string{`{"acc":"tenant-acme:rt1","user":"rt1"}`}, "no_policy"},
	} {
		r := preToolUse(t)
		r.header = map[string][]string{"Nats-Request-Info": c.info}
		s.admitRequest(t.Context(), r, time.Now())
		if got := readNative(t, r.body); got.Decision != "deny" || got.Reason != c.want {
			t.Errorf("%s: %s", name, r.body)
		}
	}
}

func TestOverloadAndStopAreDenials(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	s := unstarted(t, n)
	for s.workers.places.Take(shares.Caller{Tenant: "globex", User: fmt.Sprint(s.workers.places.Held())}, 1) {
	}
	for s.workers.places.Held() < s.workers.places.Capacity() {
		s.workers.places.Take(shares.Caller{Tenant: fmt.Sprint(s.workers.places.Held()), User: "u"}, 1)
	}
	deny := func(want string) {
		t.Helper()
		r := preToolUse(t)
		s.acceptRequest(t.Context(), r) // answers before it returns
		if got := readNative(t, r.body); got.Decision != "deny" || got.Reason != want || r.answer.Get(events.HeaderVerdict) != "deny" || r.code != "503" {
			t.Errorf("%s, %v, want %s", r.body, r.answer, want)
		}
	}
	deny(codeOverloaded)
	s.drainRequests(n.Conn("admitter"))
	deny(codeStopping)
}

func TestPanicIsADenial(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	s := unstarted(t, n)
	s.calls = nil
	r := preToolUse(t)
	s.admitRequest(t.Context(), r, time.Now())
	if got := readNative(t, r.body); got.Decision != "deny" || got.Reason != admission.CodeInternal {
		t.Errorf("%s", r.body)
	}
}

func TestRefusesBadFlags(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	f := flags(n)
	f.MaxInflight = 0
	if err := Run(t.Context(), f, rigEnv()); err == nil || !strings.Contains(err.Error(), "--max-inflight") {
		t.Errorf("error %v", err)
	}
}
