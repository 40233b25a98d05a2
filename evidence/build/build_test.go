package build_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/build"
	"github.com/countersign-dev/countersign/evidence/evidencetest"
	"github.com/countersign-dev/countersign/evidence/internal/redact"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/evidence/verify"
)

func buildOne(t *testing.T, subj string, header map[string][]string, body string) build.Built {
	t.Helper()
	f := evidencetest.New(t)
	b := f.Log(subj, header, []byte(body))
	if rep := evidencetest.VerifyRows(f.Options(), f.Rows()); !rep.OK && !strings.HasPrefix(subj, "gov.decisions.") && !strings.HasPrefix(subj, "gov.approvals.") {
		t.Errorf("does not verify: %v", rep.Findings)
	}
	return b
}

func TestBuildWithoutABody(t *testing.T) {
	structuredHeader := map[string][]string{"content-type": {"application/cloudevents+json; charset=utf-8"}}
	many := `{"a":["` + strings.Repeat(`AKIA`+`IOSFODNN7EXAMPLE","`, redact.MaxHits+1) + `"]}`
	long := `{"` + strings.Repeat("a name ", 150) + `":["` + strings.Repeat(`dana@other.example","`, 66) + `"]}`
	for name, tc := range map[string]struct {
		subj   string
		header map[string][]string
		body   string
		kind   string
		reason string
	}{
		"not json":          {evidencetest.EventSubject, nil, "{", evidence.KindUnparseable, "not_json"},
		"empty":             {evidencetest.EventSubject, nil, "", evidence.KindUnparseable, "not_json"},
		"duplicate key":     {evidencetest.EventSubject, nil, `{"a":1,"a":2}`, evidence.KindUnparseable, "duplicate_key"},
		"case collision":    {evidencetest.EventSubject, nil, `{"a":1,"A":2}`, evidence.KindUnparseable, "case_collision"},
		"utf-8":             {evidencetest.EventSubject, nil, "\"\xff\"", evidence.KindUnparseable, "invalid_utf8"},
		"big number":        {evidencetest.EventSubject, nil, `9007199254740993`, evidence.KindUnparseable, "unsafe_integer"},
		"deep":              {evidencetest.EventSubject, nil, strings.Repeat("[", 65) + strings.Repeat("]", 65), evidence.KindUnparseable, "too_deep"},
		"large":             {evidencetest.EventSubject, nil, `"` + strings.Repeat("a", 1<<20) + `"`, evidence.KindUnparseable, "too_large"},
		"request too":       {"gov.events.acme.r.aaep.s.request", nil, "{", evidence.KindUnparseable, "not_json"},
		"foreign":           {"gov.else.acme", nil, "{}", evidence.KindUnparseable, build.ReasonForeignSubject},
		"foreign class":     {"gov.quarantine.acme", nil, "{}", evidence.KindUnparseable, build.ReasonForeignSubject},
		"subject not utf-8": {"gov.events.acme.r.aaep.\xff.x", nil, "{}", evidence.KindUnparseable, build.ReasonForeignSubject},
		"cloudevent":        {evidencetest.EventSubject, structuredHeader, `{"specversion":"1.0","id":"1","source":"s"}`, evidence.KindUnparseable, build.ReasonInvalidCloudEvent},
		"cloudevent data":   {evidencetest.EventSubject, structuredHeader, `{"specversion":"1.0","id":"1","source":"s","type":"t","data_base64":"?"}`, evidence.KindUnparseable, build.ReasonInvalidCloudEvent},
		"decision":          {"gov.decisions.acme.allow.s", nil, "x", evidence.KindUnparseable, "not_json"},
		"too many secrets":  {evidencetest.EventSubject, nil, many, evidence.KindEvent, build.ReasonTooMany},
		"too long paths":    {evidencetest.EventSubject, nil, long, evidence.KindEvent, build.ReasonTooMany},
	} {
		t.Run(name, func(t *testing.T) {
			b := buildOne(t, tc.subj, tc.header, tc.body)
			if b.Record.Kind != tc.kind || b.Record.Reason != tc.reason || string(b.Record.Body) != "null" || !b.Quarantine {
				t.Errorf("kind %s, reason %s, quarantine %v, body %.40s", b.Record.Kind, b.Record.Reason, b.Quarantine, b.Record.Body)
			}
			want := digest.Keyed(evidencetest.Derived("tenant/"+b.Record.Tenant), []byte(tc.body))
			if b.Record.Session != "" {
				want = digest.NewSession(evidencetest.Derived("session/" + b.Record.Tenant + "/" + b.Record.Session)).Digest([]byte(tc.body))
			}
			if b.Record.BodyDigest != want {
				t.Errorf("digest %s, want %s", b.Record.BodyDigest, want)
			}
		})
	}
}

