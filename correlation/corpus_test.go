package correlation

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/correlation/corpus"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aump"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
)

// corpusCase is a case of package corpus.
type corpusCase struct {
	protocol, name string
	violates       bool
	only           string // live, recorded, or both if it is empty
	checks         []string
	lines          []tree
}

func corpusCases(t testing.TB) (list []corpusCase) {
	t.Helper()
	cases, err := corpus.Read("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		list = append(list, corpusCase{c.Protocol, c.Name, c.Violates, c.Only, c.Checks, c.Lines})
	}
	return list
}

var seconds, complete, completeAAEP = corpus.Seconds, corpus.Complete, corpus.CompleteAAEP

// recorded plays a case through Check.
func (c corpusCase) recorded(t *testing.T) []events.Finding {
	lines, now := corpus.Case{Protocol: c.protocol, Lines: c.lines}.Recording()
	found, err := Check(c.protocol, recording(lines...), CheckOptions{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// live plays a case through the log.
func (c corpusCase) live(t *testing.T) []events.Finding {
	r := c.ledger(t).run()
	all := slices.Concat(r.findings, r.checks)
	withdrawn := map[string]bool{}
	for _, f := range all {
		withdrawn[f.Retracts] = f.Retracts != ""
	}
	return slices.DeleteFunc(all, func(f events.Finding) bool { return f.Retracts != "" || withdrawn[f.FindingID] })
}

// ledger is the case as a log.
func (c corpusCase) ledger(t testing.TB) *ledger {
	l := newLedger(t)
	l.opts.RequireVerdict = false
	for n, short := range c.lines {
		if at, ok := short["broker"].(float64); ok {
			l.at(at)
		} else {
			l.at(seconds(short, n))
		}
		c.put(l, short, n)
	}
	return l
}

func (c corpusCase) put(l *ledger, short tree, n int) {
	if now, ok := short["now"].(float64); ok {
		l.idle(now)
		return
	}
	if r, ok := short["request"].(map[string]any); ok {
		l.request(complete(subject.ProtoAgentHook, r, n).(tree), fmt.Sprint("d", n))
		return
	}
	if a, ok := short["approval"].(map[string]any); ok {
		l.put(space.Approval("acme", a["status"].(string), a["workflow_id"].(string)), nil, encode(a))
		return
	}
	if docs, ok := short["publishers"].([]any); ok {
		body := encode(tree{"writer": "w", "revision": n, "digest": "d", "documents": docs})
		l.put(space.Control("GOV", events.ControlPublisher), nil, body)
		return
	}
	if d, ok := short["decision"].(map[string]any); ok {
		l.opts.RequireVerdict = true
		c.decide(l, d)
		return
	}
	if h, ok := short["hook"].(map[string]any); ok {
		l.event(set(complete(subject.ProtoAgentHook, h, n).(tree), "session_id", "sess_1"))
		return
	}
	if c.protocol == subject.ProtoAUMP {
		c.evidence(l, short, n)
		return
	}
	source := "rt1"
	if from, ok := short["from"].(string); ok {
		source = from
	}
	switch e := complete(c.protocol, short, n).(type) {
	case string:
		session := map[string]string{subject.ProtoAAEP: "sess_1"}[c.protocol] // as its events say
		l.put(space.Event("acme", source, c.protocol, cmp.Or(session, "s1"), "raw"), nil, []byte(e))
	case tree:
		if typ, _ := e["type"].(string); strings.HasPrefix(typ, "subscription.") && n%2 == 0 { // whatever session their subject names
			l.put(space.Event("acme", source, c.protocol, "sess_1", typ), nil, encode(e))
			return
		}
		if typ, _ := e["type"].(string); c.protocol == subject.ProtoAAEP {
			e = set(e, "type", strings.Replace(typ, "https://aaep-protocol.org/types/", "aaep:", 1))
		}
		l.eventFrom("acme", source, e)
	}
}

// evidence logs an AUMP evidence event, or a change of mandates. A line's number
// is its sequence; with "chained" it has its hash and that of the line before.
func (c corpusCase) evidence(l *ledger, short tree, n int) {
	if steps, ok := short["mandates"].([]any); ok {
		body := encode(tree{"writer": "w", "revision": 1, "digest": "d", "mandates": 1, "changes": steps})
		l.put(space.Control("GOV", events.ControlMandate), nil, body)
		return
	}
	if raw, ok := short["raw"].(string); ok {
		l.put(space.Event("acme", "rt1", subject.ProtoAUMP, "s1", "paid"), nil, []byte(raw))
		return
	}
	e := c.completeEvidence(l.t, n)
	l.put(space.Event("acme", "rt1", subject.ProtoAUMP, "s1", "paid"), nil, encode(e))
}

func (c corpusCase) completeEvidence(t testing.TB, n int) tree {
	short := c.lines[n]
	e := tree{
		"aump": tree{"version": "0.1.0", "type": "evidence_event"}, "id": fmt.Sprint("aump_ev_", n+1), "sequence": n + 1,
		"mandate_ref": tree{"id": "aump_mnd_1", "hash": "sha256-" + strings.Repeat("a", 64), "version": "0.1.0"},
		"created_at":  stamp(seconds(short, n)), "event_type": "paid", "summary": "It was paid.", "result": "allowed",
		"actor": tree{"role": "runtime", "id": "rt1"}, "privacy": tree{"retention": "hashes", "contains_private_fields": false},
	}
	for k, v := range short {
		switch k {
		case "at", "chained":
		case "mandate":
			e = set(e, "mandate_ref.id", v)
		case "hash":
			e = set(e, "mandate_ref.hash", v)
		default:
			e[k] = v
		}
	}
	if short["chained"] == true {
		e["hashes"] = tree{}
		if n > 0 {
			e = set(e, "hashes.previous_event_hash", c.completeEvidence(t, n-1)["hashes"].(map[string]any)["event_hash"])
		}
		parsed, err := strictjson.ParseObject(encode(e), strictjson.DefaultLimits)
		if err != nil {
			t.Fatal(err)
		}
		hash, err := aump.EventHash(parsed)
		if err != nil {
			t.Fatal(err)
		}
		e = set(e, "hashes.event_hash", hash)
	}
	return e
}

func (c corpusCase) decide(l *ledger, short tree) {
	var d events.Decision
	if err := json.Unmarshal(encode(short), &d); err != nil {
		l.t.Fatal(err)
	}
	d.Tenant, d.Source, d.DecidedAt = "acme", "rt1", events.At(l.now)
	if d.Reasons == nil {
		d.Reasons = []events.Reason{}
	}
	if d.Protocol == "" {
		d.Protocol = c.protocol
	}
	if d.Session == "" {
		d.Session = "s1"
	}
	if d.DecisionID == "" {
		d.DecisionID = fmt.Sprint("d", len(l.msgs))
	}
	if d.Tool == "" {
		d.Tool = "pay_invoice"
	}
	l.signed(d, signer)
}

// judge compares what was found with what the case says.
func (c corpusCase) judge(t *testing.T, found []events.Finding) {
	t.Helper()
	broken, hinted := map[string]bool{}, map[string]bool{}
	for _, f := range found {
		switch {
		case f.Severity == events.SeverityInfo:
			hinted[f.Rule] = true
		case checkRules[f.Rule] != nil || !c.violates || slices.Contains(c.checks, f.Rule):
			broken[f.Rule] = true
		}
	}
	bad := false
	for _, id := range c.checks {
		if (broken[id] || hinted[id]) != c.violates {
			bad = true
			t.Errorf("%s: found is %v", id, !c.violates)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(broken)) {
		if !c.violates || !slices.Contains(c.checks, id) {
			bad = true
			t.Errorf("%s is found, too", id)
		}
	}
	for _, f := range found {
		if len(f.Seqs) < len(f.EventIDs) || !slices.IsSorted(f.Seqs) || slices.Contains(f.Seqs, 0) {
			t.Errorf("%s is proved by %v of the events %v", f.Rule, f.Seqs, f.EventIDs)
		}
		if bad {
			t.Logf("  %s %s %v: %s", f.Rule, f.Severity, f.Seqs, f.Explanation)
		}
	}
}

// TestCorpus: every case, through a recording and through the log.
func TestCorpus(t *testing.T) {
	for _, c := range corpusCases(t) {
		t.Run(c.protocol+" "+c.name, func(t *testing.T) {
			if c.only != "live" {
				t.Run("recorded", func(t *testing.T) { c.judge(t, c.recorded(t)) })
			}
			if c.only != "recorded" {
				t.Run("live", func(t *testing.T) { c.judge(t, c.live(t)) })
			}
		})
	}
}

// TestCoverage: every check that counts as implemented, and every rule of ours, is
// broken by a case and kept by another that looks alike, in the corpus or, for our
// rules, in ruleCases; nothing else is claimed to be covered.
func TestCoverage(t *testing.T) {
	broken, kept := map[string]bool{}, map[string]bool{}
	for _, c := range corpusCases(t) {
		for _, id := range c.checks {
			if checkRules[id] == nil && !slices.ContainsFunc(ruleList, func(r *Rule) bool { return r.Name == id }) {
				t.Errorf("%s %q is about %s, which is not implemented", c.protocol, c.name, id)
			}
			if c.violates {
				broken[id] = true
			} else {
				kept[id] = true
			}
		}
	}
	for _, c := range ruleCases {
		for _, rule := range c.breaks() {
			broken[rule] = true
		}
		for _, rule := range c.keeps {
			kept[rule] = true
		}
	}
	for _, check := range catalogue.All() {
		if check.Status == catalogue.Implemented && !broken[check.ID] {
			t.Errorf("%s has no case that breaks it", check.ID)
		}
		if check.Status == catalogue.Implemented && !kept[check.ID] {
			t.Errorf("%s has no case that keeps it", check.ID)
		}
	}
	for _, r := range ruleList {
		if !broken[r.Name] {
			t.Errorf("%s has no case that breaks it", r.Name)
		}
		if !kept[r.Name] {
			t.Errorf("%s has no case that keeps it", r.Name)
		}
	}
}

// FuzzSessions: whatever a recording holds, it is judged, in sentences, and
// again in the same way.
func FuzzSessions(f *testing.F) {
	for _, c := range corpusCases(f) {
		var b []byte
		for n, short := range c.lines {
			switch e := complete(c.protocol, short, n).(type) {
			case string:
				b = append(append(b, e...), '\n')
			default:
				b = append(append(b, encode(e)...), '\n')
			}
		}
		f.Add(c.protocol == subject.ProtoAAEP, b)
	}
	f.Fuzz(func(t *testing.T, isAAEP bool, b []byte) {
		lines, err := ParseRecording(b)
		if err != nil || len(lines) > 200 {
			t.Skip()
		}
		protocol := subject.ProtoAgentHook
		if isAAEP {
			protocol = subject.ProtoAAEP
		}
		play := func() []events.Finding {
			found, err := Check(protocol, lines, CheckOptions{Now: epoch.Add(1000 * time.Hour)})
			if err != nil {
				t.Fatal(err)
			}
			return found
		}
		found := play()
		ids := map[string]bool{}
		for _, x := range found {
			if ids[x.FindingID] || x.Remedy == "" || x.Severity == "" || !strings.HasSuffix(x.Explanation, ".") {
				t.Errorf("finding %+v", x)
			}
			ids[x.FindingID] = true
		}
		if string(encode(found)) != string(encode(play())) {
			t.Error("not the same again")
		}
	})
}
