package events_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
)

var instant = time.Date(2026, 11, 20, 7, 41, 50, 120_000_000, time.FixedZone("", 3600))

func TestStrictest(t *testing.T) {
	tests := []struct {
		name string
		in   []events.Verdict
		want events.Verdict
	}{
		{"nothing was decided", nil, events.Deny},
		{"one allow", []events.Verdict{events.Allow}, events.Allow},
		{"allow and ask", []events.Verdict{events.Allow, events.Ask}, events.Ask},
		{"ask and defer", []events.Verdict{events.Defer, events.Ask}, events.Defer},
		{"deny first", []events.Verdict{events.Deny, events.Allow}, events.Deny},
		{"deny last", []events.Verdict{events.Allow, events.Defer, events.Deny}, events.Deny},
		{"a verdict nobody knows", []events.Verdict{events.Allow, "permit"}, events.Deny},
		{"an empty one", []events.Verdict{events.Allow, ""}, events.Deny},
		{"other case", []events.Verdict{"Allow"}, events.Deny},
	}
	for _, tt := range tests {
		if got := events.Strictest(tt.in...); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestVerdictValid(t *testing.T) {
	for _, v := range events.Verdicts {
		if !v.Valid() {
			t.Errorf("%s is not valid", v)
		}
	}
	for _, v := range []events.Verdict{"", "Allow", "permit", "deny "} {
		if v.Valid() {
			t.Errorf("%q is valid", v)
		}
	}
}

func TestTimeForms(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"ours", "2026-11-20T06:41:50.120000000Z", "2026-11-20T06:41:50.120000000Z"},
		{"offset", "2026-11-20T07:41:50.12+01:00", "2026-11-20T06:41:50.120000000Z"},
		{"no fraction", "2026-11-20T06:41:50Z", "2026-11-20T06:41:50.000000000Z"},
		{"zero", "", ""},
		{"lower case", "2026-11-20t06:41:50z", "2026-11-20T06:41:50.000000000Z"},
		{"minus zero", "2026-11-20T06:41:50-00:00", "2026-11-20T06:41:50.000000000Z"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got events.Time
			if err := json.Unmarshal([]byte(`"`+tt.in+`"`), &got); err != nil {
				t.Fatal(err)
			}
			if got.String() != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
			if b, err := json.Marshal(got); err != nil || string(b) != `"`+tt.want+`"` {
				t.Errorf("%s, %v", b, err)
			}
			if b, err := got.MarshalText(); err != nil || string(b) != tt.want {
				t.Errorf("%s, %v", b, err)
			}
		})
	}
	for _, bad := range []string{
		`"yesterday"`, `1700000000`, `null`, `"2026-11-20"`, `"2026-11-20T06:41:50"`, `"2026-11-20 06:41:50Z"`,
		`"2026-11-20T6:41:50Z"`, `"2026-11-20T06:41:50,5Z"`, `"2026-13-20T06:41:50Z"`, `"2026-11-20T06:41:50Z `,
		`"2026-11-20T06:41:50+24:00"`, `"2026-11-20T06:41:50+1:00"`, `"2026-11-20T06:41:50+01:60"`, `"2026-11-20T06:41:50.Z"`,
		`"2026-11-20T06:41:60Z"`, `"9999-12-31T23:59:59-01:00"`, `"0000-01-01T00:00:00+01:00"`, `"+026-11-20T06:41:50Z"`,
		`"2026-11-20T06:41:50.5"`, `"2026-11-20T06:41:50-"`, `"2026-02-29T06:41:50Z"`,
	} {
		got := events.At(instant)
		if err := got.UnmarshalJSON([]byte(bad)); err == nil {
			t.Errorf("%s was read as %s", bad, got)
		} else if strings.Contains(err.Error(), strings.Trim(bad, `" `)) {
			t.Errorf("the message holds the value: %v", err)
		}
	}
}

