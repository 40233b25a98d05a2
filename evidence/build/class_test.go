package build_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/build"
	"github.com/countersign-dev/countersign/evidence/evidencetest"
	"github.com/countersign-dev/countersign/evidence/internal/canonical"
	"github.com/countersign-dev/countersign/evidence/internal/redact"
	"github.com/countersign-dev/countersign/evidence/retention"
	"github.com/countersign-dev/countersign/evidence/verify"
)

// classEvents are one event of each protocol. Free text that no class but
// full_transcript keeps begins with "herring", summaries with "summary".
var classEvents = []struct{ name, subject, body string }{
	{"agenthook", "gov.events.acme.rt.agenthook.s.PreToolUse", `{"event_id":"5d2f3c1e-0000-4000-8000-000000000001","event_type":"PreToolUse","timestamp":"2026-11-20T06:42:00Z","source":"rt","agent_id":"agent-1",` +
		`"session_id":"s","tool_name":"write_file","action":"write","tool_input":{"path":"/herring/1","n":77345,"to":"dana@other.example"},"resource":"herring 2",` +
		`"metadata":{"tool_call_id":"call-1","estimated_usd":1,"admission_verdict":{"verdict":"ask","reason":"herring 3"},"governance_context":{"task_summary":"summary for dana@other.example","task_source":"user"}},` +
		`"annotations":{"note":"herring 4"},"user_prompt":"herring 5","herring 6":{"a":"herring 7"},"has_consent":true,"nothing":null}`},
	{"aaep", "gov.events.acme.rt.aaep.s.agent.tool.invoked", `{"@context":"https://aaep-protocol.org/context/v1","type":"aaep:agent.tool.invoked","event_id":"evt_1","session_id":"sess_1","timestamp":"2026-11-20T06:42:00.000Z",` +
		`"producer":{"agent_id":"agent-1","agent_name":"herring 1"},"tool":"send_mail","tool_call_id":"call_1","summary_normal":"summary of it","summary_detailed":"herring 2","args_summary":"herring 3",` +
		`"irreversible":true,"risk_level":"high","extensions":{"med":{"x":"herring 4"}}}`},
	{"aump", "gov.events.acme.rt.aump.s.x", `{"aump":{"type":"evidence_event","version":"0.1.0"},"id":"aump_ev_1","mandate_ref":{"id":"aump_m_1","hash":"sha256-00","version":"1","url":"https://herring.example/1"},"sequence":1,` +
		`"created_at":"2026-11-20T06:42:00Z","event_type":"action_evaluated","summary":"summary of it","result":"allowed","actor":{"role":"agent","id":"agent-1"},` +
		`"privacy":{"retention":"full_transcript","contains_private_fields":false,"protected_fields":["negotiation.target"]},"reason_codes":["scope_violation"],"action":{"type":"buy","summary":"herring 1"},"metadata":{"note":"herring 2"}}`},
	{"aana", "gov.events.acme.rt.aana.s.request", `{"tool_name":"send_email","tool_category":"write","authorization_state":"none","risk_domain":"commerce","recommended_route":"ask","request_id":"r-1","user_intent":"herring 1",` +
		`"evidence_refs":[{"source_id":"s1","kind":"policy","summary":"herring 2"}],"proposed_arguments":{"to":"herring 3"},"authorization_subject":{"subject_type":"user","subject_ref":"herring-4"}}`},
	{"tool", "gov.events.acme.rt.tool.s.request", `{"agentName":"a","toolName":"send_email","turn":1,"callId":"c-1","rawArguments":"{\"to\":\"herring 1\"}","parsedArguments":{"to":"herring 1"},"proposalHash":"00aa","argsCanonicalJson":"{\"to\":\"herring 1\"}","runContext":{"x":"herring 2"},"reason":"herring 3"}`},
	{"handoff", "gov.events.acme.rt.handoff.s.request", `{"fromAgentName":"a","toAgentName":"b","turn":1,"callId":"c-1","handoffPayload":{"x":"herring 1"},"payloadCanonicalJson":"{\"x\":\"herring 1\"}"}`},
	{"cloudevent", "gov.events.acme.rt.agenthook.s.PostToolUse", `{"specversion":"1.0","id":"1","source":"/rt","type":"x.y","time":"2026-11-20T06:42:00Z","subject":"herring 1","data":{"event_id":"e-1","tool_name":"write_file","tool_input":{"text":"herring 2"}}}`},
	{"no object", "gov.events.acme.rt.agenthook.s.x", `["herring 1","herring 2"]`},
	{"no such protocol", "gov.events.acme.rt.other.s.x", `{"id":"herring-1","text":"herring 2"}`},
}

var classHeader = map[string][]string{"Content-Type": {"application/json; charset=utf-8"}, "ce-id": {"1"}, "ce-type": {"herring of a type"}, "X-Note": {"herring 8", ""}, "X herring": {"herring 9"}, "Countersign-Decision-Id": {"d-1"}}

