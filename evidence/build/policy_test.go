package build_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aioc"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/build"
	"github.com/countersign-dev/countersign/evidence/evidencetest"
	"github.com/countersign-dev/countersign/evidence/internal/names"
	policies "github.com/countersign-dev/countersign/evidence/redaction"
	"github.com/countersign-dev/countersign/evidence/retention"
)

func TestPolicyActions(t *testing.T) {
	f := evidencetest.NewWithPolicy(t, evidencetest.SamplePolicy)
	b := f.Log(evidencetest.EventSubject, map[string][]string{"X-User": {"dana", ""}, "X-Other": {"dana"}}, []byte(evidencetest.PersonalEvent))
	token := func(v string) string {
		return markOf(evidencetest.Derived("tenant/acme"), names.TokenPurpose, v)
	}
	want := `{"event_id":"evt_1","tool_input":{"call":"[redacted:phone:h-` + markOf(evidencetest.Derived("session/acme/sess-a"), names.HashPurpose, "4930901820") + `]","card":"[redacted:payment_card:*1111]",` +
		`"cc":"eve@acme.example","key":"[redacted:github_token]","text":"hello[redacted:policy_field]","to":"[redacted:email:t-` + token("dana@other.example") + `]"}}`
	if got := string(b.Record.Body); got != want {
		t.Errorf("body\n got %s\nwant %s", got, want)
	}
	if got := fmt.Sprint(b.Record.Headers); got != "map[X-Other:[dana] X-User:[[redacted:policy_field:s-"+markOf(evidencetest.Derived("session/acme/sess-a"), names.TokenPurpose, "dana")+"] ]]" {
		t.Errorf("headers %s", got)
	}
	id := b.Record.RedactionPolicy
	var got []string
	for _, r := range b.Record.Redactions {
		got = append(got, strings.TrimPrefix(r.Path, "/body/tool_input/")+" "+r.Action+" "+strings.TrimPrefix(r.Policy, id))
	}
	if s := strings.Join(got, ", "); s != "call hash /phone, card mask /card, key mask , memo drop /memo, text truncate /text, to tokenise /mail, /headers/X-User/0 tokenise /user" {
		t.Errorf("redactions: %s", s)
	}
	if rep := evidencetest.VerifyRows(f.Options(), f.Rows()); !rep.OK {
		t.Error(rep.Findings)
	}
	if rec, err := evidence.ParseRecord(b.Canonical); err != nil || rec.RedactionPolicy != id || !strings.HasPrefix(id, "sample@") {
		t.Errorf("%v, policy %q", err, id)
	}
}

func markOf(key []byte, purpose, value string) string {
	return names.KeyedText(key, purpose, "", value)
}

// Tokens of a value are the same in every session of a tenant, hashes in one
// session only; neither is the same for another tenant.
func TestTokensJoinAndHashesDoNot(t *testing.T) {
	marks := func(subj string) (token, hash string) {
		f := evidencetest.NewWithPolicy(t, evidencetest.SamplePolicy)
		p, err := policies.Parse("p", []byte(evidencetest.SamplePolicy))
		evidencetest.Must(t, err)
		f.Builder = f.Builder.WithPolicies(func(string) (*policies.Policy, error) { return p, nil })
		body := string(f.Log(subj, nil, []byte(evidencetest.PersonalEvent)).Record.Body)
		_, token, _ = strings.Cut(body, "email:t-")
		_, hash, _ = strings.Cut(body, "phone:h-")
		return token[:32], hash[:32]
	}
	t1, h1 := marks("gov.events.acme.r.agenthook.s1.x")
	t2, h2 := marks("gov.events.acme.r.agenthook.s2.x")
	t3, h3 := marks("gov.events.other.r.agenthook.s1.x")
	if t1 != t2 || h1 == h2 || t1 == t3 || h1 == h3 {
		t.Errorf("tokens %s %s %s, hashes %s %s %s", t1, t2, t3, h1, h2, h3)
	}
}

