package admission

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/countersign-dev/countersign/admission/aaep"
	"github.com/countersign-dev/countersign/admission/agenthook"
	"github.com/countersign-dev/countersign/events"
)

func TestEvaluateLine(t *testing.T) {
	irreversible := edit(t, toolInvoked, `"tool":`, `"irreversible":true,"tool":`)
	for name, c := range map[string]struct {
		protocol, line, verdict string
		reply                   []string
	}{
		"bare":               {agenthook.Name, preToolUse, "allow", []string{`"event_id":"7D444840-9dc0`, `"policy_id":"evaluators-only"`}},
		"white space":        {agenthook.Name, " " + preToolUse + "\r\n", "allow", nil},
		"wrapped":            {agenthook.Name, `{"request":` + preToolUse + `}`, "allow", []string{`"decision":"allow"`}},
		"time":               {aaep.Name, `{"now":"2027-01-01T00:00:00Z","request":` + toolInvoked + `}`, "allow", []string{`"decided_at":"2027-01-01T00:00:00.000000000Z"`}},
		"headers":            {agenthook.Name, `{"request":` + preToolUse + `,"headers":{"Countersign-Session":"s1"}}`, "allow", nil},
		"header list":        {agenthook.Name, `{"request":` + preToolUse + `,"headers":{"Countersign-Session":["s1","s2"]}}`, "deny", []string{"header_conflict"}},
		"own evaluator":      {aaep.Name, irreversible, "ask", []string{"confirmation_required"}},
		"claimed source":     {aaep.Name, toolInvoked, "allow", []string{`"source":"bot"`, `"request_digest":"sha256:`}},
		"inner duplicate":    {agenthook.Name, `{"request":{"a":1,"a":2}}`, "deny", []string{"duplicate_key"}},
		"inner not UTF-8":    {agenthook.Name, "{\"request\":{\"a\":\"\xff\"}}", "deny", []string{"invalid_utf8"}},
		"request twice":      {agenthook.Name, `{"request":{},"request":{}}`, "deny", []string{CodeMalformedLine}},
		"unknown member":     {agenthook.Name, `{"request":{},"hedaers":{}}`, "deny", []string{CodeMalformedLine}},
		"bad time":           {agenthook.Name, `{"request":{},"now":"soon"}`, "deny", []string{CodeMalformedLine}},
		"empty time":         {agenthook.Name, `{"request":{},"now":""}`, "deny", []string{CodeMalformedLine}},
		"bad headers":        {agenthook.Name, `{"request":{},"headers":[]}`, "deny", []string{CodeMalformedLine}},
		"bad header":         {agenthook.Name, `{"request":{},"headers":{"a":1}}`, "deny", []string{CodeMalformedLine}},
		"not JSON":           {agenthook.Name, `nonsense`, "deny", []string{"not_json"}},
		"half a line":        {agenthook.Name, `{"request":`, "deny", []string{"not_json"}},
		"half a member":      {agenthook.Name, `{"request"`, "deny", []string{"not_json"}},
		"open object":        {agenthook.Name, `{"request":{}`, "deny", []string{"not_json"}},
		"two values":         {agenthook.Name, `{"request":{}} {}`, "deny", nil},
		"empty":              {agenthook.Name, ``, "deny", []string{"not_json"}},
		"list":               {agenthook.Name, `[]`, "deny", []string{"not_object"}},
		"unknown protocol":   {"x", `{}`, "deny", []string{"unknown_protocol"}},
		"request is no JSON": {agenthook.Name, `{"request":"text"}`, "deny", []string{"not_object"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := Offline{Protocol: c.protocol, Now: noon}
			got := EvaluateLine([]byte(c.line), o)
			var v OfflineResult
			if err := json.Unmarshal(got, &v); err != nil || bytes.ContainsAny(got, "\n") {
				t.Fatalf("%v: %s", err, got)
			}
			if string(v.Verdict) != c.verdict {
				t.Errorf("%s", got)
			}
			for _, want := range c.reply {
				if !strings.Contains(string(v.Reply), want) {
					t.Errorf("no %s in %s", want, v.Reply)
				}
			}
			if again := EvaluateLine([]byte(c.line), o); !bytes.Equal(got, again) {
				t.Error("not deterministic")
			}
		})
	}
}

