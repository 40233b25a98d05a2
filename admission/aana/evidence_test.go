package aana

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	wire "github.com/countersign-dev/countersign/events/aana"
)

// TestEvidenceRules: one reference beside what a confirmed write needs, and what
// it does to the route. Warnings are written after a slash.
func TestEvidenceRules(t *testing.T) {
	hour := func(h float64) doc { return doc{"freshness": doc{"status": "fresh", "max_age_hours": h}} }
	for name, k := range map[string]struct {
		ref       doc
		hard, sdk string
	}{
		"good":                           {ref("audit_record"), "accept", ""},
		"says the authorization is gone": {ref("system_state", doc{"summary": "This removes verified authorization."}), "defer evidence_missing_authorization", ""},
		"missing authorization":          {ref("system_state", doc{"summary": "Missing authorization."}), "defer evidence_missing_authorization", ""},
		"of another kind":                {ref("audit_record", doc{"summary": "Missing authorization."}), "accept", ""},
		"counterfactual":                 {ref("other", doc{"source_id": "counterfactual.missing_authorization.3"}), "defer evidence_missing_authorization", ""},
		"counterfactual in capitals":     {ref("other", doc{"source_id": "Counterfactual.missing_authorization.3"}), "accept", ""},
		"secret in the summary":          {ref("other", doc{"summary": "sk-abcdefghijkl1234"}), "refuse evidence_secret_leak", ""},
		"secret in the provenance":       {ref("other", doc{"provenance": "token=abcdefgh1"}), "refuse evidence_secret_leak", ""},
		"secret in a URL":                {ref("other", doc{"retrieval_url": "https://x.example/?api_key=abcdefgh1"}), "refuse evidence_secret_leak", ""},
		"social security":                {ref("other", doc{"summary": "123-45-6789"}), "refuse evidence_secret_leak", ""},
		"card":                           {ref("other", doc{"summary": "4111 1111 1111 1111"}), "refuse evidence_secret_leak", ""},
		"milliseconds are refused too":   {ref("other", doc{"source_id": "at-1747000000000"}), "refuse evidence_secret_leak", ""},
		"cloud key":                      {ref("other", doc{"summary": "AKIAABCDEFGHIJKLMNOP"}), "refuse evidence_secret_leak", ""},
		"short":                          {ref("other", doc{"summary": "sk-short, AKIA1, 12-34, password=x"}), "accept", ""},
		"secret in supports":             {ref("other", doc{"supports": refs("sk-abcdefghijkl1234")}), "refuse evidence_secret_leak", "accept"},
		"secret in the freshness":        {ref("other", doc{"freshness": doc{"status": "fresh", "source": "sk-abcdefghijkl1234"}}), "refuse evidence_secret_leak", "accept"},
		"full-width secret":              {ref("other", doc{"summary": "ｓｋ-abcdefghijkl1234"}), "refuse evidence_secret_leak", "accept"},
		"full-width card":                {ref("other", doc{"summary": "４１１１ １１１１ １１１１ １１１１"}), "refuse evidence_secret_leak", ""},
		"Arabic social security":         {ref("other", doc{"summary": "١٢٣-٤٥-٦٧٨٩"}), "refuse evidence_secret_leak", ""},
		"full-width telephone":           {ref("other", doc{"summary": "call ５５５-１２３-４５６７", "redaction_status": "public"}), "refuse evidence_pii_leak", ""},
		"mathematical digits":            {ref("other", doc{"summary": "\U0001D7D9\U0001D7DA\U0001D7DB-\U0001D7DC\U0001D7DD-\U0001D7DE\U0001D7DF\U0001D7E0\U0001D7E1"}), "refuse evidence_secret_leak", ""},
		"mail, redacted":                 {ref("other", doc{"summary": "owner@parcels.example"}), "accept", ""},
		"mail, public":                   {ref("other", doc{"summary": "owner@parcels.example", "redaction_status": "public"}), "refuse evidence_pii_leak", ""},
		"telephone, public":              {ref("other", doc{"summary": "call (555) 123-4567", "redaction_status": "public"}), "refuse evidence_pii_leak", ""},
		"telephone with country":         {ref("other", doc{"summary": "+1 555 123 4567", "redaction_status": "unknown"}), "refuse evidence_pii_leak /unknown_redaction_status", ""},
		"secret before personal data":    {ref("other", doc{"summary": "a@b.example 123-45-6789", "redaction_status": "public"}), "refuse evidence_secret_leak", ""},
		"sensitive":                      {ref("other", doc{"redaction_status": "sensitive"}), "refuse unsafe_redaction_status", ""},
		"stale":                          {ref("other", doc{"freshness": doc{"status": "stale"}}), "defer stale_evidence", ""},
		"168 hours old":                  {ref("other", doc{"retrieved_at": "2026-05-03T00:00:00Z"}), "accept", ""},
		"a moment older":                 {ref("other", doc{"retrieved_at": "2026-05-02T23:59:59.999Z"}), "defer stale_evidence", ""},
		"checked long ago":               {ref("other", doc{"retrieved_at": nil, "freshness": doc{"status": "fresh", "checked_at": "2020-01-01"}}), "defer stale_evidence", ""},
		"retrieved beats checked":        {ref("other", doc{"freshness": doc{"status": "fresh", "checked_at": "2020-01-01"}}), "accept", ""},
		"own limit of 12 hours":          {ref("other", hour(12)), "defer stale_evidence", "accept"},
		"own limit of 24 hours":          {ref("other", hour(24)), "accept", ""},
		"own limit of a year":            {ref("other", hour(8760), doc{"retrieved_at": "2026-05-01"}), "defer stale_evidence", ""},
		"own limit below zero":           {ref("other", hour(-1)), "defer stale_evidence", "accept"},
		"says it is older":               {ref("other", doc{"freshness": doc{"status": "fresh", "age_hours": 200}}), "defer stale_evidence", "accept"},
		"says it is not":                 {ref("other", doc{"freshness": doc{"status": "fresh", "age_hours": 100}}), "accept", ""},
		"time unreadable":                {ref("other", doc{"retrieved_at": "yesterday"}), "defer invalid_retrieved_at", ""},
		"time of the future":             {ref("other", doc{"retrieved_at": "2026-05-10T00:05:01Z"}), "defer invalid_retrieved_at", "accept"},
		"clock a little ahead":           {ref("other", doc{"retrieved_at": "2026-05-10T00:05:00Z"}), "accept", ""},
		"contradicts":                    {ref("other", doc{"contradicts": refs("x")}), "defer contradictory_evidence", ""},
		"contradicts nothing":            {ref("other", doc{"contradicts": refs()}), "accept", ""},
		"does not match":                 {ref("other", doc{"summary": "The name DOES NOT MATCH."}), "defer contradictory_evidence", ""},
		"not available":                  {ref("other", doc{"summary": "The record is Not Available."}), "defer evidence_marks_missing_information", ""},
		"unknown":                        {ref("other", doc{"summary": "The owner is unknown."}), "defer evidence_marks_missing_information", ""},
		"weak trust":                     {ref("other", doc{"trust_tier": "unverified"}), "accept /weak_trust_tier", ""},
		"unknown redaction":              {ref("other", doc{"redaction_status": "unknown"}), "accept /unknown_redaction_status", ""},
		"unknown freshness":              {ref("other", doc{"freshness": doc{"status": "unknown"}}), "accept /unknown_freshness", ""},
		"no time":                        {ref("other", doc{"retrieved_at": nil}), "accept /missing_freshness_timestamp", ""},
		"everything unsaid":              {doc{"source_id": "x"}, "accept /weak_trust_tier,unknown_redaction_status,unknown_freshness,missing_freshness_timestamp", ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, p := range profiles {
				want := k.hard
				if p == sdk && k.sdk != "" {
					want = k.sdk
				}
				want, warnings, _ := strings.Cut(want, "/")
				in := event(wire.Write, wire.Confirmed)
				in["evidence_refs"] = append(proof(wire.Confirmed), k.ref)
				d := decide(t, p, in)
				if d.said() != spell(strings.TrimSpace(want)) {
					t.Errorf("%s: %s, want %s", p, d.said(), want)
				}
				if got := strings.Join(d.Envelope.Evidence.WarningCodes, ","); got != warnings {
					t.Errorf("%s: warnings %s, want %s", p, got, warnings)
				}
				checkGate(t, d)
				// Warnings are for private reads and writes alone, and so is nothing else.
				if public := decide(t, p, event(wire.PublicRead, wire.None, doc{"evidence_refs": refs(k.ref)})); public.Envelope.Evidence.HasWarnings ||
					(public.Envelope.Action == wire.Accept) != (d.Envelope.Action == wire.Accept) {
					t.Errorf("%s: a public read %s %v", p, public.said(), public.Envelope.Evidence.WarningCodes)
				}
			}
		})
	}
}

