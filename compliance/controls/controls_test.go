package controls

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/correlation"
	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/correlation/checks"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/verify"
)

var (
	kinds = []string{evidence.KindRequest, evidence.KindEvent, evidence.KindDecision, evidence.KindCall, evidence.KindFinding, evidence.KindApproval, evidence.KindControl, evidence.KindUnparseable}

	controlKinds = []string{events.ControlTick, events.ControlCursor, events.ControlPolicy, events.ControlMandate, events.ControlKey, events.ControlPublisher, events.ControlRules,
		events.ControlResolve, events.ControlRedaction, events.ControlKeyRetired}

	problems = []verify.Code{verify.CodeGap, verify.CodeDuplicate, verify.CodeConflict, verify.CodeHash, verify.CodeCheckpointAhead, verify.CodeTooShort, verify.CodeDecisionRetired,
		verify.CodeKeyVouch, verify.CodeDecisionSignature, verify.CodeDecisionUnsigned, verify.CodeInclusion, verify.CodeChain, verify.CodeRoot, verify.CodeCheckpointFork}
)

// Whatever an entry names exists: kinds of records, control records, rules,
// checks that are decided, problems that verification reports.
func TestEntriesNameWhatExists(t *testing.T) {
	var rules, decided []string
	for _, r := range correlation.Rules() {
		rules = append(rules, r.Name)
	}
	for _, c := range checks.All() {
		if c.Status == catalogue.Implemented {
			decided = append(decided, c.ID)
		}
	}
	var codes []string
	for _, p := range problems {
		codes = append(codes, string(p))
	}
	for _, e := range All().Entries {
		for _, named := range []struct {
			what         string
			names, known []string
		}{
			{"kind", e.From.Kinds, kinds}, {"control record", e.From.Control, controlKinds}, {"rule", e.From.Rules, rules}, {"check", e.From.Checks, decided}, {"problem", e.From.Problems, codes},
		} {
			for _, n := range named.names {
				if !slices.Contains(named.known, n) {
					t.Errorf("%s names the %s %q, which does not exist", e.ID, named.what, n)
				}
			}
		}
	}
}

func TestIndexIsWhole(t *testing.T) {
	index := All()
	if _, err := strictjson.Parse(indexJSON, strictjson.DefaultLimits); err != nil || index.Format != Format || index.Disclaimer == "" || !regexp.MustCompile(`^\d{4}-\d\d-\d\d\.[0-9a-f]{12}$`).MatchString(index.Edition) {
		t.Errorf("%v %+v", err, index.Edition)
	}
	per, seen, gaps := map[string]int{}, map[string]bool{}, 0
	for _, e := range index.Entries {
		per[e.Framework]++
		if seen[e.ID] || e.ID != e.Framework+":"+e.Reference || e.Title == "" {
			t.Errorf("%s: id or title", e.ID)
		}
		seen[e.ID] = true
		if len(e.DoesNotShow) == 0 {
			t.Errorf("%s does not say what the evidence does not show", e.ID)
		}
		if (e.Coverage == None) != (len(e.Shows) == 0) || (e.Coverage == None) != (len(e.From.Kinds) == 0) {
			t.Errorf("%s: coverage %q with %d lines of what is shown", e.ID, e.Coverage, len(e.Shows))
		}
		if !slices.Contains([]Coverage{Direct, Partial, Indirect, None}, e.Coverage) {
			t.Errorf("%s: coverage %q", e.ID, e.Coverage)
		}
		if e.Coverage == None {
			gaps++
		}
	}
	for _, f := range index.Frameworks {
		if per[f.ID] == 0 || f.Covered == "" {
			t.Errorf("%s has %d entries", f.ID, per[f.ID])
		}
		delete(per, f.ID)
	}
	if len(per) > 0 || gaps < 10 {
		t.Errorf("entries of unknown frameworks %v; %d gaps", per, gaps)
	}
	for _, want := range []string{"Art. 12", "Art. 14", "Art. 19", "Art. 26", "CC6", "CC7", "A.6.2.8", "C9.1", "C9.8", "MEASURE", "GOVERN", "MAP", "MANAGE"} {
		if !slices.ContainsFunc(index.Entries, func(e Entry) bool { return strings.HasPrefix(e.Reference, want) }) {
			t.Errorf("nothing about %s", want)
		}
	}
}