// An allow-list never releases what may not be kept.
func TestAllowListReleasesNothingForbidden(t *testing.T) {
	const all = "version: 1\nname: all\nrules:\n  - {name: all, paths: [tool_input, proposed_arguments, proposed_action, metadata, secret, note], action: allow}\n" +
		"  - {name: personal, detectors: [personal], action: allow}\n"
	f := evidencetest.NewWithPolicy(t, all)
	for name, tc := range map[string]struct{ subj, body, secret string }{
		"credential":    {evidencetest.EventSubject, `{"tool_input":{"password":"swordfish"}}`, "swordfish"},
		"token":         {evidencetest.EventSubject, `{"note":"ghp_0123456789abcdefghijABCDEFGHIJ012345"}`, "ghp_"},
		"declared":      {evidencetest.EventSubject, `{"tool_input":{"x":"swordfish"},"metadata":{"redaction":{"fields":["tool_input.x"]}}}`, "swordfish"},
		"aana":          {"gov.events.acme.r.aana.s.request", `{"proposed_arguments":{"x":"swordfish"}}`, "swordfish"},
		"aump":          {"gov.events.acme.r.aump.s.request", `{"proposed_action":{"disclosures":[{"field":"x","content":"swordfish"}]}}`, "swordfish"},
		"aump, private": {"gov.events.acme.r.aump.s.x", `{"metadata":{"private_notes":"swordfish"}}`, "swordfish"},
	} {
		if b := f.Log(tc.subj, nil, []byte(tc.body)); strings.Contains(string(b.Canonical), tc.secret) {
			t.Errorf("%s: %s", name, b.Canonical)
		}
	}
	truncating := evidencetest.NewWithPolicy(t, "version: 1\nname: cut\nrules:\n  - {name: cut, paths: [tool_input.password, tool_input.note, proposed_arguments.x, prompt], headers: [Authorization], action: truncate, keep: 6}\n")
	for _, tc := range []struct{ subj, body string }{
		{evidencetest.EventSubject, `{"tool_input":{"password":"herring-77"}}`}, {"gov.events.acme.r.aana.s.request", `{"proposed_arguments":{"x":"herring-77"}}`},
		{"gov.events.acme.r.aana.s.request", `{"prompt":"herring-77"}`},
		{evidencetest.EventSubject, `{"tool_input":{"note":"password=herring-77"}}`},
	} {
		if b := truncating.Log(tc.subj, map[string][]string{"Authorization": {"herring-77"}}, []byte(tc.body)); strings.Contains(string(b.Canonical), "herr") {
			t.Errorf("truncated: %s", b.Canonical)
		}
	}
	if b := f.Log(evidencetest.EventSubject, nil, []byte(`{"note":"dana@other.example"}`)); !strings.Contains(string(b.Canonical), "dana@other.example") {
		t.Errorf("what may be allowed is not: %s", b.Canonical)
	}
	if rep := evidencetest.VerifyRows(f.Options(), f.Rows()); !rep.OK {
		t.Error(rep.Findings)
	}
}

func TestBrokenPolicyWithholds(t *testing.T) {
	f := evidencetest.New(t)
	f.Builder = f.Builder.WithPolicies(func(string) (*policies.Policy, error) { return nil, errors.New("line 3") })
	b := f.Log(evidencetest.EventSubject, map[string][]string{"A": {"b"}}, []byte(evidencetest.PlainEvent))
	if b.Record.Reason != build.ReasonRedactionFailed || !b.Quarantine || len(b.Record.Headers) > 0 || string(b.Record.Body) != "null" {
		t.Errorf("%s", b.Canonical)
	}
	if !slices.Contains(b.RedactionFindings, build.FindingRedactionFailed) || !slices.Contains(b.RedactionFindings, build.FindingHeadersWithheld) {
		t.Errorf("alarms %v", b.RedactionFindings)
	}
	if d := f.Log("gov.control.GOV.tick", nil, f.Encode(events.Tick{Shard: "GOV", Due: events.At(evidencetest.Start)})); d.Record.Reason != "" {
		t.Errorf("our own record: %s", d.Canonical)
	}
	if rep := evidencetest.VerifyRows(f.Options(), f.Rows()); !rep.OK {
		t.Error(rep.Findings)
	}
}