func TestMissingEvidence(t *testing.T) {
	for c, want := range map[wire.Category]string{wire.PublicRead: "accept", wire.PrivateRead: "defer M", wire.Write: "defer M", wire.Unknown: "defer U,M"} {
		expectation{hard: want}.check(t, event(c, wire.Confirmed, doc{"evidence_refs": refs()}))
	}
	d := decide(t, hard, event(wire.Write, wire.Confirmed, doc{"evidence_refs": refs()}))
	if d.Envelope.Reasons[1] != reasonNoRefs || d.Envelope.Evidence.Issues[0].Path != "$.evidence_refs" || *d.Envelope.RefCount != 0 {
		t.Errorf("%+v", d.Envelope)
	}
	// The corrected category counts; the reference's report still speaks of the
	// declared one.
	misread := event(wire.PublicRead, wire.None, doc{"tool_name": "get_user_card", "evidence_refs": refs()})
	if h := decide(t, hard, misread); h.said() != spell("defer I,P,M") || !h.Envelope.Evidence.HasErrors {
		t.Errorf("%s %+v", h.said(), h.Envelope.Evidence)
	}
	if r := decide(t, sdk, misread); r.said() != spell("defer I,P,M") || r.Envelope.Evidence.HasErrors {
		t.Errorf("%s %+v", r.said(), r.Envelope.Evidence)
	}
}

