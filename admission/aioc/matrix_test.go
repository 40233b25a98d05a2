package aioc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	wire "github.com/countersign-dev/countersign/events/aioc"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/schemas"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// Every cell of the default-deny matrix.
func TestDefaultDenyMatrix(t *testing.T) {
	hard := func(decision, reason string, metadata map[string]any) wire.PolicyResult {
		return wire.PolicyResult{Decision: decision, Reason: reason, ResultMode: wire.ModeThrow, Metadata: metadata}
	}
	invalid := hard("deny", "invalid_policy_result", nil)
	denyMode := map[string]any{"deprecatedField": "denyMode", "replacementField": "resultMode"}
	with := func(m map[string]any, k string, v any) map[string]any {
		c := map[string]any{k: v}
		for k, v := range m {
			c[k] = v
		}
		return c
	}
	for name, c := range map[string]struct {
		in   PolicyReturn
		want wire.PolicyResult
	}{
		"1 no policy":              {PolicyReturn{}, hard("deny", "policy_not_configured", nil)},
		"1 whatever else is there": {PolicyReturn{Err: errors.New("x"), Value: []byte(`{"decision":"allow","reason":"r"}`)}, hard("deny", "policy_not_configured", nil)},
		"2 throws":                 {PolicyReturn{Err: errors.New("key sk-live-1 is bad")}, hard("deny", "policy_error", map[string]any{"errorName": "Error"})},
		"2 throws and allows":      {PolicyReturn{Err: errors.New("x"), Value: []byte(`{"decision":"allow","reason":"r"}`)}, hard("deny", "policy_error", map[string]any{"errorName": "Error"})},
		"2 deadline":               {PolicyReturn{Err: fmt.Errorf("x: %w", context.DeadlineExceeded)}, hard("deny", "policy_error", map[string]any{"errorName": "DeadlineExceeded"})},
		"2 our deadline":           {PolicyReturn{Err: ErrDeadline}, hard("deny", "policy_error", map[string]any{"errorName": "DeadlineExceeded"})},
		"2 cancelled":              {PolicyReturn{Err: context.Canceled}, hard("deny", "policy_error", map[string]any{"errorName": "Error"})},
		"3 denyMode":               {PolicyReturn{Value: []byte(`{"decision":"deny","reason":"r","denyMode":"tool_result"}`)}, hard("deny", "deprecated_policy_field_denyMode", with(denyMode, "receivedValue", "tool_result"))},
		"3 denyMode with allow":    {PolicyReturn{Value: []byte(`{"decision":"allow","reason":"r","denyMode":"throw"}`)}, hard("deny", "deprecated_policy_field_denyMode", with(denyMode, "receivedValue", "throw"))},
		"3 denyMode null":          {PolicyReturn{Value: []byte(`{"denyMode":null}`)}, hard("deny", "deprecated_policy_field_denyMode", denyMode)},
		"3 denyMode with a secret": {PolicyReturn{Value: []byte(`{"denyMode":"sk-live-1"}`)}, hard("deny", "deprecated_policy_field_denyMode", denyMode)},
		"4 nothing":                {PolicyReturn{}, invalid},
		"4 null":                   {PolicyReturn{Value: []byte(`null`)}, invalid},
		"4 text":                   {PolicyReturn{Value: []byte(`"allow"`)}, invalid},
		"4 list":                   {PolicyReturn{Value: []byte(`[{"decision":"allow","reason":"r"}]`)}, invalid},
		"4 true":                   {PolicyReturn{Value: []byte(`true`)}, invalid},
		"4 empty":                  {PolicyReturn{Value: []byte(`{}`)}, invalid},
		"4 unknown decision":       {PolicyReturn{Value: []byte(`{"decision":"permit","reason":"r"}`)}, invalid},
		"4 decision in case":       {PolicyReturn{Value: []byte(`{"decision":"Allow","reason":"r"}`)}, invalid},
		"4 ask is not aioc's":      {PolicyReturn{Value: []byte(`{"decision":"ask","reason":"r"}`)}, invalid},
		"4 no reason":              {PolicyReturn{Value: []byte(`{"decision":"allow"}`)}, invalid},
		"4 reason null":            {PolicyReturn{Value: []byte(`{"decision":"allow","reason":null}`)}, invalid},
		"4 reason number":          {PolicyReturn{Value: []byte(`{"decision":"allow","reason":1}`)}, invalid},
		"4 reason empty":           {PolicyReturn{Value: []byte(`{"decision":"allow","reason":""}`)}, invalid},
		"4 reason white space":     {PolicyReturn{Value: []byte("{\"decision\":\"allow\",\"reason\":\" \\t\u00a0\ufeff\"}")}, invalid},
		"4 publicReason null":      {PolicyReturn{Value: []byte(`{"decision":"allow","reason":"r","publicReason":null}`)}, invalid},
		"4 publicReason number":    {PolicyReturn{Value: []byte(`{"decision":"deny","reason":"r","publicReason":5}`)}, invalid},
		"4 expiresAt null":         {PolicyReturn{Value: []byte(`{"decision":"allow","reason":"r","expiresAt":null}`)}, invalid},
		"4 expiresAt number":       {PolicyReturn{Value: []byte(`{"decision":"deny","reason":"r","expiresAt":1}`)}, invalid},
		"4 resultMode unknown":     {PolicyReturn{Value: []byte(`{"decision":"deny","reason":"r","resultMode":"soft"}`)}, invalid},
		"4 resultMode null":        {PolicyReturn{Value: []byte(`{"decision":"deny","reason":"r","resultMode":null}`)}, invalid},
		"4 resultMode empty":       {PolicyReturn{Value: []byte(`{"decision":"deny","reason":"r","resultMode":""}`)}, invalid},
		"4 resultMode of allow":    {PolicyReturn{Value: []byte(`{"decision":"allow","reason":"r","resultMode":"loud"}`)}, invalid},
		"4 two decisions":          {PolicyReturn{Value: []byte(`{"decision":"deny","decision":"allow","reason":"r"}`)}, invalid},
		"4 decision in two cases":  {PolicyReturn{Value: []byte(`{"decision":"deny","Decision":"allow","reason":"r"}`)}, invalid},
		"4 half":                   {PolicyReturn{Value: []byte(`{"decision":"allow","reason":"r"`)}, invalid},
		"5 deny":                   {PolicyReturn{Value: []byte(`{"decision":"deny","reason":" r ","publicReason":"p","policyVersion":"v1","metadata":{"a":"b"}}`)}, wire.PolicyResult{Decision: "deny", Reason: " r ", PublicReason: "p", ResultMode: "throw", PolicyVersion: "v1", Metadata: map[string]any{"a": "b"}}},
		"5 approval":               {PolicyReturn{Value: []byte(`{"decision":"require_approval","reason":"r","expiresAt":"soon"}`)}, wire.PolicyResult{Decision: "require_approval", Reason: "r", ResultMode: "throw", ExpiresAt: "soon"}},
		"6 soft deny":              {PolicyReturn{Value: []byte(`{"decision":"deny","reason":"r","resultMode":"tool_result"}`)}, wire.PolicyResult{Decision: "deny", Reason: "r", ResultMode: "tool_result"}},
		"6 hard deny":              {PolicyReturn{Value: []byte(`{"decision":"deny","reason":"r","resultMode":"throw"}`)}, hard("deny", "r", nil)},
		"6 soft approval":          {PolicyReturn{Value: []byte(`{"decision":"require_approval","reason":"r","resultMode":"tool_result"}`)}, wire.PolicyResult{Decision: "require_approval", Reason: "r", ResultMode: "tool_result"}},
		"7 allow":                  {PolicyReturn{Value: []byte(`{"decision":"allow","reason":"r","resultMode":"tool_result"}`)}, wire.PolicyResult{Decision: "allow", Reason: "r"}},
		"7 extra keys":             {PolicyReturn{Value: []byte(`{"decision":"allow","reason":"r","note":1}`)}, wire.PolicyResult{Decision: "allow", Reason: "r"}},
		"7 types not checked":      {PolicyReturn{Value: []byte(`{"decision":"allow","reason":"r","policyVersion":7,"metadata":"x"}`)}, wire.PolicyResult{Decision: "allow", Reason: "r"}},
		"ours: still holds":        {PolicyReturn{Value: []byte(`{"decision":"allow","reason":"r","expiresAt":"2026-11-20T12:00:00.001Z"}`)}, wire.PolicyResult{Decision: "allow", Reason: "r", ExpiresAt: "2026-11-20T12:00:00.001Z"}},
		"ours: expired":            {PolicyReturn{Value: []byte(`{"decision":"allow","reason":"r","expiresAt":"2026-11-20T11:59:59Z"}`)}, hard("deny", "policy_result_expired", nil)},
		"ours: equal is expired":   {PolicyReturn{Value: []byte(`{"decision":"allow","reason":"r","expiresAt":"2026-11-20T13:00:00+01:00"}`)}, hard("deny", "policy_result_expired", nil)},
		"ours: no time":            {PolicyReturn{Value: []byte(`{"decision":"allow","reason":"r","expiresAt":"soon"}`)}, invalid},
		"ours: a deny may expire":  {PolicyReturn{Value: []byte(`{"decision":"deny","reason":"r","expiresAt":"2020-01-01T00:00:00Z"}`)}, wire.PolicyResult{Decision: "deny", Reason: "r", ResultMode: "throw", ExpiresAt: "2020-01-01T00:00:00Z"}},
		"seed: no approval":        {PolicyReturn{Seed: true, Value: []byte(`{"decision":"require_approval","reason":"r"}`)}, invalid},
		"seed: allow":              {PolicyReturn{Seed: true, Value: []byte(`{"decision":"allow","reason":"r"}`)}, wire.PolicyResult{Decision: "allow", Reason: "r"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.in.Configured = !strings.HasPrefix(name, "1")
			if diff := cmp.Diff(c.want, ApplyDenyMatrix(c.in, noon)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Nothing but a valid allow that still holds is an allow, and what the matrix
// lets pass it lets pass again.
func TestSettleProperties(t *testing.T) {
	words := []any{"allow", "deny", "require_approval", "Allow", "", " ", "r", nil, true, 1, "throw", "tool_result", "2030-01-01T00:00:00Z", "2020-01-01T00:00:00Z", map[string]any{}, []any{}}
	rapid.Check(t, func(rt *rapid.T) {
		m := map[string]any{}
		for _, k := range []string{"decision", "reason", "publicReason", "resultMode", "expiresAt", "metadata", "policyVersion", "denyMode", "extra"} {
			if rapid.IntRange(0, 2).Draw(rt, "has "+k) > 0 && k != "denyMode" || k == "denyMode" && rapid.IntRange(0, 9).Draw(rt, k) == 0 {
				m[k] = rapid.SampledFrom(words).Draw(rt, k)
			}
		}
		raw, err := json.Marshal(m)
		if err != nil {
			rt.Fatal(err)
		}
		check(rt, raw)
	})
}

type fataler interface{ Fatalf(string, ...any) }

func check(t fataler, raw []byte) {
	got := ApplyDenyMatrix(PolicyReturn{Configured: true, Value: raw}, noon)
	b, err := got.Encode()
	if err != nil {
		t.Fatalf("%v", err)
	}
	doc, err := strictjson.ReadObject(b, strictjson.DefaultLimits)
	if err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	if vs := schemas.Default().Validate("aioc/policy-result", doc); vs != nil && strings.TrimFunc(got.Reason, isBlank) == "" {
		t.Fatalf("%v: %s", vs, b)
	}
	if got.Decision == wire.Allow {
		var m map[string]any
		if err := json.Unmarshal(raw, &m); err != nil || m["decision"] != "allow" || m["reason"] != got.Reason || m["denyMode"] != nil {
			t.Fatalf("%s became %s", raw, b)
		}
	}
	if again := ApplyDenyMatrix(PolicyReturn{Configured: true, Value: b}, noon); !cmp.Equal(again.Decision, got.Decision) || again.Reason != got.Reason || again.ResultMode != got.ResultMode {
		t.Fatalf("%s became %+v", b, again)
	}
}

func FuzzSettle(f *testing.F) {
	for _, s := range []string{`{"decision":"allow","reason":"r"}`, `{"denyMode":1}`, `null`, `{"decision":"deny","reason":"r","resultMode":"tool_result","expiresAt":"2030-01-01T00:00:00Z"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) { check(t, raw) })
}

func TestNameOfNil(t *testing.T) {
	if ApplyDenyMatrix(PolicyReturn{Configured: true, Err: nil}, noon).Reason != ReasonInvalid {
		t.Error("nothing returned is valid")
	}
}

func TestStripChangesNothing(t *testing.T) {
	text := `{"runContext":{"context":{"user":"u","Approvals":[{"x":1}],"list":[{"a":1},{"approved":true,"b":2}]},"approval-grants":1,"keep":{"deep":[[{"granted":1}]]}}}`
	tree, err := strictjson.ParseObject([]byte(text), strictjson.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	clean, found := withoutClaims(tree)
	got, _ := strictjson.Canonical(clean)
	if !found || string(got) != `{"runContext":{"context":{"list":[{"a":1},{"b":2}],"user":"u"},"keep":{"deep":[[{"granted":1}]]}}}` {
		t.Errorf("%v %s", found, got)
	}
	want, _ := strictjson.CanonicalBytes([]byte(text))
	if after, _ := strictjson.Canonical(tree); string(after) != string(want) {
		t.Errorf("the document was changed: %s", after)
	}
	if _, found := withoutClaims(map[string]any{"runContext": map[string]any{"a": []any{1, "x"}}, "approval": 1}); found {
		t.Error("found a claim outside runContext")
	}
}