func TestBuildAsksForNoKeyWhereNothingIsRedacted(t *testing.T) {
	f := evidencetest.New(t)
	b, err := f.Builder.Build(events.LogMessage{Seq: 1, Time: evidencetest.Start, Subject: evidencetest.EventSubject, Body: []byte(evidencetest.PlainEvent)}, evidence.Head{}, evidencetest.NoKeys{})
	evidencetest.Must(t, err)
	if b.Record.BodyDigest != digest.Plain([]byte(evidencetest.PlainEvent)) || len(b.Record.Redactions) != 0 || b.Quarantine {
		t.Errorf("%+v", b.Record)
	}
	_, err = f.Builder.Build(events.LogMessage{Seq: 1, Time: evidencetest.Start, Subject: evidencetest.EventSubject, Body: []byte("{")}, evidence.Head{}, evidencetest.NoKeys{})
	if !errors.Is(err, evidencetest.ErrNoKeyExpected) {
		t.Errorf("without a session key: %v", err)
	}
	_, err = f.Builder.Build(events.LogMessage{Seq: 1, Time: evidencetest.Start, Subject: "gov.control.GOV.tick", Body: []byte("{")}, evidence.Head{}, evidencetest.NoKeys{})
	if !errors.Is(err, evidence.ErrKeys) {
		t.Errorf("without a tenant key: %v", err)
	}
}

func TestBuildRefusesWhatNoBrokerSends(t *testing.T) {
	f := evidencetest.New(t)
	for name, m := range map[string]events.LogMessage{
		"no sequence":  {Time: evidencetest.Start, Subject: evidencetest.EventSubject},
		"big sequence": {Seq: tree.MaxSeq + 1, Time: evidencetest.Start, Subject: evidencetest.EventSubject},
		"no time":      {Seq: 1, Subject: evidencetest.EventSubject},
		"far future":   {Seq: 1, Time: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), Subject: evidencetest.EventSubject},
	} {
		if _, err := f.Builder.Build(m, evidence.Head{}, f.Keys); !errors.Is(err, build.ErrMessage) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, shard := range []string{"", "a b", "a+b", "a\nb", strings.Repeat("x", 201), "ä"} {
		if _, err := build.NewBuilder(shard, subject.Space{}); !errors.Is(err, build.ErrShard) {
			t.Errorf("shard %q: %v", shard, err)
		}
	}
}

func TestRedactionIsCommittedTo(t *testing.T) {
	f := evidencetest.New(t)
	b := f.Log(evidencetest.EventSubject, map[string][]string{"X-Api-Key": {"abc"}}, []byte(evidencetest.SecretEvent))
	key := evidencetest.Derived("session/acme/sess-a")
	want := []struct{ path, detector, value string }{
		{"/body/tool_input/body", redact.DeclaredField, "private words"},
		{"/body/tool_input/cmd", redact.URLPassword, "hunter2"},
		{"/body/tool_input/cmd", "github_token", "ghp_0123456789abcdefghijABCDEFGHIJ012345"},
		{"/body/tool_input/headers/Authorization", redact.CredentialField, "Bearer abcdef0123456789"},
		{"/body/tool_input/to", redact.Email, "a@example.invalid"},
		{"/headers/X-Api-Key/0", redact.CredentialField, "abc"},
	}
	if len(b.Record.Redactions) != len(want) {
		t.Fatalf("%+v", b.Record.Redactions)
	}
	for i, w := range want {
		got := b.Record.Redactions[i]
		if got.Path != w.path || got.Detector != w.detector || got.Commitment != build.Commitment(key, 1, i, w.path, build.FormText, []byte(w.value)) {
			t.Errorf("%d: %+v, want %+v", i, got, w)
		}
		if strings.Contains(string(b.Canonical), w.value+`"`) {
			t.Errorf("%s is still there", w.value)
		}
	}
	if f.Keys.Asked != 1 {
		t.Errorf("the session key was asked for %d times", f.Keys.Asked)
	}
	if b.Record.BodyDigest != digest.NewSession(key).Digest([]byte(evidencetest.SecretEvent)) {
		t.Error("the digest of a redacted body is not made under the session's key")
	}
}

