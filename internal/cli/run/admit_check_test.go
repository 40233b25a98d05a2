package run

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/admission/receipt"
	"github.com/countersign-dev/countersign/client/guard"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/testkit"
)

var ok = testkit.OK

// sampleCalls are one of every protocol, as far as they carry a call.
var sampleCalls = map[string]string{
	"agenthook": `{"event_id":"8c4f9d12-7a8b-4c3d-9e2f-1a2b3c4d5e6f","event_type":"PreToolUse","timestamp":"2026-11-20T12:00:00Z","source":"x",
		"session_id":"s1","tool_name":"send_email","tool_input":{"to":"dana@acme.example"},"metadata":{"tool_call_id":"c1"}}`,
	"aaep": `{"@context":"https://aaep-protocol.org/context/v1","type":"aaep:agent.tool.invoked","event_id":"evt_1","session_id":"s1","sequence_number":0,
		"timestamp":"2026-11-20T12:00:00.000Z","producer":{"agent_id":"a"},"urgency":"normal","aaep_version":"1.0.0","summary_normal":"A step.",
		"tool":"send_email","tool_call_id":"c1","risk_level":"low","irreversible":false}`,
}

// An id that the server would shorten is refused before anything is asked, and its money reserved.
func TestAdmitRefusesABlankAtTheEndOfAnID(t *testing.T) {
	for _, c := range []AdmitCmd{{ToolCallID: "c 1 "}, {ToolCallID: " c1"}, {Session: "s1\t", ToolCallID: "c1"}} {
		if err := c.Run(t.Context(), ui.Stdio{}); !errors.As(err, new(ui.UsageError)) || !strings.Contains(err.Error(), "blank") {
			t.Errorf("%q %q: %v", c.Session, c.ToolCallID, err)
		}
	}
}

