package correlation

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aump"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// The corpus is in testdata/<protocol>-*.txt. A section
//
//	-- violates 100 104 live: what happens --
//	{"t":"tool.invoked", …}
//
// is a recorded session that must break exactly the checks that it names; one
// that "conforms" to some must break none at all, and those not even in a hint.
// A name instead of a number is one of our own rules, which count only where a
// section names one. Sections are played through Check and through the log, those marked "live" or
// "recorded" through one of the two.
//
// A line is an event, completed by what every event has:
//
//	t           the type, without its prefix
//	at          seconds after the session's beginning; otherwise the line's number
//	ask         the number of a question's reply token
//	call, m     AgentHook: tool_call_id, further metadata
//	fill        texts of so many characters, by field
//	broker      live: the broker's time, in seconds
//	from        live: another publisher
//
// null takes a member away. "times" repeats the line, with ids of its own. {"raw": …} are the bytes as they are, {"now": …} lets
// time pass to the end, {"decision": …} is a recorded decision, {"request": …}
// {"approval": …} and {"publishers": …} are messages that only a log has, {"hook": …} is an AgentHook
// event among those of AAEP.
type corpusCase struct {
	protocol, name string
	violates       bool
	only           string // live, recorded, or both if it is empty
	checks         []string
	lines          []tree
}

var sectionLine = regexp.MustCompile(`(?m)^-- (violates|conforms)((?: (?:\d{3}|[a-z]+(?:_[a-z]+)+))*)(?: (live|recorded))?: (.*) --$`)

func corpus(t testing.TB) []corpusCase {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no corpus: %v", err)
	}
	var list []corpusCase
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		protocol, _, _ := strings.Cut(filepath.Base(file), "-")
		prefix := map[string]string{protoAAEP: "AAEP-C-", protoAgentHook: "AH-C-", protoAUMP: "AUMP-E-"}[protocol]
		heads := sectionLine.FindAllStringSubmatchIndex(string(b), -1)
		for i, h := range heads {
			part := func(n int) string {
				if h[2*n] < 0 {
					return ""
				}
				return string(b[h[2*n]:h[2*n+1]])
			}
			end := len(b)
			if i+1 < len(heads) {
				end = heads[i+1][0]
			}
			c := corpusCase{protocol: protocol, violates: part(1) == "violates", only: part(3)}
			c.name = part(1) + part(2) + " " + part(4)
			for _, n := range strings.Fields(part(2)) {
				if n[0] <= '9' {
					n = prefix + n
				}
				c.checks = append(c.checks, n)
			}
			for n, line := range strings.Split(strings.TrimSpace(string(b[h[1]:end])), "\n") {
				var short tree
				if line = strings.TrimSpace(line); line == "" {
					continue
				}
				if err := json.Unmarshal([]byte(line), &short); err != nil {
					t.Fatalf("%s, %s, line %d: %v", file, c.name, n+1, err)
				}
				times, _ := short["times"].(float64)
				delete(short, "times")
				for range max(int(times), 1) {
					c.lines = append(c.lines, short)
				}
			}
			list = append(list, c)
		}
		if got, want := len(heads), strings.Count(string(b), "\n-- "); got != want {
			t.Fatalf("%s: %d sections of %d can be read", file, got, want)
		}
	}
	return list
}

// seconds is a line's time.
func seconds(short tree, n int) float64 {
	if at, ok := short["at"].(float64); ok {
		return at
	}
	return float64(n)
}

// complete makes an event of a line.
func complete(protocol string, short tree, n int) any {
	if raw, ok := short["raw"].(string); ok {
		return raw
	}
	if d, ok := short["decision"].(map[string]any); ok {
		return tree{"decision": d}
	}
	var e tree
	if protocol == protoAAEP {
		e = completeAAEP(short, n)
	} else {
		e = completeHook(short, n)
	}
	if fill, ok := short["fill"].(map[string]any); ok {
		for k, length := range fill {
			e = set(e, k, strings.Repeat("x", int(length.(float64))))
		}
	}
	for k, v := range short {
		if slices.Contains([]string{"t", "at", "ask", "call", "m", "fill", "broker", "from"}, k) {
			continue
		}
		if e[k] = v; v == nil {
			delete(e, k)
		}
	}
	return e
}

// asks are the members of questions that a line need not have.
var asks = map[string]tree{
	"awaiting.confirmation":  {"action": "Do it.", "consequence": "It is done.", "timeout_seconds": 60, "default_decision": "reject", "risk_level": "low", "irreversible": false},
	"awaiting.clarification": {"question": "Which one?", "timeout_seconds": 120},
}