func TestEvaluateLineWithPolicies(t *testing.T) {
	o := Offline{Protocol: agenthook.Name, Tenant: "t1", Source: "rt9", Now: noon, Config: rules(t, `allow ok: tenant == "t1" && source == "rt9"`)}
	if got := EvaluateLine([]byte(preToolUse), o); !bytes.HasPrefix(got, []byte(`{"verdict":"allow"`)) {
		t.Errorf("%s", got)
	}
	o.Config = &Config{}
	if got := EvaluateLine([]byte(preToolUse), o); !bytes.Contains(got, []byte("no_policy")) {
		t.Errorf("%s", got)
	}
	o.Config, o.Now = nil, time.Time{}
	if got := EvaluateLine([]byte(preToolUse), o); !bytes.Contains(got, []byte("internal_error")) {
		t.Errorf("without a time: %s", got)
	}
	o.Protocol, o.Now, o.Source = agenthook.Name, noon, ""
	if got := EvaluateLine([]byte(`{"event_id":1}`), o); !bytes.Contains(got, []byte("deny")) {
		t.Errorf("%s", got)
	}
}

func TestDerivedInputs(t *testing.T) {
	a := offlineInputs([]byte("x"), noon)
	id, err := uuid.Parse(a.DecisionID)
	if err != nil || id.Version() != 7 || id.Variant() != uuid.RFC4122 {
		t.Errorf("%s is no UUIDv7", a.DecisionID)
	}
	if sec, nsec := id.Time().UnixTime(); !time.Unix(sec, nsec).Truncate(time.Millisecond).Equal(noon) {
		t.Errorf("the id says %v", time.Unix(sec, nsec))
	}
	for name, b := range map[string]Inputs{"other line": offlineInputs([]byte("y"), noon), "other time": offlineInputs([]byte("x"), noon.Add(1))} {
		if b.DecisionID == a.DecisionID || bytes.Equal(b.Salt, a.Salt) || b.Nonce == a.Nonce {
			t.Errorf("%s: the same inputs", name)
		}
	}
	if diff := cmp.Diff(a, offlineInputs([]byte("x"), noon.In(time.FixedZone("", 3600)))); strings.Contains(diff, "DecisionID") {
		t.Error(diff)
	}
}

func TestUpstreamExamples(t *testing.T) {
	for _, c := range []struct {
		protocol, file, want string
	}{
		{agenthook.Name, "agenthook/examples/pre-tool-use-action-governance-email-send.json", "ask human_approval_required earlier_verdict publisher_verdict_ignored publisher_approval_ignored ok"},
		{agenthook.Name, "agenthook/examples/pre-tool-use-action-governance-mcp-call.json", "allow publisher_verdict_ignored ok"},
		{agenthook.Name, "agenthook/examples/pre-tool-use-normalized-resource.json", "allow tool_call_id_missing ok"},
		{agenthook.Name, "agenthook/examples/post-tool-use-action-governance-email-send.json", "allow observational"},
		{agenthook.Name, "agenthook/examples/session-start-with-attestation.json", "allow observational"},
		{agenthook.Name, "agenthook/examples/tool-use-resumed-after-approval.json", "allow observational"},
		{agenthook.Name, "agenthook/examples/web-search-results-returned.json", "allow observational"},
		{aaep.Name, "aaep/fixtures/valid/agent.awaiting.confirmation.json", "allow ok"},
		{aaep.Name, "aaep/fixtures/valid/agent.tool.invoked.high-risk.json", "ask confirmation_required high_risk_unconfirmed ok"},
		{aaep.Name, "aaep/fixtures/invalid/wrong-default-decision.json", "deny unsafe_default"},
		{aaep.Name, "aaep/fixtures/valid/agent.session.started.json", "deny not_a_request"},
	} {
		t.Run(c.file, func(t *testing.T) {
			out := Decide(request(c.protocol, string(shared(t, c.file))), allowAll(t), inputs())
			words := strings.Fields(codes(out))
			for i, w := range words {
				words[i], _, _ = strings.Cut(w, "@")
			}
			if got := strings.Join(words, " "); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// The captured session of a real producer announces before it asks the user; its
// invocation must be asked about, and nothing in it is malformed.
func TestSessionOfAReferenceProducer(t *testing.T) {
	var list []json.RawMessage
	if err := json.Unmarshal(shared(t, "aaep/session-from-reference-producer.json"), &list); err != nil {
		t.Fatal(err)
	}
	var verdicts []string
	for _, e := range list {
		if bytes.Contains(e, []byte("tool.invoked")) || bytes.Contains(e, []byte("awaiting.confirmation")) {
			out := Decide(request(aaep.Name, string(e)), allowAll(t), inputs())
			verdicts = append(verdicts, string(out.Decision.Verdict))
			if out.Malformed {
				t.Error(codes(out))
			}
		}
	}
	if diff := cmp.Diff([]string{string(events.Ask), string(events.Allow)}, verdicts); diff != "" {
		t.Error(diff)
	}
}