func TestDecisionGolden(t *testing.T) {
	d := events.Decision{
		DecisionID: "01939c1e-0000-7000-8000-000000000001", Tenant: "acme", Protocol: "agenthook", Source: "rt-1",
		ToolCallID: "call-1", Tool: "send <b>", RequestDigest: "hmac-sha256:00", Verdict: events.Deny,
		Reasons:   []events.Reason{{Evaluator: "tool_policy", Code: "no_policy_match"}},
		Policy:    &events.PolicyRef{Name: "p", Revision: 3, Digest: "sha256:00"},
		DecidedAt: events.At(instant),
	}
	const want = `{"decided_at":"2026-11-20T06:41:50.120000000Z","decision_id":"01939c1e-0000-7000-8000-000000000001",` +
		`"policy":{"digest":"sha256:00","name":"p","revision":3},"protocol":"agenthook",` +
		`"reasons":[{"code":"no_policy_match","evaluator":"tool_policy"}],"request_digest":"hmac-sha256:00",` +
		`"source":"rt-1","tenant":"acme","tool":"send <b>","tool_call_id":"call-1","verdict":"deny"}`
	b, err := events.Encode(d)
	if err != nil || string(b) != want {
		t.Fatalf("got\n%s, %v, want\n%s", b, err, want)
	}
	back, err := events.DecodeRecord[events.Decision](b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(d, back); diff != "" {
		t.Error(diff)
	}
}

func TestDecodeRecordRefuses(t *testing.T) {
	tests := []struct {
		name, doc string
		code      strictjson.Code
	}{
		{"unknown field", `{"shard":"GOV","due":"","hunter2":1}`, strictjson.UnknownKey},
		{"other case", `{"Shard":"GOV"}`, strictjson.UnknownKey},
		{"wrong type", `{"shard":4242}`, strictjson.WrongType},
		{"bad time", `{"due":"hunter2"}`, strictjson.WrongType},
		{"escaped time", `{"due":"2026-11-20T12:00:00\u005a"}`, strictjson.WrongType},
		{"same key twice", `{"shard":"GOV","shard":"X"}`, strictjson.DuplicateKey},
		{"no object", `[]`, strictjson.NotObject},
		{"trailing data", `{} {}`, strictjson.TrailingData},
	}
	for _, tt := range tests {
		_, err := events.DecodeRecord[events.Tick]([]byte(tt.doc))
		var e *strictjson.Error
		if !errors.As(err, &e) || e.Code != tt.code {
			t.Errorf("%s: %v, want %s", tt.name, err, tt.code)
		}
		if strings.Contains(err.Error(), "4242") || tt.name == "bad time" && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the message holds the value: %v", tt.name, err)
		}
	}
}

func TestHeaderValue(t *testing.T) {
	m := events.LogMessage{Header: map[string][]string{"A": {"1", "2"}, "B": {}}}
	for name, want := range map[string]string{"A": "1", "a": "", "B": "", "C": ""} {
		if got := m.HeaderValue(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func FuzzDecodeRecord(f *testing.F) {
	f.Add([]byte(`{"decision_id":"d","tenant":"acme","protocol":"tool","source":"s","request_digest":"x","verdict":"allow","reasons":[],"decided_at":"2026-11-20T06:41:50.120000000Z"}`))
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"reasons":null,"policy":null,"decided_at":""}`))
	f.Add([]byte(`{"reasons":[{"code":1}]}`))
	f.Add([]byte(`{"occurrence":1.0}`))
	f.Add([]byte(`{"decided_at":"2026-11-20T12:00:00\u005a"}`))
	f.Add([]byte(`{"decided_at":"2026-11-20T12:00:00+01:00"}`))
	f.Add([]byte(`{"policy":{"revision":18446744073709551615}}`))
	f.Add([]byte(`{"policy":{"no/pe":1}}`))
	f.Add([]byte(`{"inputs":{"strict":null,"mandate":{"reserved":4}},"counts":[{"amount":-1}]}`))
	f.Add([]byte(`{"DECISION_ID":"x"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := events.DecodeRecord[events.Decision](b)
		if err != nil {
			return
		}
		out, err := events.Encode(d)
		if err != nil {
			t.Fatal(err)
		}
		again, err := events.DecodeRecord[events.Decision](out)
		if err != nil {
			t.Fatalf("what Encode writes, DecodeRecord refuses: %v", err)
		}
		if diff := cmp.Diff(d, again); diff != "" {
			t.Fatal(diff)
		}
	})
}