// An allow is believed only with a receipt for exactly the request that was
// sent; whatever else it is, nothing is.
func TestReplyChecker(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	key, err := signing.NewPrivateKey(bytes.Repeat([]byte{1}, 32))
	ok(t, err)
	private, public, err := signing.NewCheckpointKey(bytes.NewReader(bytes.Repeat([]byte{2}, 32)))
	ok(t, err)
	voucher, err := signing.CheckpointSigner(private)
	ok(t, err)
	k := events.KeyRecord{KeyID: key.ID, Use: "receipt", Algorithm: "EdDSA", PublicKey: signing.EncodePublic(key.Public()), CreatedAt: events.At(now)}
	k.Vouch, err = signing.SignKeyRecord(voucher, k)
	ok(t, err)
	record, err := events.Encode(k)
	ok(t, err)
	g, err := guard.New(guard.Options{Tenant: "acme", PublicKey: public})
	ok(t, err)

	type C = receipt.Claims
	for name, c := range map[string]struct {
		claims  func(*C)
		checker func(*replyChecker)
		reply   func(*nats.Msg)
		verdict events.Verdict // allow if empty
		err     error          // nil with bad: any
		bad     bool
		only    string // protocol
	}{
		"good":              {},
		"publisher unknown": {checker: func(r *replyChecker) { r.source = "" }},
		"other tenant":      {claims: func(c *C) { c.Tenant = "globex" }, err: receipt.ErrOtherTenant},
		"other publisher":   {claims: func(c *C) { c.Source = "rt2" }, err: receipt.ErrOtherSource},
		"other session":     {claims: func(c *C) { c.Session = "s2" }, err: receipt.ErrOtherSession},
		"other call":        {claims: func(c *C) { c.ToolCallID = "c2" }, err: receipt.ErrOtherToolCall},
		"other tool":        {claims: func(c *C) { c.Tool = "wipe" }, err: receipt.ErrOtherTool},
		"other arguments": {claims: func(c *C) {
			_ = c.BindArguments(bytes.Repeat([]byte{7}, receipt.SaltSize), []byte(`{"to":"eve@acme.example"}`))
		},
			err: receipt.ErrOtherArguments},
		"no arguments bound":   {claims: func(c *C) { c.ArgsHash, c.ArgsSalt = "", "" }, err: receipt.ErrOtherArguments, only: "agenthook"},
		"other decision":       {claims: func(c *C) { c.DecisionID = "d2" }, err: receipt.ErrOtherCall},
		"receipt of a deny":    {claims: func(c *C) { c.Verdict = events.Deny }, err: receipt.ErrNotAllowed},
		"expired":              {claims: func(c *C) { c.IssuedAt, c.ExpiresAt = events.At(now.Add(-time.Hour)), events.At(now) }, err: receipt.ErrExpired},
		"no receipt":           {reply: func(m *nats.Msg) { m.Header.Del(events.HeaderReceipt) }, bad: true},
		"no key with it":       {reply: func(m *nats.Msg) { m.Header.Del(events.HeaderKey) }, checker: func(r *replyChecker) { r.guard = fresh(t, public) }, err: receipt.ErrUnknownKey},
		"no key here":          {checker: func(r *replyChecker) { r.guard = nil }, err: errNoKey},
		"believed insecurely":  {checker: func(r *replyChecker) { r.guard, r.unchecked = nil, true }, reply: func(m *nats.Msg) { m.Header.Del(events.HeaderReceipt) }},
		"the reply says deny":  {reply: func(m *nats.Msg) { m.Data = []byte(`{"decision":"deny","verdict":"deny"}`) }, bad: true},
		"the header says deny": {verdict: events.Deny, reply: func(m *nats.Msg) { m.Data = []byte(`{"decision":"allow","verdict":"allow"}`) }, bad: true},
		"deny, receipt allow":  {verdict: events.Deny, reply: func(m *nats.Msg) { m.Data = []byte(`{}`) }, bad: true},
		"deny":                 {verdict: events.Deny, claims: func(c *C) { c.Verdict = events.Deny }, reply: func(m *nats.Msg) { m.Data = []byte(`{"decision":"deny","verdict":"deny"}`) }},
		"deny without a key": {verdict: events.Deny, checker: func(r *replyChecker) { r.guard = nil },
			reply: func(m *nats.Msg) { m.Data = []byte(`{"decision":"deny","verdict":"deny"}`) }},
		"a request that cannot be read": {checker: func(r *replyChecker) { r.body = []byte("{") }, bad: true},
	} {
		for protocol, request := range sampleCalls {
			if c.only != "" && c.only != protocol {
				continue
			}
			t.Run(name+"/"+protocol, func(t *testing.T) {
				claims := receipt.Claims{DecisionID: "d1", Tenant: "acme", Source: "rt1", Session: "s1", ToolCallID: "c1", Tool: "send_email", Verdict: events.Allow,
					IssuedAt: events.At(now), ExpiresAt: events.At(now.Add(time.Minute)), Nonce: "n"}
				if protocol == "agenthook" {
					ok(t, claims.BindArguments(bytes.Repeat([]byte{7}, receipt.SaltSize), []byte(`{"to":"dana@acme.example"}`)))
				}
				if c.claims != nil {
					c.claims(&claims)
				}
				token, _, err := receipt.Issue(key, claims)
				ok(t, err)
				m := nats.NewMsg("")
				m.Data = []byte(`{"decision":"allow","verdict":"allow"}`)
				m.Header.Set(events.HeaderReceipt, token)
				m.Header.Set(events.HeaderKey, string(record))
				m.Header.Set(events.HeaderDecisionID, "d1")
				if c.reply != nil {
					c.reply(m)
				}
				r := &replyChecker{protocol: protocol, tenant: "acme", source: "rt1", body: []byte(request), guard: g}
				if c.checker != nil {
					c.checker(r)
				}
				verdict := c.verdict
				if verdict == "" {
					verdict = events.Allow
				}
				err = r.reply(verdict, m, now)
				if bad := c.bad || c.err != nil; bad != (err != nil) || c.err != nil && !errors.Is(err, c.err) {
					t.Errorf("%v, want %v", err, c.err)
				}
			})
		}
	}
}

func fresh(t *testing.T, public string) *guard.Guard {
	t.Helper()
	g, err := guard.New(guard.Options{Tenant: "acme", PublicKey: public})
	ok(t, err)
	return g
}

// An event that proposes nothing is answered allow without a receipt, and there
// is nothing that it could allow.
func TestReplyCheckerAndObservations(t *testing.T) {
	m := nats.NewMsg("")
	m.Data = []byte(`{"decision":"allow"}`)
	body := `{"event_id":"8c4f9d12-7a8b-4c3d-9e2f-1a2b3c4d5e6f","event_type":"SessionStart","timestamp":"2026-11-20T12:00:00Z","source":"x","session_id":"s1"}`
	r := &replyChecker{protocol: "agenthook", tenant: "acme", source: "rt1", body: []byte(body)}
	ok(t, r.reply(events.Allow, m, time.Now()))
	r.body = []byte(sampleCalls["agenthook"])
	if err := r.reply(events.Allow, m, time.Now()); !errors.Is(err, errNoKey) {
		t.Errorf("a call: %v", err)
	}
}

// Every protocol's sampleCalls can be read here as the admitter reads them.
func TestReplyCheckerKnowsAllProtocols(t *testing.T) {
	for _, protocol := range admission.Protocols() {
		r := &replyChecker{protocol: protocol, tenant: "acme", source: "rt1", body: []byte(`{}`)}
		if out := r.reading(make([]byte, receipt.SaltSize), time.Now()); out.Decision.Verdict != events.Deny {
			t.Errorf("%s: %s", protocol, out.Decision.Verdict)
		}
	}
}