func logClassEvents(f *evidencetest.Fixture) {
	for _, e := range classEvents {
		h := classHeader
		if e.name == "cloudevent" {
			h = map[string][]string{"Content-Type": {"application/cloudevents+json"}, "X-Note": {"herring"}}
		}
		f.Log(e.subject, h, []byte(e.body))
	}
}

func TestClassGolden(t *testing.T) {
	var got strings.Builder
	for _, c := range []retention.Class{retention.SummaryOnly, retention.Hashes, retention.None} {
		f := evidencetest.NewWithClass(t, c)
		logClassEvents(f)
		for i, b := range f.Built {
			fmt.Fprintf(&got, "%s %s\n%s\n", c, classEvents[i].name, b.Canonical)
		}
	}
	file := filepath.Join("testdata", "classes.golden")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		evidencetest.Must(t, os.WriteFile(file, []byte(got.String()), 0o644))
	}
	want, err := os.ReadFile(file)
	evidencetest.Must(t, err)
	if got.String() != string(want) {
		at := canonical.FirstDifference([]byte(got.String()), want)
		t.Errorf("first difference at byte %d:\n got %.300q\nwant %.300q", at, got.String()[at:], want[at:])
	}
}

// What a class withholds is nowhere in the record, what is withheld has a mark and
// a commitment, and everything verifies.
func TestClassesKeepNoContent(t *testing.T) {
	for c, summaries := range map[retention.Class]bool{retention.SummaryOnly: true, retention.Hashes: false, retention.None: false} {
		f := evidencetest.NewWithClass(t, c)
		logClassEvents(f)
		for i, b := range f.Built {
			e, text := classEvents[i], string(b.Canonical)
			if strings.Contains(text, "herring") || strings.Contains(text, "77345") || strings.Contains(text, "dana") || strings.Contains(text, "has_consent\":true") {
				t.Errorf("%s, %s: content is left: %s", c, e.name, text)
			}
			if has := strings.Contains(text, `:"summary`); has != (summaries && strings.Contains(e.body, `:"summary`)) {
				t.Errorf("%s, %s: a summary is left: %v", c, e.name, has)
			}
			if want := digest.NewSession(evidencetest.Derived("session/acme/s")).Digest(f.Messages[i].Body); b.Record.BodyDigest != want || b.Quarantine || b.Record.Reason != "" {
				t.Errorf("%s, %s: digest %s, reason %q", c, e.name, b.Record.BodyDigest, b.Record.Reason)
			}
			for j, r := range b.Record.Redactions {
				if !strings.HasPrefix(r.Detector, "retention_") {
					continue
				}
				if r.Detector != "retention_"+c.String() || r.Policy != evidencetest.ClassPolicy || r.Action != "mask" {
					t.Errorf("%s, %s: %+v", c, e.name, r)
				}
				if r.Path == "/body" && r.Commitment != build.Commitment(evidencetest.Derived("session/acme/s"), b.Record.Seq, j, "/body", build.FormText, f.Messages[i].Body) {
					t.Errorf("%s, %s: the body's commitment is not to its bytes", c, e.name)
				}
			}
			if id := `"tool_name":"write_file"`; c != retention.None && strings.Contains(e.body, id) && !strings.Contains(text, id) {
				t.Errorf("%s, %s: the tool is gone: %s", c, e.name, text)
			}
			if c == retention.None && string(b.Record.Body) != `"[redacted:retention_none]"` {
				t.Errorf("%s, %s: %s", c, e.name, b.Record.Body)
			}
		}
		if rep := evidencetest.VerifyRows(f.Options(), f.Rows()); !rep.OK {
			t.Errorf("%s: %v", c, rep.Findings)
		}
	}
}

// With the session's key and the value, the commitment to a withheld value can be opened.
func TestClassCommitments(t *testing.T) {
	f := evidencetest.NewWithClass(t, retention.Hashes)
	b := f.Log(evidencetest.EventSubject, nil, []byte(`{"b":{"x":[1,"z"]},"a":"herring","two words":1}`))
	values := map[string]struct {
		form  byte
		value string
	}{"/body/a": {build.FormText, "herring"}, "/body/b": {build.FormJSON, `{"x":[1,"z"]}`}, "/body/[redacted:retention_hashes]": {build.FormJSON, `{"two words":1}`}}
	if len(b.Record.Redactions) != len(values) {
		t.Errorf("%s", b.Canonical)
	}
	for i, r := range b.Record.Redactions {
		v := values[r.Path]
		if r.Commitment != build.Commitment(evidencetest.Derived("session/acme/sess-a"), b.Record.Seq, i, r.Path, v.form, []byte(v.value)) {
			t.Errorf("%s", r.Path)
		}
	}
}

