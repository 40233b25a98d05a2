package aana

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/events"
	wire "github.com/countersign-dev/countersign/events/aana"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// now is a day after the time stamps of the contract's held-out cases.
var now = time.Date(2026, 5, 10, 0, 0, 0, 0, time.UTC)

type doc = map[string]any

// ref is a piece of evidence that is good in every respect; more changes it, nil
// takes a member away.
func ref(kind string, more ...doc) doc {
	r := doc{
		"source_id": kind + ".1", "kind": kind, "trust_tier": "verified", "redaction_status": "redacted", "summary": "What the desk noted.",
		"retrieved_at": "2026-05-09T00:00:00Z", "freshness": doc{"status": "fresh"}, "provenance": "desk",
	}
	return change(r, more...)
}

func change(m doc, more ...doc) doc {
	for _, s := range more {
		for k, v := range s {
			if m[k] = v; v == nil {
				delete(m, k)
			}
		}
	}
	return m
}

func refs(list ...any) []any { return append([]any{}, list...) }

// proof is evidence that supports a state under both profiles.
func proof(s wire.State) []any {
	list := refs()
	switch s {
	case wire.Confirmed:
		list = append(list, ref("approval", doc{"summary": "The owner has confirmed it."}))
		fallthrough
	case wire.Validated:
		list = append(list, ref("tool_result", doc{"summary": "The target was validated."}))
		fallthrough
	case wire.Authenticated:
		list = append(list, ref("auth_event", doc{"summary": "The session was authenticated."}))
		fallthrough
	case wire.UserClaimed:
		list = append(list, ref("user_message", doc{"trust_tier": "user_claimed"}))
	case wire.None:
		list = append(list, ref("audit_record"))
	}
	return list
}

// event is a valid event; more changes it, nil takes a member away.
func event(c wire.Category, s wire.State, more ...doc) doc {
	return change(doc{
		"tool_name": "move_parcel", "tool_category": string(c), "authorization_state": string(s), "evidence_refs": proof(s),
		"risk_domain": "commerce", "proposed_arguments": doc{"parcel": 19}, "recommended_route": "accept",
	}, more...)
}

func body(t testing.TB, v any) string {
	t.Helper()
	if s, ok := v.(string); ok {
		return s
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var header = map[string][]string{events.HeaderSession: {"s1"}, events.HeaderToolCallID: {"c1"}}

func request(t testing.TB, p call.Profile, v any) call.Request {
	return call.Request{
		Tenant: "acme", Source: "rt1", Header: header, Body: []byte(body(t, v)), Now: now, Limits: strictjson.DefaultLimits,
		Confirmations: call.NoConfirmations{}, Profile: p, Digest: digest.Plain,
	}
}

// decided is an answer to one event, seen from all sides.
type decided struct {
	call.Call
	call.Opinion
	Envelope
	raw string
}

func decide(t testing.TB, p call.Profile, v any) decided {
	t.Helper()
	c, o := Evaluator{}.Read(request(t, p, v))
	raw, err := Evaluator{}.Reply(c, events.Decision{Verdict: o.Verdict, ReceivedAt: events.At(now), DecidedAt: events.At(now)}, o.DecidingCode)
	if err != nil {
		t.Fatal(err)
	}
	return decided{c, o, c.ProtocolState.(readState).result.Envelope(), string(raw)}
}

// said is "route blocker blocker …" in order.
func (d decided) said() string {
	return strings.Join(append([]string{string(d.Envelope.Action)}, d.Envelope.Blockers...), " ")
}

func (d decided) codes() []string {
	var list []string
	for _, r := range d.Opinion.Reasons {
		list = append(list, strings.TrimSuffix(r.Code+"@"+r.Path, "@"))
	}
	return list
}

const hard, sdk = call.ProfileHardened, call.ProfileReferenceSDK

var profiles = []call.Profile{hard, sdk}

// shared is the text of a file of the published contract.
func shared(t testing.TB, file string) []byte {
	t.Helper()
	root := os.Getenv("COUNTERSIGN_SHARED")
	if root == "" {
		root = filepath.Join("..", "..", "..", "shared")
	}
	b, err := os.ReadFile(filepath.Join(root, "upstream", "aana", file))
	if err != nil {
		t.Skipf("the contract's published examples are not here (set COUNTERSIGN_SHARED): %v", err)
	}
	return b
}