// Everything that the index says it goes through is in it, gaps included: each
// paragraph of the articles, each criterion, each section.
func TestNothingIsLeftOut(t *testing.T) {
	want := map[string][]string{
		"eu-ai-act": {"Art. 12(1)", "Art. 12(2)(a)", "Art. 12(2)(b)", "Art. 12(2)(c)", "Art. 12(3)",
			"Art. 14(1)", "Art. 14(2)", "Art. 14(3)", "Art. 14(4)(a)", "Art. 14(4)(b)", "Art. 14(4)(c)", "Art. 14(4)(d)", "Art. 14(4)(e)", "Art. 14(5)",
			"Art. 19(1)", "Art. 19(2)",
			"Art. 26(1)", "Art. 26(2)", "Art. 26(3)", "Art. 26(4)", "Art. 26(5)", "Art. 26(6)", "Art. 26(7), (11)", "Art. 26(8)", "Art. 26(9)", "Art. 26(10)", "Art. 26(12)"},
		"soc2":        {"CC6.1", "CC6.2", "CC6.3", "CC6.4", "CC6.5", "CC6.6", "CC6.7", "CC6.8", "CC7.1", "CC7.2", "CC7.3", "CC7.4", "CC7.5"},
		"iso-42001":   {"8.1", "9.1", "10.2", "A.6.2.6", "A.6.2.8", "A.9.2", "A.9.4"},
		"aisvs":       {"C9.1", "C9.2.1", "C9.3", "C9.4.1", "C9.4.2", "C9.4.3", "C9.4.4", "C9.5", "C9.6", "C9.7", "C9.8"},
		"nist-ai-rmf": {"GOVERN 1.4", "MAP 3.5", "MEASURE 2.4", "MEASURE 2.7", "MANAGE 2.4", "MANAGE 4.1"},
	}
	for framework, list := range want {
		for _, reference := range list {
			if _, there := Find(framework + ":" + reference); !there {
				t.Errorf("%s: nothing about %s", framework, reference)
			}
		}
	}
}

// Control records are in no bundle: what they show stands apart, where an entry rests on other records too.
func TestWhatControlRecordsShowStandsApart(t *testing.T) {
	ofControl := regexp.MustCompile(`(?i)control record|revocation|revoked (mandates|keys)|retired|\bchanges? of\b|registration`)
	for _, e := range All().Entries {
		if len(e.ShowsOnLog) > 0 && len(e.From.Control) == 0 {
			t.Errorf("%s names no control records", e.ID)
		}
		if slices.Equal(e.From.Kinds, []string{evidence.KindControl}) {
			continue // it is listed for no bundle
		}
		for _, text := range e.Shows {
			if m := ofControl.FindString(text); m != "" {
				t.Errorf("%s says %q of records that a bundle has: %s", e.ID, m, text)
			}
		}
	}
}

// No entry draws a conclusion of law or audit.
func TestNoConclusions(t *testing.T) {
	conclusion := regexp.MustCompile(`(?i)\b(compl(y|ies|iant|iance)|conform(s|ant|ity)?|satisf(y|ies)|fulfil|meets?|certif|guarantee|ensures?|proves that .* (lawful|legal)|adequate|sufficient)`)
	for _, e := range All().Entries {
		for _, text := range slices.Concat([]string{e.Title}, e.Shows, e.ShowsOnLog, e.DoesNotShow) {
			if m := conclusion.FindString(text); m != "" {
				t.Errorf("%s says %q: %s", e.ID, m, text)
			}
			if !strings.HasSuffix(text, ".") && text != e.Title {
				t.Errorf("%s: no sentence: %s", e.ID, text)
			}
		}
	}
}

func record(kind, subject, body string) evidence.Record {
	return evidence.Record{Kind: kind, Subject: subject, Body: json.RawMessage(body)}
}

func TestBearing(t *testing.T) {
	s := NewCounts()
	empty := s.Support()
	if len(empty.Entries) != 0 || len(empty.Without)+len(empty.NotCovered) != len(All().Entries) {
		t.Errorf("without records: %d entries", len(empty.Entries))
	}
	s.Add(record(evidence.KindDecision, "gov.decisions.a.allow.s", "{}"))
	for range 4 {
		s.Add(record(evidence.KindFinding, "gov.findings.a.high.s", "{}"))
	}
	for rule, counts := range map[string][]int{"executed_despite_deny": {1, 1, -1}, "input_drift": {1, -1}, "made_up": {1}} {
		for _, n := range counts {
			s.CountFinding(rule, n)
		}
	}
	s.Add(record(evidence.KindControl, "gov.control.GOV.key_retired", "{}"))
	b := s.Support()
	at := slices.IndexFunc(b.Entries, func(e SupportedEntry) bool { return e.ID == "soc2:CC6.1" })
	if at < 0 || b.Entries[at].Records["decision"] != 1 || b.Entries[at].Records["finding"] != 4 || b.Entries[at].Findings["executed_despite_deny"] != 1 || len(b.Entries[at].Findings) != 1 {
		t.Errorf("%+v", b.Entries)
	}
	if slices.ContainsFunc(b.Entries, func(e SupportedEntry) bool { return e.Coverage == None }) || len(b.Entries)+len(b.Without)+len(b.NotCovered) != len(All().Entries) {
		t.Error("entries are lost, or stand where they do not belong")
	}
	one, err := b.Encode()
	two, _ := s.Support().Encode()
	if err != nil || string(one) != string(two) || !json.Valid(one) {
		t.Error("the same evidence gives other bytes")
	}
}

func TestFind(t *testing.T) {
	if e, found := Find("SOC2:cc6.1"); !found || e.ID != "soc2:CC6.1" {
		t.Errorf("%+v", e)
	}
	if _, found := Find("soc2:CC9.9"); found {
		t.Error("found what is not there")
	}
}