// The class that withholds nothing makes the records that are made without any.
func TestFullTranscriptIsAsEver(t *testing.T) {
	plain, full := evidencetest.New(t), evidencetest.NewWithClass(t, retention.FullTranscript)
	logClassEvents(plain)
	logClassEvents(full)
	for i := range plain.Built {
		if plain.Built[i].Hash != full.Built[i].Hash {
			t.Errorf("%s", classEvents[i].name)
		}
	}
}

// Secrets in what stays go as ever, and so does what was found in what is withheld.
func TestClassesStillRedact(t *testing.T) {
	const key = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
	f := evidencetest.NewWithClass(t, retention.SummaryOnly)
	for _, tc := range []struct{ subject, body, gone string }{
		{evidencetest.EventSubject, `{"agent_id":"` + key + `"}`, key},
		{evidencetest.EventSubject, `{"tool_input":{"password":"swordfish-97x"},"agent_id":"swordfish-97x"}`, "swordfish"},
		{evidencetest.EventSubject, `{"agent_id":"swordfish","metadata":{"redaction":{"fields":["agent_id"]}}}`, "swordfish"},
		{"gov.events.acme.rt.aaep.s.x", `{"summary_normal":"mail to dana@other.example"}`, "dana"},
		{"gov.events.acme.rt.aaep.s.x", `{"summary_normal":"` + strings.Repeat("long ", 300) + `"}`, "long"},
		{"gov.events.acme.rt.aump.s.x", `{"summary":"swordfish","privacy":{"retention":"hashes"}}`, "swordfish"},
		{"gov.events.acme.rt.aump.s.x", `{"actor":{"id":"swordfish"},"privacy":{"protected_fields":["actor.id"]}}`, "swordfish"},
		{"gov.events.acme.rt.aump.s.x", `{"actor":{"id":"swordfish"},"privacy":{"protected_fields":["actor.id","two words"]}}`, "swordfish"},
	} {
		if b := f.Log(tc.subject, nil, []byte(tc.body)); strings.Contains(string(b.Canonical), tc.gone) {
			t.Errorf("%s\n%s", tc.body, b.Canonical)
		}
	}
	if b := f.Log("gov.events.acme.r.agenthook.swordfish-97.x", nil, []byte(`{"password":"swordfish-97"}`)); !slices.Contains(b.RedactionFindings, build.FindingSecretInSubject) {
		t.Errorf("alarms %v", b.RedactionFindings)
	}
	var many strings.Builder
	for i := range redact.MaxHits + 1 {
		fmt.Fprintf(&many, `,"m%d":"herring"`, i)
	}
	b := f.Log(evidencetest.EventSubject, nil, []byte(`{"event_id":"e"`+many.String()+`}`))
	if string(b.Record.Body) != `"[redacted:retention_summary_only]"` || b.Quarantine || len(b.RedactionFindings) > 0 {
		t.Errorf("too many places: %s", b.Canonical)
	}
	many.Reset()
	for i := range redact.MaxHits - 2 {
		fmt.Fprintf(&many, `,"m%d":"herring"`, i)
	}
	var mails strings.Builder
	for i := range redact.MaxHits + 1 {
		fmt.Fprintf(&mails, `"m%d":"dana%d@other.example",`, i, i)
	}
	for name, body := range map[string]string{
		"withheld and redacted together": `{"agent_id":"` + key + `","source":"` + key + `","tool_name":"` + key + `"` + many.String() + `}`,
		"redaction gives up":             `{"agent_id":"a","tool_input":{` + mails.String() + `"x":1}}`,
	} {
		if b := f.Log(evidencetest.EventSubject, nil, []byte(body)); string(b.Record.Body) != `"[redacted:retention_summary_only]"` || b.Quarantine {
			t.Errorf("%s: %.300s", name, b.Canonical)
		}
	}
	if rep := evidencetest.VerifyRows(f.Options(), f.Rows()); !rep.OK {
		t.Error(rep.Findings)
	}
}

// A redaction policy that takes out what holds a mark leaves nothing half done.
func TestClassesAndPolicies(t *testing.T) {
	f := evidencetest.NewWithPolicy(t, "version: 1\nname: p\nrules:\n  - {name: gone, paths: [metadata], action: drop}\n  - {name: id, paths: [agent_id], action: tokenise}\n")
	f.Builder = f.Builder.WithClasses(func(_, session string) (retention.Class, string) {
		if session == "s" {
			return 0, evidencetest.ClassPolicy
		}
		return retention.Hashes, evidencetest.ClassPolicy
	})
	b := f.Log(evidencetest.EventSubject, nil, []byte(`{"agent_id":"a","metadata":{"tool_call_id":"c","x":"herring"}}`))
	if string(b.Record.Body) != `"[redacted:retention_hashes]"` || b.Record.RedactionPolicy == "" {
		t.Errorf("%s", b.Canonical)
	}
	b = f.Log(evidencetest.EventSubject, nil, []byte(`{"agent_id":"a","tool_input":{"x":"herring"}}`))
	if s := string(b.Record.Body); !strings.Contains(s, "policy_field:t-") || strings.Contains(s, "herring") {
		t.Errorf("%s", s)
	}
	if b := f.Log("gov.events.acme.r.agenthook.s.x", nil, []byte(`{"note":"herring"}`)); !strings.Contains(string(b.Canonical), "herring") {
		t.Errorf("another session: %s", b.Canonical)
	}
	if rep := evidencetest.VerifyRows(f.Options(), f.Rows()); !rep.OK {
		t.Error(rep.Findings)
	}
}