// What a field's name gave away does not stand anywhere else in the record, in
// plain or encoded.
func TestFoundValuesAreNowhereElse(t *testing.T) {
	const secret = "correct horse/battery:9"
	encoded := base64.StdEncoding.EncodeToString([]byte("for the record: " + secret + ", thanks"))
	short := base64.StdEncoding.EncodeToString([]byte("ab" + secret))
	body := f2(`{"password":%q,"note":"they chose %s","list":["x %s y"],%q:1,"b64":%q,"short":"data %s","pct":"q=%s","esc":"a\\u0063orrect horse/battery:9","json":"{\"p\":\"%s\"}"}`,
		secret, secret, secret, "key "+secret, encoded, short, url.QueryEscape(secret), secret)
	for name, header := range map[string]map[string][]string{
		"body": nil, "header": {"X-Note": {"see " + secret}}, "header, encoded": {"X-Note": {url.PathEscape(secret)}},
	} {
		f := evidencetest.New(t)
		b := f.Log(evidencetest.EventSubject, header, []byte(body))
		for form, v := range map[string]string{"plain": secret, "base64": encoded, "short base64": short, "query": url.QueryEscape(secret), "path": url.PathEscape(secret), "escaped": "orrect horse"} {
			if strings.Contains(string(b.Canonical), v) {
				t.Errorf("%s: %s is left: %s", name, form, b.Canonical)
			}
		}
		if b.Record.Reason != "" {
			t.Errorf("%s: withheld: %s", name, b.Record.Reason)
		}
		if rep := evidencetest.VerifyRows(f.Options(), f.Rows()); !rep.OK {
			t.Error(rep.Findings)
		}
	}
}

func f2(format string, args ...any) string { return fmt.Sprintf(format, args...) }

// The name of a tool stays although an argument that may not be kept repeats it,
// and a reply token stays in its field.
func TestWordsAreNotEchoes(t *testing.T) {
	for _, tc := range []struct{ subj, body, kept string }{
		{"gov.events.acme.r.aana.s.request", `{"tool_name":"send_email","proposed_arguments":{"tool":"send_email"}}`, `"tool_name":"send_email"`},
		{"gov.events.acme.r.aaep.s.x", `{"reply_token":"rpl_4f8a2e7d","summary":"reply rpl_4f8a2e7d"}`, `"reply_token":"rpl_4f8a2e7d"`},
		{evidencetest.EventSubject, `{"password":"credential_field","x":"credential_field"}`, `"x":"credential_field"`},
	} {
		if b := buildOne(t, tc.subj, nil, tc.body); !strings.Contains(string(b.Canonical), tc.kept) {
			t.Errorf("%s", b.Canonical)
		}
	}
}

// A plain hash of arguments that may not be kept is not kept either: short arguments can be guessed from it.
func TestHashesOfArguments(t *testing.T) {
	hashes, err := aioc.HashTool("Desk", "pay", map[string]any{"pin": 4821})
	evidencetest.Must(t, err)
	for subj, body := range map[string]string{
		"gov.events.acme.r.tool.s.request":    f2(`{"agentName":"Desk","toolName":"pay","rawArguments":"{\"pin\":4821}","turn":1,"proposalHash":%q}`, hashes.Proposal),
		"gov.events.acme.r.handoff.s.request": f2(`{"fromAgentName":"Desk","toAgentName":"Till","handoffPayload":{"pin":4821},"turn":1,"proposalHash":%q}`, hashes.Proposal),
		"gov.events.acme.r.tool.s.governance": f2(`{"type":"governance","subject":{"kind":"tool","name":"pay","proposalHash":%q,"argsHash":%q,"payloadHash":%q}}`, hashes.Proposal, hashes.Payload, hashes.Payload),
	} {
		b := buildOne(t, subj, nil, body)
		if text := string(b.Record.Body); b.Record.Reason != "" || strings.Contains(text, hashes.Proposal) || strings.Contains(text, hashes.Payload) || !strings.Contains(text, "[redacted:never_store]") {
			t.Errorf("%s: %s", subj, b.Canonical)
		}
	}
}