func TestCommitmentIsInjective(t *testing.T) {
	key := evidencetest.Derived("k")
	base := build.Commitment(key, 1, 0, "/a", build.FormText, []byte("b"))
	for name, other := range map[string]string{
		"key":         build.Commitment(evidencetest.Derived("l"), 1, 0, "/a", build.FormText, []byte("b")),
		"seq":         build.Commitment(key, 2, 0, "/a", build.FormText, []byte("b")),
		"index":       build.Commitment(key, 1, 1, "/a", build.FormText, []byte("b")),
		"path":        build.Commitment(key, 1, 0, "/as", 'b', nil),
		"form":        build.Commitment(key, 1, 0, "/a", build.FormJSON, []byte("b")),
		"value":       build.Commitment(key, 1, 0, "/a", build.FormText, []byte("c")),
		"moved bytes": build.Commitment(key, 1, 0, "/", 'a', []byte("sb")),
	} {
		if other == base {
			t.Errorf("another %s gives the same commitment", name)
		}
	}
}

func TestJSONValuesAreCommittedCanonically(t *testing.T) {
	f := evidencetest.New(t)
	b := f.Log(evidencetest.EventSubject, nil, []byte(`{"password":{"b":1.0,"a":[true]},"token":42}`))
	key := evidencetest.Derived("session/acme/sess-a")
	if got, want := b.Record.Redactions[0].Commitment, build.Commitment(key, 1, 0, "/body/password", build.FormJSON, []byte(`{"a":[true],"b":1}`)); got != want {
		t.Errorf("object: %s, want %s", got, want)
	}
	if got, want := b.Record.Redactions[1].Commitment, build.Commitment(key, 1, 1, "/body/token", build.FormJSON, []byte(`42`)); got != want {
		t.Errorf("number: %s, want %s", got, want)
	}
}

func TestRedactionPanicWithholdsTheBody(t *testing.T) {
	f := evidencetest.New(t)
	for name, broken := range map[string]build.DocumentFunc{
		"panic": func(any, string, []string, redact.Config) (any, []redact.Hit, error) {
			panic("secret: " + evidencetest.PlainEvent)
		},
		"error": func(any, string, []string, redact.Config) (any, []redact.Hit, error) {
			return nil, nil, errors.New("no")
		},
	} {
		f.Builder.SetDocument(broken)
		b := f.Log(evidencetest.EventSubject, nil, []byte(evidencetest.PlainEvent))
		if b.Record.Reason != build.ReasonRedactionFailed || string(b.Record.Body) != "null" || !b.Quarantine || b.Record.Kind != evidence.KindEvent {
			t.Errorf("%s: %+v", name, b.Record)
		}
		want := build.Commitment(evidencetest.Derived("session/acme/sess-a"), b.Record.Seq, 0, "/body", build.FormText, []byte(evidencetest.PlainEvent))
		if got := b.Record.Redactions[0]; got.Detector != redact.Withheld || got.Commitment != want {
			t.Errorf("%s: %+v", name, got)
		}
		// A finding has then no severity that its subject could contradict.
		if b := f.Log("gov.findings.acme.high.s", nil, []byte(`{"note":"not ours"}`)); b.Record.Reason != build.ReasonRedactionFailed || b.Record.Kind != evidence.KindFinding {
			t.Errorf("%s: %+v", name, b.Record)
		}
	}
	if rep := evidencetest.VerifyRows(f.Options(), f.Rows()); !rep.OK {
		t.Error(rep.Findings)
	}
}

