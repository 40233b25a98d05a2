package report

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/countersign-dev/countersign/compliance/inforce"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
)

func TestPageSaysWhatTheEvidenceSays(t *testing.T) {
	page := render(t, source(), sample(t))
	for _, want := range []string{
		"sess-2026-11-20-a", "acme", "invoice-bot", "runtime-1", "2026-11-20 06:42:01.234",
		"finance, revision 7", "finance/no-deletes", "approval_required", "would be deny", "mandate-4",
		"dana@reviewers", "supplier is known", "hmac-sha256:99e6353abb805d89…",
		"other arguments than were admitted", "yes: 413 before 417", "executed_despite_deny input_drift",
		"Stop the runtime and find out", "retracted later", "takes an earlier finding back", "sequences 428 431",
		"Personal data: an e-mail address.", "/body/tool_input/to/* (2 times)", "duplicate_key", "3 redactions in 1 record.",
		"411 to 433, 20 records", "500 records, root", "yes: SessionEnd at sequence 433, reported by runtime-1", "unbroken",
		"countersign verify --bundle BUNDLE.zip --key CHECKPOINT.pub", "687e9a9d2118142b", "witness.example/w1",
		"eu-ai-act Art. 12(1)", "Controls with nothing in this evidence", "Controls that no evidence of this kind can show",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	if strings.Contains(page, "SECRET-VALUE") {
		t.Error("the page shows an argument")
	}
}

// The page does not say more than its records and the checkpoint show.
func TestPageClaimsNoMore(t *testing.T) {
	session := render(t, source(), sample(t))
	ranged := source()
	ranged.Session, ranged.From, ranged.To = "", begin, begin.Add(time.Hour)
	inForce := whatDecided("")
	inForce.Policies[0].Text = inforce.TextComplete
	for name, tc := range map[string]struct{ page, says, saysNot string }{
		"a witness's name":          {session, "That a witness signed it, only <code>--witness</code>", "published 2026"},
		"other incarnations":        {session, "in earlier or later incarnations of it are not here", ""},
		"a session's missing":       {session, "they belong to other sessions, tenants", "only the whole log can show: a record"},
		"a destroyed key":           {session, "with the session's key, which does not leave the installation and which an erasure destroys, a value", ""},
		"a range's missing":         {render(t, ranged, sample(t)), "only the whole log can show: a record that was left out is noticed if", "they belong to other sessions"},
		"a state without a verdict": {renderWith(t, source(), sample(t), inForce), "no record here names this digest: that this was in force is the exporter&#39;s word", ""},
	} {
		if !strings.Contains(tc.page, tc.says) || tc.saysNot != "" && strings.Contains(tc.page, tc.saysNot) {
			t.Errorf("%s: the page does not say %q, or says %q", name, tc.says, tc.saysNot)
		}
	}
}

// The chains of more sessions than are followed are not said to be unbroken.
func TestChainsThatAreNotFollowed(t *testing.T) {
	c := chainCheck{prev: map[string]uint64{}}
	for i := range maxSessions {
		c.prev[fmt.Sprint(i)] = 1
	}
	b := New(Source{Tenant: "acme"})
	for session, want := range map[string]bool{"0": false, "one more": true} {
		index := uint64(2)
		b.chainCheck = c
		b.chainCheck.addRecord(evidence.Record{Seq: 1, Session: session, SessionIndex: &index})
		if said := strings.Contains(fmt.Sprint(b.completenessPairs()), "looked at in the first 100000 sessions"); said != want {
			t.Errorf("a record of session %s: %t", session, said)
		}
		rows := b.summaryRows()
		if said := strings.Contains(rows[len(rows)-1].Text, "of the first 100000 sessions"); said != want {
			t.Errorf("a record of session %s, at a glance: %t", session, said)
		}
	}
}

func TestSameRecordsGiveTheSamePage(t *testing.T) {
	if a, b := render(t, source(), sample(t)), render(t, source(), sample(t)); a != b {
		t.Error("two pages of the same records differ")
	}
}

// A page that looks different is another Format, unless only texts that Edition
// has a digest of are different: a verifier makes pages again and compares. When
// this fails, and the change is meant, raise Format's number and put the new sum
// here.
func TestFormatNamesWhatThePageLooksLike(t *testing.T) {
	page := strings.ReplaceAll(render(t, source(), sample(t)), Edition(), "EDITION")
	for _, foreign := range []string{`(?s)<style>.*</style>`, `(?s)<section aria-labelledby="controls">.*?</section>`} {
		page = regexp.MustCompile(foreign).ReplaceAllString(page, "")
	}
	sum := sha256.Sum256([]byte(page))
	const want = "countersign/report/v1 ae821454c3103f66"
	if got := Format + " " + hex.EncodeToString(sum[:8]); got != want {
		t.Errorf("the page is %s, it was %s", got, want)
	}
}

func TestNothingRecorded(t *testing.T) {
	page := render(t, source(), nil)
	for _, want := range []string{"No verdict is recorded.", "No approval was asked for.", "No call is recorded.", "No finding is recorded.", "There are no records.", "Nothing was redacted.", "no end is recorded"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	wellFormed(t, page)
}

// A text that expired is not said to be one that never was: neither where no text is left, nor where some are.
func TestExpiredIsNotNothing(t *testing.T) {
	src := source()
	src.Expired = 12
	none, some := render(t, src, nil), render(t, src, sample(t)[:4])
	for name, page := range map[string]string{"no text is left": none, "some are": some} {
		if n := strings.Count(page, "12 records expired: what they held is not in this section."); n != 8 {
			t.Errorf("%s: %d of 8 sections say what is not in them", name, n)
		}
		for _, never := range []string{"is recorded.", "was asked for.", "Nothing was redacted.", "or mandate.", "are no records.", ">none<", "<dt>Sessions</dt>", "<dt>Records</dt>", "unbroken</bdi></span></span> </dd>"} {
			if strings.Contains(page, never) {
				t.Errorf("%s: the page says %q", name, never)
			}
		}
		for _, want := range []string{"<dt><a href=\"#completeness\">Expired</a></dt>", "12 records, of which nothing is counted here", "No finding is recorded in the texts that are here."} {
			if !strings.Contains(page, want) {
				t.Errorf("%s: the page does not say %q", name, want)
			}
		}
		wellFormed(t, page)
	}
	if strings.Contains(none, "unbroken") || !strings.Contains(none, "no record here has its text") {
		t.Error("a chain that nothing here shows is said to be unbroken")
	}
	if !strings.Contains(some, "unbroken: in each session, of the records that have their text") {
		t.Error("the page does not say of which records the chain is")
	}
	src.Session, src.From, src.To = "", begin, begin.Add(time.Hour)
	if page := render(t, src, sample(t)); !strings.Contains(page, "expired records included; that the others belong to") || !strings.Contains(page, "1 session with texts here") {
		t.Error("a range does not say what is not in its counts")
	}
}

// wellFormed reads the page as XML would be read, but for void elements, so that
// every element that is opened is closed in its place.
func wellFormed(t *testing.T, page string) (elements []xml.StartElement) {
	t.Helper()
	void := regexp.MustCompile(`<(meta|br)([^>]*)>`).ReplaceAllString(page, "<$1$2/>")
	void = strings.Replace(void, "<!DOCTYPE html>", "", 1)
	void = regexp.MustCompile(`<details open>`).ReplaceAllString(void, `<details open="">`)
	style := regexp.MustCompile(`(?s)<style>.*?</style>`)
	if n := len(style.FindAllString(void, -1)); n != 1 {
		t.Errorf("%d style elements", n)
	}
	d := xml.NewDecoder(strings.NewReader(style.ReplaceAllString(void, "")))
	d.Entity = xml.HTMLEntity
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			return elements
		}
		if err != nil {
			t.Fatalf("not well-formed: %v", err)
		}
		if e, ok := tok.(xml.StartElement); ok {
			elements = append(elements, e.Copy())
		}
	}
}

