package correlation

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/correlation/checks"
	"github.com/countersign-dev/countersign/correlation/corpus"
	"github.com/countersign-dev/countersign/correlation/internal/eventtime"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aump"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
)

var (
	epoch     = corpus.Epoch
	signer    = mustKey(1)
	stranger  = mustKey(2)
	tenantKey = bytes.Repeat([]byte{9}, digest.KeySize)
	space     = subject.Space{}
)

func mustKey(b byte) signing.PrivateKey {
	k, err := signing.NewPrivateKey(bytes.Repeat([]byte{b}, 32))
	if err != nil {
		panic(err)
	}
	return k
}

// tree is a JSON object in a test.
type tree = corpus.Tree

// What a line of the corpus is made an event with.
var set, uuid, stamp, hook, wire = corpus.WithMember, corpus.UUID, corpus.Stamp, corpus.AgentHookEvent, corpus.AAEPEvent

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

func pre(n int) tree {
	return set(hook(n, "PreToolUse", 0), "tool_input", tree{"invoice": "A-17", "amount": 120})
}

func post(n int) tree {
	p := set(hook(n, "PostToolUse", 2), "metadata.tool_input_executed", tree{"invoice": "A-17", "amount": 120})
	return set(p, "metadata.execution", tree{"outcome": "succeeded", "started_at": stamp(1), "completed_at": stamp(2)})
}

func invoked(n int, id string) tree {
	return wire(n, "tool.invoked", 1, withID(tree{"tool": "lookup"}, id))
}

func completed(n int, id, status string) tree {
	m := tree{"tool": "lookup", "status": status}
	if status != "success" {
		m["error_message"] = "It did not work."
	}
	return wire(n, "tool.completed", 2, withID(m, id))
}

func withID(m tree, id string) tree {
	if id != "" {
		m["tool_call_id"] = id
	}
	return m
}

// testLog builds the log of a test.
type testLog struct {
	t    testing.TB
	opts Options
	msgs []events.LogMessage
	now  time.Time
}

func newTestLog(t testing.TB) *testLog {
	l := &testLog{t: t, now: epoch, opts: Options{
		Shard: "GOV", RequireVerdict: true,
		TenantKey:  func(string) []byte { return tenantKey },
		KeyVoucher: func(k events.KeyRecord) bool { return k.Vouch == "ok" },
	}}
	l.key(signer, "ok")
	return l
}

func (l *testLog) put(subj string, header map[string][]string, body []byte) uint64 {
	l.now = l.now.Add(10 * time.Millisecond)
	seq := uint64(len(l.msgs)) + 1
	l.msgs = append(l.msgs, events.LogMessage{Seq: seq, Subject: subj, Time: l.now, Header: header, Body: body})
	return seq
}

func (l *testLog) key(k signing.PrivateKey, vouch string) {
	b, err := events.Encode(events.KeyRecord{KeyID: k.ID, Use: "receipt", Algorithm: "EdDSA",
		PublicKey: signing.EncodePublic(k.Public()), CreatedAt: events.At(epoch), Vouch: vouch})
	if err != nil {
		l.t.Fatal(err)
	}
	l.put(space.Control("GOV", events.ControlKey), nil, b)
}

func (l *testLog) at(seconds float64) *testLog {
	if t := epoch.Add(time.Duration(seconds * float64(time.Second))); t.After(l.now) {
		l.now = t
	}
	return l
}

func (l *testLog) tick() { l.put(space.Control("GOV", events.ControlTick), nil, []byte(`{}`)) }

// idle lets time pass up to so many seconds, as an active correlator does on a shard
// on which nothing else happens.
func (l *testLog) idle(seconds float64) *testLog {
	end := epoch.Add(time.Duration(seconds * float64(time.Second)))
	for l.now.Add(eventtime.IdleQuarter).Before(end) {
		l.now = l.now.Add(eventtime.IdleQuarter)
		l.tick()
	}
	l.at(seconds).tick()
	return l
}

// event logs a producer's event.
func (l *testLog) event(e tree) uint64 { return l.eventFrom("acme", "rt1", e) }

func (l *testLog) eventFrom(tenant, source string, e tree) uint64 {
	session, _ := e["session_id"].(string)
	if typ, ok := e["event_type"].(string); ok {
		return l.put(space.Event(tenant, source, subject.ProtoAgentHook, session, typ), nil, encode(e))
	}
	typ, _ := e["type"].(string)
	return l.put(space.Event(tenant, source, subject.ProtoAAEP, session, strings.TrimPrefix(typ, "aaep:")), nil, encode(e))
}