func completeAAEP(short tree, n int) tree {
	typ, _ := short["t"].(string)
	if strings.HasPrefix(typ, "subscription.") {
		return set(tree{"type": typ}, "", nil)
	}
	if strings.HasSuffix(typ, ".reply") {
		return tree{"type": typ, "subscription_id": "sub_1", "timestamp": stamp(seconds(short, n))}
	}
	e := wire(100+n, typ, seconds(short, n), tree{"localization_hints": tree{"primary_language": "en"}})
	if strings.Contains(typ, ":") {
		e["type"] = typ
	}
	maps.Copy(e, asks[typ])
	if typ == "output.streaming" {
		delete(e, "summary_normal")
	}
	if slices.Contains([]string{"session.errored", "awaiting.confirmation", "awaiting.clarification", "handoff.requested"}, typ) {
		e["urgency"] = "critical"
	}
	if ask, ok := short["ask"].(string); ok {
		e["reply_token"] = "rpl_" + ask
	}
	return e
}

func completeHook(short tree, n int) tree {
	typ, _ := short["t"].(string)
	e := set(hook(100+n, typ, seconds(short, n)), "metadata", nil)
	e["timestamp"] = epoch.Add(time.Duration(seconds(short, n) * float64(time.Second))).Format("2006-01-02T15:04:05Z")
	if !strings.HasSuffix(typ, "ToolUse") {
		delete(e, "tool_name")
	}
	meta := tree{}
	if call, ok := short["call"].(string); ok {
		meta["tool_call_id"] = call
	}
	if m, ok := short["m"].(map[string]any); ok {
		maps.Copy(meta, m)
	}
	if len(meta) > 0 {
		e["metadata"] = meta
	}
	return e
}

// recorded plays a case through Check.
func (c corpusCase) recorded(t *testing.T) []events.Finding {
	var lines []any
	o := CheckOptions{}
	for n, short := range c.lines {
		if now, ok := short["now"].(float64); ok {
			o.Now = epoch.Add(time.Duration(now) * time.Second)
			continue
		}
		lines = append(lines, complete(c.protocol, short, n))
	}
	found, err := Check(c.protocol, recording(lines...), o)
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
		withdrawn[f.Withdraws] = f.Withdraws != ""
	}
	return slices.DeleteFunc(all, func(f events.Finding) bool { return f.Withdraws != "" || withdrawn[f.FindingID] })
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
		l.request(complete(protoAgentHook, r, n).(tree), fmt.Sprint("d", n))
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
		l.event(set(complete(protoAgentHook, h, n).(tree), "session_id", "sess_1"))
		return
	}
	if c.protocol == protoAUMP {
		c.evidence(l, short, n)
		return
	}
	source := "rt1"
	if from, ok := short["from"].(string); ok {
		source = from
	}
	switch e := complete(c.protocol, short, n).(type) {
	case string:
		l.put(space.Event("acme", source, c.protocol, "s1", "raw"), nil, []byte(e))
	case tree:
		if typ, _ := e["type"].(string); strings.HasPrefix(typ, "subscription.") && n%2 == 0 { // whatever session their subject names
			l.put(space.Event("acme", source, c.protocol, "sess_1", typ), nil, encode(e))
			return
		}
		if typ, _ := e["type"].(string); c.protocol == protoAAEP {
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
		l.put(space.Event("acme", "rt1", protoAUMP, "s1", "paid"), nil, []byte(raw))
		return
	}
	e := c.completeEvidence(l.t, n)
	l.put(space.Event("acme", "rt1", protoAUMP, "s1", "paid"), nil, encode(e))
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
	for _, c := range corpus(t) {
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
	for _, c := range corpus(t) {
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
	for _, c := range corpus(f) {
		var b []byte
		for n, short := range c.lines {
			switch e := complete(c.protocol, short, n).(type) {
			case string:
				b = append(append(b, e...), '\n')
			default:
				b = append(append(b, encode(e)...), '\n')
			}
		}
		f.Add(c.protocol == protoAAEP, b)
	}
	f.Fuzz(func(t *testing.T, isAAEP bool, b []byte) {
		lines, err := ParseRecording(b)
		if err != nil || len(lines) > 200 {
			t.Skip()
		}
		protocol := protoAgentHook
		if isAAEP {
			protocol = protoAAEP
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