// Our own records stay, byte for byte.
func TestClassesLeaveOwnRecords(t *testing.T) {
	f := evidencetest.NewWithClass(t, retention.None)
	tick := f.Encode(events.Tick{Shard: "GOV", Due: events.At(evidencetest.Start)})
	if b := f.Log("gov.control.GOV.tick", nil, tick); string(b.Record.Body) != string(tick) {
		t.Errorf("%s", b.Canonical)
	}
	b := f.Decision(events.Decision{DecisionID: "0199a000-0000-7000-8000-000000000001", Tenant: "acme", Protocol: "agenthook", Source: "runtime-1", Session: "sess-a",
		RequestDigest: digest.Plain([]byte("{}")), Verdict: events.Deny, Reasons: []events.Reason{}, DecidedAt: events.At(evidencetest.Start)})
	if strings.Contains(string(b.Canonical), "retention_") {
		t.Errorf("%s", b.Canonical)
	}
	if b := f.Log(subject.Space{}.Call("acme", "open", "sess-a"), nil, f.Encode(events.Call{CallID: "c", Timeline: []events.TimelineEntry{}})); len(b.Record.Redactions) > 0 {
		t.Errorf("%s", b.Canonical)
	}
}

// FuzzHashesKeepsNoText: whatever an event is, under hashes no text of it stays
// that is longer than an identifier and is not one.
func FuzzHashesKeepsNoText(f *testing.F) {
	for _, e := range classEvents {
		f.Add([]byte(e.body), strings.Split(e.subject, ".")[4])
	}
	f.Add([]byte(`{"metadata":[{"tool_call_id":"two words here"}],"a":{"":"x y z x y z"},"[redacted:retention_hashes]":"x y z x y z"}`), "agenthook")
	f.Add([]byte(`{"event_id":{"event_id":"two words here"},"agent_id":["two words here"]}`), "agenthook")
	fix := evidencetest.NewWithClass(f, retention.Hashes)
	opts := fix.Options()
	f.Fuzz(func(t *testing.T, body []byte, protocol string) {
		tree, err := strictjson.Parse(body, strictjson.DefaultLimits)
		if err != nil {
			t.Skip()
		}
		m := events.LogMessage{Seq: 1, Time: evidencetest.Start, Subject: "gov.events.acme.r." + subjectToken(protocol) + ".s.x", Body: body}
		b, err := fix.Builder.Build(m, evidence.Head{}, fix.Keys)
		evidencetest.Must(t, err)
		record, err := strictjson.Parse(b.Record.Body, strictjson.DefaultLimits)
		evidencetest.Must(t, err)
		left := map[string]bool{}
		texts(record, func(s string) { left[s] = true })
		texts(tree, func(s string) {
			if left[s] && !build.IsIdentifierValue(s) && !strings.HasPrefix(s, "[redacted:") && len(s) > 0 {
				t.Errorf("%q is left in %s", s, b.Canonical)
			}
		})
		if protocol == "other" && len(left) > 1 && strings.Contains(string(b.Record.Body), `"data"`) && !strings.Contains(string(body), "[redacted:") {
			for s := range left {
				if !redact.IsPlaceholder(s) && s != "" {
					t.Errorf("%q is left of an unknown protocol: %s", s, b.Canonical)
				}
			}
		}
		if rep := evidencetest.VerifyRows(opts, []evidence.Row{b.Row()}); hasCode(rep, verify.CodeRedaction) || hasCode(rep, verify.CodeBody) {
			t.Errorf("%v\n%s", rep.Findings, b.Canonical)
		}
		if again, err := fix.Builder.Build(m, evidence.Head{}, fix.Keys); err != nil || again.Hash != b.Hash {
			t.Error("two builds differ")
		}
	})
}

// texts gives the leaves of a document that are texts.
func texts(v any, each func(string)) {
	switch v := v.(type) {
	case string:
		each(v)
	case map[string]any:
		for _, child := range v {
			texts(child, each)
		}
	case []any:
		for _, child := range v {
			texts(child, each)
		}
	case json.Number, bool, nil:
	}
}