// A Judge of an event that no schema has seen must not find more in it.
func TestJudgeWithoutASchema(t *testing.T) {
	e := &wire.Event{ToolName: "t", Category: wire.Write, Authorized: wire.Confirmed, Recommended: wire.Accept, Evidence: []wire.EvidenceRef{{}}}
	r := judge(e, Inputs{Now: now})
	if r.Route == wire.Accept || !strings.Contains(strings.Join(r.Evidence.WarningCodes, " "), codeNoProvenance) {
		t.Errorf("%s %v", r.Route, r.Evidence.WarningCodes)
	}
	if r := judge(&wire.Event{}, Inputs{Now: now}); r.Route != wire.Refuse || r.Envelope().Category != "" {
		t.Errorf("nothing at all: %s", r.Route)
	}
}

// Each list of the report names an identifier once, in order of first occurrence.
func TestReportOfEveryList(t *testing.T) {
	list := refs(
		ref("other", doc{"source_id": "a", "summary": "unknown", "citation_url": "https://x.example"}),
		ref("other", doc{"source_id": "b", "contradicts": refs("x")}),
		ref("other", doc{"source_id": "a", "summary": "conflict"}),
	)
	got := decide(t, hard, event(wire.Write, wire.Confirmed, doc{"evidence_refs": list})).Envelope.Evidence
	want := &EvidenceIntegrity{Version: "0.1", Checked: 3, Used: []string{"a", "b"}, Missing: []string{"a"}, Contradictory: []string{"b", "a"}, Citations: []string{"a"},
		Provenance: []string{"a", "b"}, Issues: []Issue{}, ErrorCodes: []string{}, WarningCodes: []string{}}
	if diff := cmp.Diff(want, got, cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".first" }, cmp.Ignore())); diff != "" {
		t.Error(diff)
	}
}

func TestParseTime(t *testing.T) {
	at := time.Date(2026, 5, 9, 10, 30, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"2026-05-09T10:30:00Z": at, "2026-05-09T10:30:00": at, "2026-05-09 10:30": at, "2026-05-09T10:30Z": at, "2026-05-09T12:30:00+02:00": at,
		"2026-05-09T12:30+0200": at, "2026-05-09T12:30:00+02": at, "2026-05-09T10:30:00.250Z": at.Add(250 * time.Millisecond), "2026-05-10T10:29:00.60+23:59": at.Add(600 * time.Millisecond), "2026-05-09": at.Truncate(24 * time.Hour),
	} {
		if got, ok := parseTime(text); !ok || !got.Equal(want) {
			t.Errorf("%s: %v %v", text, got, ok)
		}
	}
	for _, text := range []string{"", "yesterday", "2026", "2026-05", "20260509", "2026-W19-6", "2026-129", "2026-05-09T", "2026-05-09T10", "2026-02-30", "2026-05-09T25:00:00Z",
		"2026-05-09T10:30:00,5Z", "2026-05-09T1:30:00Z", "2026-05-09X10:30:00Z", " 2026-05-09", "2026-05-09T10:30:00 Z", "1747000000",
		"2026-05-09T10:30:00+24:00", "2026-05-09T10:30:00-24:00", "2026-05-09T10:30-24", "2026-05-09T10:30:00+2400", "2026-05-09T10:30:00+00:60", "2026-05-09T10:30:00+0160"} {
		if got, ok := parseTime(text); ok {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestIsCard(t *testing.T) {
	for text, want := range map[string]bool{
		"4111111111111111": true, "4111-1111-1111-1111": true, "378282246310005": true, "5555 5555 5555 4444": true, "2223003122003222": true, "4222222222222": true,
		"4111111111111112": false, "1747000000000": false, "1747000000000000": false, "411111111111": false, "41111111111111111": false, "4111.111111111111": false, "": false, "2023003122003222": false,
	} {
		if got := isCard(text); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

func TestNameWords(t *testing.T) {
	for name, want := range map[string]string{
		"get_user2card": "get user 2 card", "getUserID": "get user id", "HTTPServer": "http server", "a.b-c d": "a b c d", "ＵserＣard": "user card", "": "", "__": "", "éTude": "é tude", "x9": "x 9",
	} {
		if got := strings.Join(nameWords(name), " "); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestDigitValue holds the values of digits against those that Go's own numbers
// have in the scripts that people write in.
func TestDigitValue(t *testing.T) {
	for _, zero := range []rune{'0', '\u0660', '\u06f0', '\u0966', '\uff10', '\U0001D7CE', '\U0001D7D8', '\U0001D7F6'} {
		for want := range rune(10) {
			if got, is := digitValue(zero + want); !is || got != want {
				t.Errorf("%U: %d, want %d", zero+want, got, want)
			}
		}
	}
	if _, is := digitValue('x'); is {
		t.Error("x is no digit")
	}
}