// request logs the admitter's copy of a request.
func (l *testLog) request(e tree, decisionID string) uint64 {
	session, _ := e["session_id"].(string)
	protocol := subject.ProtoAAEP
	if e["event_type"] != nil {
		protocol = subject.ProtoAgentHook
	}
	return l.put(space.Request("acme", "rt1", protocol, session), map[string][]string{events.HeaderDecisionID: {decisionID}}, encode(e))
}

// decisionOn is the decision that the admitter would make of a request.
func decisionOn(e tree, id string, v events.Verdict, at time.Time) events.Decision {
	session, _ := e["session_id"].(string)
	d := events.Decision{
		DecisionID: id, EventID: e["event_id"].(string), Tenant: "acme", Source: "rt1", Session: session,
		RequestDigest: digest.Keyed(tenantKey, encode(e)), Verdict: v, Reasons: []events.Reason{},
		DecidedAt: events.At(at), ExpiresAt: events.At(at.Add(time.Minute)),
	}
	if e["event_type"] != nil {
		meta, _ := e["metadata"].(map[string]any)
		d.ToolCallID, _ = meta["tool_call_id"].(string)
		d.Protocol = subject.ProtoAgentHook
		d.Tool, _ = e["tool_name"].(string)
		input, err := events.Encode(e["tool_input"])
		if err != nil {
			panic(err)
		}
		d.ArgsDigest = digest.Keyed(tenantKey, input)
	} else {
		d.Protocol, d.Tool = subject.ProtoAAEP, e["tool"].(string)
		d.ToolCallID, _ = e["tool_call_id"].(string)
	}
	return d
}

func (l *testLog) decide(e tree, id string, v events.Verdict, change ...func(*events.Decision)) uint64 {
	d := decisionOn(e, id, v, l.now)
	for _, c := range change {
		c(&d)
	}
	return l.signed(d, signer)
}

func (l *testLog) signed(d events.Decision, k signing.PrivateKey) uint64 {
	body, err := events.Encode(d)
	if err != nil {
		l.t.Fatal(err)
	}
	return l.putSigned(space.Decision(d.Tenant, string(d.Verdict), d.Session), body, k)
}

func (l *testLog) putSigned(subj string, body []byte, k signing.PrivateKey) uint64 {
	sig, err := k.SignDetached(signing.TypeRecord, body)
	if err != nil {
		l.t.Fatal(err)
	}
	return l.put(subj, map[string][]string{events.HeaderSignature: {sig}}, body)
}

// admit logs request and decision, as the admitter does.
func (l *testLog) admit(e tree, id string, v events.Verdict, change ...func(*events.Decision)) {
	l.request(e, id)
	l.decide(e, id, v, change...)
}

func receipted(d *events.Decision) { d.ReceiptHash = "sha256:00" }

// result is what a correlator made of a log.
type result struct {
	outputs  []Output
	findings []events.Finding // of our own rules
	checks   []events.Finding // of the protocols' checks
	calls    []events.Call
	core     *Correlator
}

func (l *testLog) run() result { l.t.Helper(); return replay(l.t, l.opts, l.msgs) }

func replay(t testing.TB, o Options, msgs []events.LogMessage) result {
	t.Helper()
	r := result{core: New(o)}
	for _, m := range msgs {
		r.add(t, r.core.Apply(m))
	}
	return r
}