func attr(e xml.StartElement, name string) string {
	for _, a := range e.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

// The elements that a page may have; no element that runs, loads or submits
// anything is among them.
var allowed = strings.Fields("html head meta title style body a header h1 h2 h3 nav ul li main section div p dl dt dd bdi details summary table caption thead tbody tr th td time span code pre br footer")

func TestMarkupIsAccessibleAndInert(t *testing.T) {
	for name, records := range map[string][]evidence.Record{"sample": sample(t), "hostile": hostile(t), "empty": nil} {
		ids, refs, level := map[string]bool{}, []string{}, 0
		counts := map[string]int{}
		for _, e := range wellFormed(t, render(t, source(), records)) {
			tag := e.Name.Local
			counts[tag]++
			if !slices.Contains(allowed, tag) {
				t.Fatalf("%s: element %s", name, tag)
			}
			for _, a := range e.Attr {
				if strings.HasPrefix(a.Name.Local, "on") || a.Name.Local == "src" || a.Name.Local == "style" {
					t.Errorf("%s: attribute %s of %s", name, a.Name.Local, tag)
				}
			}
			if id := attr(e, "id"); id != "" {
				if ids[id] {
					t.Errorf("%s: id %s is there twice", name, id)
				}
				ids[id] = true
			}
			refs = append(refs, strings.TrimPrefix(attr(e, "href"), "#"), attr(e, "aria-labelledby"))
			if href := attr(e, "href"); href != "" && !strings.HasPrefix(href, "#") {
				t.Errorf("%s: a link to %s", name, href)
			}
			if len(tag) == 2 && tag[0] == 'h' && tag[1] <= '3' && tag[1] >= '1' {
				if got := int(tag[1] - '0'); got > level+1 {
					t.Errorf("%s: %s after h%d", name, tag, level)
				} else {
					level = got
				}
			}
			if tag == "th" && attr(e, "scope") == "" {
				t.Errorf("%s: a header cell without a scope", name)
			}
			if attr(e, "class") == "scroll" && (attr(e, "tabindex") != "0" || attr(e, "aria-label") == "" || attr(e, "role") != "region") {
				t.Errorf("%s: what scrolls cannot be reached by keyboard, or has no name", name)
			}
			if tag == "html" && attr(e, "lang") != "en" {
				t.Errorf("%s: no language", name)
			}
		}
		for _, ref := range refs {
			if ref != "" && !ids[ref] {
				t.Errorf("%s: nothing has the id %s", name, ref)
			}
		}
		if counts["h1"] != 1 || counts["main"] != 1 || counts["header"] != 1 || counts["footer"] != 1 || counts["nav"] != 1 || counts["title"] != 1 || counts["table"] != counts["caption"] {
			t.Errorf("%s: landmarks %v", name, counts)
		}
	}
}

func TestHostileTextIsShownAsText(t *testing.T) {
	page := render(t, source(), hostile(t))
	_, body, _ := strings.Cut(page, "<body>")
	if strings.Contains(body, "ALL VERIFIED</h1>") || !strings.Contains(body, "⟨U+202E⟩") || !strings.Contains(body, "&lt;script&gt;alert(1)&lt;/script&gt;") {
		t.Error("hostile text is not shown as text")
	}
	for _, r := range page {
		if r != '\n' && r != ' ' && !unicode.IsPrint(r) {
			t.Fatalf("the page has the character U+%04X", r)
		}
	}
	if !utf8.ValidString(page) {
		t.Error("the page is not UTF-8")
	}
	if strings.Contains(page, strings.Repeat("W", longText+1)) {
		t.Error("a text of 100,000 letters is shown")
	}
	if strings.Count(page, "\u0301\u0301\u0301") > 0 {
		t.Error("marks pile up")
	}
}

func TestVisible(t *testing.T) {
	for in, want := range map[string]string{
		"plain text": "plain text", "a\tb\n": "a⟨U+0009⟩b⟨U+000A⟩", "\u202Ex": "⟨U+202E⟩x", "é": "é", "e\u0301\u0301\u0301": "e\u0301\u0301⟨U+0301⟩",
		"0123456789abc": "0123456789…", "日本語": "日本語", "\u00a0": "⟨U+00A0⟩", "a\xffb": "a\uFFFDb", "": "",
		"send\ufe0f": "send⟨U+FE0F⟩", "\u3164": "⟨U+3164⟩", "\u115f\u034f": "⟨U+115F⟩⟨U+034F⟩", "\u2800": "⟨U+2800⟩", "a\U000e0100": "a⟨U+E0100⟩",
	} {
		if got := visible(in, 10); got != want {
			t.Errorf("%q is shown as %q, not %q", in, got, want)
		}
	}
}

func FuzzVisible(f *testing.F) {
	f.Add("deny\u202E\x00", 5)
	f.Fuzz(func(t *testing.T, s string, most int) {
		most = min(max(most, 0), 1000)
		got := visible(s, most)
		for _, r := range got {
			if r != ' ' && !unicode.IsPrint(r) {
				t.Fatalf("%q gives U+%04X", s, r)
			}
		}
		if n := utf8.RuneCountInString(got); n > most*10+1 {
			t.Fatalf("%d characters of %d", n, most)
		}
	})
}

// A finding stands unless one of severity info under its rule retracts it, which the page need not show.
func TestRetractedFindings(t *testing.T) {
	l := &log{t: t, session: "s"}
	for i := range MaxRows {
		l.finding(events.Finding{FindingID: fmt.Sprint("f", i), Rule: "executed_despite_deny", Severity: events.SeverityCritical})
	}
	l.finding(events.Finding{FindingID: "r1", Rule: "executed_despite_deny", Severity: events.SeverityInfo, Retracts: "f3"})
	l.finding(events.Finding{FindingID: "r2", Rule: "quota_exceeded", Severity: events.SeverityInfo, Retracts: "f5"})
	l.finding(events.Finding{FindingID: "r3", Rule: "executed_despite_deny", Severity: events.SeverityMedium, Retracts: "f7"})
	b := New(source())
	for _, r := range l.records {
		b.Add(r)
	}
	for i, row := range b.markRetracted() {
		if row.Retracted != (i == 3) {
			t.Errorf("finding %d: retracted %v", i, row.Retracted)
		}
	}
	if n := b.summaryCounts.retracted; n != 2 {
		t.Errorf("%d retractions", n)
	}
}

func TestHugeSessionsAreBounded(t *testing.T) {
	l := &log{t: t, session: "huge"}
	for i := range MaxTimeline + 500 {
		l.decision(events.Decision{DecisionID: fmt.Sprint(i), Verdict: events.Deny, Tool: fmt.Sprintf("tool-%d", i), ToolCallID: fmt.Sprint(i), Policy: &events.PolicyRef{Name: fmt.Sprint("p", i)},
			Reasons: slices.Repeat([]events.Reason{{Code: "no_policy_match", Evaluator: "tool_policy"}}, 30)})
	}
	for i := range MaxRows + 10 {
		for _, state := range []events.CallState{events.CallOpen, events.CallCompleted} {
			l.call(events.Call{CallID: fmt.Sprint(i), State: state, Tool: "t"})
		}
	}
	page := render(t, source(), l.records)
	if len(page) > 24<<20 {
		t.Errorf("%d MB", len(page)>>20)
	}
	for _, want := range []string{"Records 1 to 250", "Records 9751 to 10000", "Shown are the first 10000 of 14520", "Shown are the first 2000 of 10500", "and 18 more", "10400 decisions name others", "Shown are the first 2000; all are in the records"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	if strings.Contains(page, "Records 10001") {
		t.Error("the timeline goes on")
	}
	open := strings.Count(page, "<details open>")
	if open != 3 { // verdicts, executions and timeline
		t.Errorf("%d parts are unfolded", open)
	}
}

// A session that goes on after its end is not just one that ended.
func TestEventsAfterTheEnd(t *testing.T) {
	l := &log{t: t, session: "s"}
	l.event("SessionEnd", map[string]any{"event_type": "SessionEnd"})
	l.finding(events.Finding{FindingID: "f", Rule: "missing_completion", Severity: events.SeverityMedium}) // the correlator's own
	ended := render(t, source(), l.records)
	l.request(map[string]any{"event_type": "PreToolUse"})
	l.event("PreToolUse", map[string]any{"event_type": "PreToolUse"})
	goesOn := render(t, source(), l.records)
	l.event("SessionEnd", map[string]any{"event_type": "SessionEnd"})
	const at, follow = "yes: SessionEnd at sequence 1, reported by runtime-1", "requests and events after it"
	if !strings.Contains(ended, at+"</bdi>") || !strings.Contains(goesOn, at+"; "+follow+": 2,") || strings.Contains(render(t, source(), l.records), follow) {
		t.Error("the page does not say what follows the end")
	}
}

func TestChainBreaksAreSaid(t *testing.T) {
	records := sample(t)
	records = slices.Delete(records, 4, 6)
	if page := render(t, source(), records); !strings.Contains(page, "BROKEN at sequence") || !strings.Contains(page, "record 7 of the session follows record 4") {
		t.Error("a break of the chain is not said")
	}
}