// A decision's signature covers its bytes; the record must keep every one, even
// where a name in it looks like personal data.
func TestDecisionSignatureVerifiesFromTheRecord(t *testing.T) {
	f := evidencetest.New(t)
	b := f.Decision(events.Decision{DecisionID: "0199a000-0000-7000-8000-000000000001", Tenant: "acme", Session: "s", Agent: "dana@acme.example", Tool: "call +1 212 555 0123",
		Verdict: events.Deny, Reasons: []events.Reason{}, RequestDigest: digest.Plain(nil), DecidedAt: events.At(evidencetest.Start)})
	rec, err := evidence.ParseRecord(b.Canonical)
	evidencetest.Must(t, err)
	if string(rec.Body) != string(f.Messages[0].Body) {
		t.Errorf("the body changed:\n%s\n%s", rec.Body, f.Messages[0].Body)
	}
	set := signing.KeySet{f.Receipt.ID: f.Receipt.Public()}
	if _, err := set.VerifyRecord(rec.Headers[events.HeaderSignature][0], rec.Body); err != nil {
		t.Error(err)
	}
}

// A signature is random text: one that happens to look like a token must stay as
// it is on a decision, and only there.
func TestSignatureThatLooksLikeASecret(t *testing.T) {
	signature := "eyJhbGciOiJFZERTQSJ9..A-" + "ghp" + "_" + strings.Repeat("a1B2c3D4e5", 4) + "-Zz"
	header := map[string][]string{events.HeaderSignature: {signature}}
	for name, c := range map[string]struct {
		subject string
		header  map[string][]string
		kept    bool
	}{
		"on a decision":            {"gov.decisions.acme.allow.s", header, true},
		"on an event":              {evidencetest.EventSubject, header, false},
		"another header":           {"gov.decisions.acme.allow.s", map[string][]string{"X-Note": {signature}}, false},
		"not in the form of a JWS": {"gov.decisions.acme.allow.s", map[string][]string{events.HeaderSignature: {signature + " x"}}, false},
		"twice":                    {"gov.decisions.acme.allow.s", map[string][]string{events.HeaderSignature: {signature, signature}}, false},
	} {
		if kept := strings.Contains(string(buildOne(t, c.subject, c.header, evidencetest.PlainEvent).Canonical), signature); kept != c.kept {
			t.Errorf("%s: kept is %t, want %t", name, kept, c.kept)
		}
	}
}

func TestForeignDecisionIsRedacted(t *testing.T) {
	b := buildOne(t, "gov.decisions.acme.allow.s", nil, `{"password":"hunter2"}`)
	if strings.Contains(string(b.Canonical), "hunter2") || b.Record.Kind != evidence.KindDecision {
		t.Errorf("%s", b.Canonical)
	}
}