func (r *result) add(t testing.TB, outs []Output) {
	t.Helper()
	r.outputs = append(r.outputs, outs...)
	for _, o := range outs {
		p, err := space.Parse(o.Subject)
		if err != nil {
			t.Fatalf("output on %q: %v", o.Subject, err)
		}
		if rec := o.Finding; rec != nil {
			if checkRules[rec.Rule] != nil {
				r.checks = append(r.checks, *rec)
			} else {
				r.findings = append(r.findings, *rec)
			}
			if p.Class != subject.Findings || p.State != string(rec.Severity) || o.ID != rec.FindingID || rec.EventIDs == nil || rec.Remedy == "" {
				t.Errorf("finding %+v is not in order on %q", rec, o.Subject)
			}
			if rec.Retracts != "" && (!rec.IsRetraction() || slices.ContainsFunc(slices.Concat(r.findings, r.checks), func(f events.Finding) bool { return f.FindingID == rec.Retracts && f.Rule != rec.Rule })) {
				t.Errorf("finding %+v does not retract the one that it names", rec)
			}
			if strings.ContainsAny(rec.Explanation, "{}") || !strings.HasSuffix(rec.Explanation, ".") {
				t.Errorf("explanation %q is not a sentence", rec.Explanation)
			}
			continue
		}
		rec := recordOf(t, o)
		r.calls = append(r.calls, *rec)
		if p.Class != subject.Calls || p.State != string(rec.State) || o.State != rec.State || !strings.HasPrefix(o.ID, rec.CallID+"-") {
			t.Errorf("call %+v is not in order on %q", rec, o.Subject)
		}
	}
}

// recordOf is the record of an output that is a call.
func recordOf(t testing.TB, o Output) *events.Call {
	t.Helper()
	c, err := events.DecodeRecord[events.Call](o.Body)
	if err != nil {
		t.Fatalf("%s: %v", o.Body, err)
	}
	return &c
}

// rules lists the findings that count as "rule/severity", sorted.
func (r result) rules() []string { return rulesOf(r.findings) }

// Checks of the protocols are left out: the corpus is about them.
func rulesOf(list []events.Finding) []string {
	out := []string{}
	for _, f := range list {
		if f.Severity != events.SeverityInfo && checkRules[f.Rule] == nil {
			out = append(out, f.Rule+"/"+string(f.Severity))
		}
	}
	slices.Sort(out)
	return out
}

// last is the newest record of every call, in the order the calls began.
func (r result) last() []events.Call {
	var list []events.Call
	for _, c := range r.calls {
		i := slices.IndexFunc(list, func(x events.Call) bool { return x.CallID == c.CallID })
		if i < 0 {
			list = append(list, c)
		} else {
			list[i] = c
		}
	}
	return list
}

func (r result) only(t testing.TB) events.Call {
	t.Helper()
	list := r.last()
	if len(list) != 1 {
		t.Fatalf("%d calls, want one: %+v", len(list), list)
	}
	return list[0]
}

func wantRules(t testing.TB, got []events.Finding, want ...string) {
	t.Helper()
	slices.Sort(want)
	if want == nil {
		want = []string{}
	}
	if have := rulesOf(got); !slices.Equal(have, want) {
		t.Errorf("findings %v, want %v", have, want)
		for _, f := range got {
			t.Logf("  %s %s: %s", f.Rule, f.Severity, f.Explanation)
		}
	}
}

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

// corpusSample is the corpus; under -short every fifth case of it, of the same protocols.
func corpusSample(t testing.TB) (list []corpusCase) {
	t.Helper()
	for i, c := range corpusCases(t) {
		if i%rounds(1, 5) == 0 {
			list = append(list, c)
		}
	}
	return list
}

// rounds is a number for which fewer rounds are enough under -short, as `make race` runs the tests of the cores: the
// race detector makes them about ten times slower.
func rounds(full, short int) int {
	if testing.Short() {
		return short
	}
	return full
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
	r := c.asLog(t).run()
	all := slices.Concat(r.findings, r.checks)
	withdrawn := map[string]bool{}
	for _, f := range all {
		withdrawn[f.Retracts] = f.Retracts != ""
	}
	return slices.DeleteFunc(all, func(f events.Finding) bool { return f.Retracts != "" || withdrawn[f.FindingID] })
}

// asLog is the case as a log.
func (c corpusCase) asLog(t testing.TB) *testLog {
	l := newTestLog(t)
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

func (c corpusCase) put(l *testLog, short tree, n int) {
	if now, ok := short["now"].(float64); ok {
		l.idle(now)
		return
	}
	if r, ok := short["request"].(map[string]any); ok {
		l.request(complete(subject.ProtoAgentHook, r, n).(tree), fmt.Sprint("d", n))
		return
	}
	if a, ok := short["approval"].(map[string]any); ok {
		l.putSigned(space.Approval("acme", a["status"].(string), a["workflow_id"].(string)), encode(a), signer)
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
func (c corpusCase) evidence(l *testLog, short tree, n int) {
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

func (c corpusCase) decide(l *testLog, short tree) {
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
	for _, check := range checks.All() {
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