// A number that is a credential, or in one, is nowhere else in the record, whether in a text or as a number.
func TestNumbersAreEchoes(t *testing.T) {
	for _, credential := range []string{`"api_token":84923017`, `"password":{"parts":[84923017]}`, `"api_token":8.4923017e7`} {
		body := `{"tool_input":{` + credential + `},"note":"use 84923017 to log in","n":84923017,"count":12345678}`
		b := buildOne(t, evidencetest.EventSubject, map[string][]string{"X-Note": {"84923017"}}, body)
		if b.Record.Reason != "" || strings.Contains(string(b.Canonical), "84923017") || !strings.Contains(string(b.Record.Body), `"count":12345678`) {
			t.Errorf("%s", b.Canonical)
		}
	}
}

// However many values a credential has, none of them is elsewhere in the record.
func TestManyEchoes(t *testing.T) {
	for _, tc := range []struct {
		values int
		reason string
		class  retention.Class
	}{{1000, "", retention.FullTranscript}, {3000, build.ReasonTooMany, retention.FullTranscript}, {3000, "", retention.SummaryOnly}} {
		secret := fmt.Sprintf("%04d-Tr0ub4dor", tc.values-1)
		var list []string
		for i := range tc.values {
			list = append(list, fmt.Sprintf("%04d-Tr0ub4dor", i))
		}
		body, err := json.Marshal(map[string]any{"tool_input": map[string]any{"password": list}, "tool_name": secret, "event_id": "e"})
		if err != nil {
			t.Fatal(err)
		}
		f := evidencetest.NewWithClass(t, tc.class)
		b := f.Log(evidencetest.EventSubject, map[string][]string{"ce-id": {secret}}, body)
		if b.Record.Reason != tc.reason || b.Quarantine != (tc.reason != "") || strings.Contains(string(b.Canonical), secret) {
			t.Errorf("%d values: %q, quarantine %v, %.300s", tc.values, b.Record.Reason, b.Quarantine, b.Canonical)
		}
		if rep := evidencetest.VerifyRows(f.Options(), f.Rows()); !rep.OK {
			t.Error(rep.Findings)
		}
	}
}

func TestSecretInSubjectIsAnAlarm(t *testing.T) {
	f := evidencetest.New(t)
	key := "ghp_0123456789abcdefghijABCDEFGHIJ012345"
	if b := f.Log("gov.events.acme.r.agenthook."+key+".x", nil, []byte(evidencetest.PlainEvent)); !slices.Contains(b.RedactionFindings, build.FindingSecretInSubject) {
		t.Errorf("alarms %v", b.RedactionFindings)
	}
	if b := f.Log("gov.events.acme.r.agenthook.swordfish-97.x", nil, []byte(`{"password":"swordfish-97"}`)); !slices.Contains(b.RedactionFindings, build.FindingSecretInSubject) {
		t.Errorf("alarms %v", b.RedactionFindings)
	}
	if b := f.Log(evidencetest.EventSubject, nil, []byte(evidencetest.PlainEvent)); len(b.RedactionFindings) > 0 {
		t.Errorf("alarms %v", b.RedactionFindings)
	}
}

// Records of before redactions named action and policy still verify.
func TestOldRedactionsVerify(t *testing.T) {
	f := evidencetest.New(t)
	b := f.Log(evidencetest.EventSubject, nil, []byte(evidencetest.SecretEvent))
	if strings.Contains(string(b.Canonical), `"action"`) || strings.Contains(string(b.Canonical), `"policy"`) {
		t.Errorf("a builder without policies writes of them: %s", b.Canonical)
	}
	if rep := evidencetest.VerifyRows(f.Options(), f.Rows()); !rep.OK {
		t.Error(rep.Findings)
	}
}