func TestHeaders(t *testing.T) {
	b := buildOne(t, evidencetest.EventSubject, map[string][]string{
		"Nats-Expected-Stream": {"GOV"}, "Nats-Batch-Id": {"x"}, "Nats-Batch-Else": {"kept"}, "Nats-Msg-Id": {"m"},
		"bad name": {"v"}, "~a": {"v"}, "Raw": {"\xff\xfe"}, "traceparent": {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
		"Cookie": {"a=b", ""}, "X-Note": {"ok", "see rpl_12345678"}, "AKIA" + "IOSFODNN7EXAMPLE": {"v"},
	}, evidencetest.PlainEvent)
	want := map[string]string{
		"Nats-Batch-Else": "[kept]", "Nats-Msg-Id": "[m]", "~YmFkIG5hbWU": "[v]", "~fmE": "[v]", "Raw": "[[redacted:invalid_utf8]]",
		"traceparent": "[00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01]", "Cookie": "[[redacted:credential_field] ]",
		"X-Note": "[ok see [redacted:aaep_reply_token]]", "[redacted:aws_access_key_id]": "[v]",
	}
	for name, v := range b.Record.Headers {
		if got := fmt.Sprint(v); got != want[name] {
			t.Errorf("%s: %s, want %s", name, got, want[name])
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
}

func TestTooManyHeaderSecretsWithholdAllHeaders(t *testing.T) {
	for name, values := range map[string][]string{
		"Authorization": slices.Repeat([]string{"secret"}, redact.MaxHits+1),
		"ce" + strings.Repeat("-name", redact.MaxPathBytes/5/32): slices.Repeat([]string{"dana@other.example"}, 32),
	} {
		b := buildOne(t, evidencetest.EventSubject, map[string][]string{name: values, "A": {"b"}}, evidencetest.PlainEvent)
		if len(b.Record.Headers) != 0 || len(b.Record.Redactions) != 1 || b.Record.Redactions[0].Path != "/headers" {
			t.Errorf("%.20s: %d headers, %d redactions", name, len(b.Record.Headers), len(b.Record.Redactions))
		}
	}
}

func TestStructuredCloudEvent(t *testing.T) {
	header := map[string][]string{"Content-Type": {"application/cloudevents+json"}}
	inner := `{"tool_input":{"body":"private"},"metadata":{"redaction":{"fields":["tool_input.body"]}}}`
	b := buildOne(t, evidencetest.EventSubject, header, `{"specversion":"1.0","id":"1","source":"s","type":"t","data":`+inner+`}`)
	if b.Record.Kind != evidence.KindEvent || len(b.Record.Redactions) != 1 || b.Record.Redactions[0].Path != "/body/data/tool_input/body" {
		t.Errorf("%s", b.Canonical)
	}
	for name, data := range map[string]string{"json": `{"password":"hunter2"}`, "declared": inner, "text": "x ghp_" + strings.Repeat("a1", 18)} {
		encoded := base64.StdEncoding.EncodeToString([]byte(data))
		b := buildOne(t, evidencetest.EventSubject, header, `{"specversion":"1.0","id":"1","source":"s","type":"t","data_base64":"`+encoded+`"}`)
		if strings.Contains(string(b.Canonical), encoded) || b.Record.Redactions[0].Detector != redact.EncodedData {
			t.Errorf("%s: %s", name, b.Canonical)
		}
	}
	encoded := base64.StdEncoding.EncodeToString([]byte(`{"a":1}`))
	if b := buildOne(t, evidencetest.EventSubject, header, `{"specversion":"1.0","id":"1","source":"s","type":"t","data_base64":"`+encoded+`"}`); len(b.Record.Redactions) != 0 {
		t.Errorf("harmless data was redacted: %s", b.Canonical)
	}
}

func TestScopes(t *testing.T) {
	s := subject.Space{}
	long := strings.Repeat("s", 80)
	hashed := subject.Escape(long)
	approval := func(session string) string {
		b, _ := json.Marshal(map[string]string{"session": session})
		return string(b)
	}
	for name, tc := range map[string]struct{ subj, body, kind, tenant, session string }{
		"event":            {s.Event("acme", "p", "aaep", "s 1", "a.b"), "{}", evidence.KindEvent, "acme", "s 1"},
		"request":          {s.Request("acme", "p", "aaep", "s"), "{}", evidence.KindRequest, "acme", "s"},
		"hashed session":   {s.Event("acme", "p", "aaep", long, "a"), "{}", evidence.KindEvent, "acme", hashed},
		"hashed approval":  {s.Approval("acme", "pending", "w"), approval(long), evidence.KindApproval, "acme", hashed},
		"approval":         {s.Approval("acme", "pending", "w"), approval("s 1"), evidence.KindApproval, "acme", "s 1"},
		"approval, none":   {s.Approval("acme", "pending", "w"), `{}`, evidence.KindApproval, "acme", ""},
		"session not text": {s.Event("acme", "p", "aaep", "\xff", "a"), "{}", evidence.KindEvent, "acme", "~_w"},
		"no session":       {s.Call("acme", "open", ""), "{}", evidence.KindCall, "acme", ""},
		"control":          {s.Control("GOV", "tick"), "{}", evidence.KindControl, "", ""},
	} {
		b := buildOne(t, tc.subj, nil, tc.body)
		if b.Record.Kind != tc.kind || b.Record.Tenant != tc.tenant || b.Record.Session != tc.session {
			t.Errorf("%s: %s %q %q", name, b.Record.Kind, b.Record.Tenant, b.Record.Session)
		}
		if chained := b.Record.SessionIndex != nil; chained != (tc.session != "") {
			t.Errorf("%s: chained %v", name, chained)
		}
	}
}

func TestChainThreadsHeadsThroughBatches(t *testing.T) {
	f := evidencetest.New(t)
	f.Session()
	stored := map[events.SessionID]evidence.Head{}
	loads := 0
	c := build.NewChain(func(k events.SessionID) (evidence.Head, error) { loads++; return stored[k], nil }, 1)
	for _, cut := range [][2]int{{0, 4}, {4, 5}, {5, len(f.Messages)}} {
		msgs := f.Messages[cut[0]:cut[1]]
		built, err := f.Builder.BuildBatch(c, msgs, f.Keys)
		evidencetest.Must(t, err)
		c.Commit()
		for i, b := range built {
			if b.Hash != f.Built[cut[0]+i].Hash {
				t.Errorf("record %d differs", b.Record.Seq)
			}
			if b.Record.SessionIndex != nil {
				stored[events.SessionID{Tenant: b.Record.Tenant, Session: b.Record.Session}] = b.Head()
			}
		}
	}
	if loads == 0 {
		t.Error("heads were never loaded")
	}
	if got := c.MissingHeads([]events.SessionID{{Tenant: "acme", Session: "new"}, {Tenant: "acme", Session: "new"}, {Tenant: "acme", Session: ""}}); len(got) != 1 {
		t.Errorf("missing %v", got)
	}
	c.PutHead(events.SessionID{Tenant: "acme", Session: "new"}, evidence.Head{Index: 3})
	if h, _ := c.Head(events.SessionID{Tenant: "acme", Session: "new"}); h.Index != 3 {
		t.Error("Put is not seen")
	}
	if _, err := f.Builder.BuildBatch(c, []events.LogMessage{f.Messages[0], f.Messages[2]}, f.Keys); !errors.Is(err, build.ErrOrder) {
		t.Errorf("a gap in a batch: %v", err)
	}
	bad := build.NewChain(func(events.SessionID) (evidence.Head, error) { return evidence.Head{}, errors.New("down") }, 0)
	if _, err := f.Builder.BuildBatch(bad, f.Messages, f.Keys); err == nil || bad.Staged() != 0 {
		t.Errorf("a head that cannot be loaded: %v, %d staged", err, bad.Staged())
	}
}

func FuzzBuild(f *testing.F) {
	f.Add(evidencetest.EventSubject, []byte(evidencetest.PlainEvent), "X-Api-Key", "abc")
	f.Add(evidencetest.EventSubject, []byte(evidencetest.SecretEvent), "Content-Type", "application/cloudevents+json")
	f.Add("gov.findings.acme.high.s", []byte(`{"finding_id":"f","rule":"r","severity":"low","event_ids":[],"explanation":"token=a1"}`), "\xff", "\xff")
	f.Add("gov.approvals.acme.pending.w", []byte(`{"session":"~h"}`), "", "")
	f.Add("gov.control.GOV.key", []byte(`{"kid":"x","vouch":""}`), "~", "a")
	f.Add("gov.events.acme.r.aaep.~_w.x", []byte("\x00"), "a b", "Bearer abcdefgh12345678")
	f.Fuzz(func(t *testing.T, subj string, body []byte, name, value string) {
		x := evidencetest.New(t)
		const secret = "AKIA" + "IOSFODNN7EXAMPLE"
		b := x.Log(subj, map[string][]string{name: {value, " " + secret}}, body)
		if strings.Contains(string(b.Canonical), secret) && !strings.Contains(subj+string(body)+name+value, secret) {
			t.Errorf("the planted secret is still in %s", b.Canonical)
		}
		rep := evidencetest.VerifyRows(x.Options(), x.Rows())
		for _, p := range rep.Findings { // a forged decision, approval, finding or key is for the verifier to find
			forged := strings.HasPrefix(string(p.Code), "decision_") || strings.HasPrefix(string(p.Code), "approval_") || p.Code == verify.CodeKeyVouch || p.Code == verify.CodeSubject && p.Field == "body/severity" && b.Record.Reason == ""
			if !forged {
				t.Errorf("%s in %s", p, b.Canonical)
			}
		}
	})
}
