package correlation

import (
	"cmp"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/correlation/internal/tables"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

// Output is one record that the correlator emits.
type Output struct {
	Type    string           // events.TypeCall or events.TypeFinding
	State   events.CallState // of a call
	Finding *events.Finding  // nil for a call

	// What follows is there when it was encoded.
	Subject string
	ID      string // of the CloudEvent; the same in every replay
	Body    []byte // RFC 8785

	call *callView // nil for a finding
}

// Encode writes Subject, ID and Body if they are not there yet. Until Reuse, outputs
// share nothing with the Correlator that changes, so that any goroutine may encode
// them, and several may encode copies of one.
func (o *Output) Encode() {
	if o.Body != nil {
		return
	}
	var err error
	if o.Finding != nil {
		o.Body, err = events.Encode(o.Finding)
	} else {
		o.Subject, o.ID, o.Body, err = o.call.encode()
	}
	if err != nil {
		// The records are made of texts, integers and times; all have a JSON form.
		panic("correlation: " + err.Error())
	}
}

// findingSpec is what a finding is about, beside its rule and call.
type findingSpec struct {
	events   []string
	seqs     []uint64
	verdict  events.Verdict
	caseOf   string
	text     string
	severity events.Severity
	content  string // tells apart what has the same events
	retracts string
}

// findingFrom starts a violation that these events prove.
func findingFrom(eventIDs ...string) *findingSpec {
	spec := &findingSpec{}
	for _, id := range eventIDs {
		if id = fact.BoundID(id); id != "" && !slices.Contains(spec.events, id) {
			spec.events = append(spec.events, id)
		}
	}
	return spec
}

// withVerdict adds the verdict that stood.
func (spec *findingSpec) withVerdict(verdict effectiveVerdict) *findingSpec {
	spec.verdict = verdict.verdict
	if verdict.recorded != nil {
		spec.verdict = verdict.recorded.Verdict
		spec.seqs = append(spec.seqs, verdict.recorded.Seq)
	}
	return spec
}

// withSeq adds the sequence of a message that is none of the call's.
func (spec *findingSpec) withSeq(seq uint64) *findingSpec {
	if seq != 0 {
		spec.seqs = append(spec.seqs, seq)
	}
	return spec
}

func (spec *findingSpec) withCase(caseOf string) *findingSpec { spec.caseOf = caseOf; return spec }

func (spec *findingSpec) withText(what string) *findingSpec { spec.text = what; return spec }

func (spec *findingSpec) withSeverity(s events.Severity) *findingSpec { spec.severity = s; return spec }

func (spec *findingSpec) retracting(findingID string) *findingSpec {
	spec.retracts = findingID
	return spec
}

func (spec *findingSpec) withContent(content fact.Sum) *findingSpec {
	spec.content = string(content[:])
	return spec
}

// findings emits what the correlator emits: findings, by the mode of their rules, and
// records of calls. No other part writes outputs.
type findings struct {
	opts            *engineOptions  `snapshot:"-"` // given anew
	subjectPrefixes subjectPrefixes `snapshot:"-"` // made of opts
	timers          *timers
	history         *history
	lineage         *lineage

	ruleModes       map[string]ruleModes // by tenant token
	findingsSeen    int                  // findings made, those that were emitted before included
	findingCount    uint64               // findings emitted
	callRecordCount uint64               // records of calls emitted
	outputs         []Output             `snapshot:"-"` // of one message
	callViewPool    `snapshot:"-"`
}

// subjectPrefixes are how the subjects of outputs begin.
type subjectPrefixes struct{ calls, findings string }

func subjectPrefix(s subject.Space, c subject.Class) string { return strings.TrimSuffix(s.All(c), ">") }

func newFindings(t *timers, h *history, x *lineage) *findings {
	return &findings{timers: t, history: h, lineage: x, ruleModes: map[string]ruleModes{}}
}

// configure sets what is no state.
func (fs *findings) configure(o *engineOptions) {
	fs.opts = o
	fs.subjectPrefixes = subjectPrefixes{calls: subjectPrefix(o.Space, subject.Calls), findings: subjectPrefix(o.Space, subject.Findings)}
}

// clearOutputs forgets the outputs of the message before.
func (fs *findings) clearOutputs() {
	clear(fs.outputs)
	fs.outputs = fs.outputs[:0]
}

// pending are the outputs of the message, nil if there are none. They are good until
// clearOutputs.
func (fs *findings) pending() []Output {
	if len(fs.outputs) == 0 {
		return nil
	}
	return fs.outputs
}

// made is how many findings were made so far, those that were emitted before included.
func (fs *findings) made() int { return fs.findingsSeen }

// emitted is how many findings and records of calls were emitted.
func (fs *findings) emitted() (findings, calls uint64) { return fs.findingCount, fs.callRecordCount }

// reportRule emits a finding, unless it was emitted before, and gives its id. c is
// nil if the finding is about no call. Tenant, source and session are those of the call,
// else those of the fact. If a check of the protocol is broken as well, a second finding
// is emitted under that check.
func (fs *findings) reportRule(r *Rule, c *call, f *fact.Fact, spec *findingSpec) string {
	id := fs.emitFinding(r, c, f, spec)
	for _, check := range equivalentChecks(r, c, f, spec) {
		fs.emitFinding(checkRules[check], c, f, spec.asCheckFinding(r))
	}
	return id
}

// identifyFinding gives the key and the id of a finding: the same for the same
// violation, whenever and however often it is seen.
func identifyFinding(r *Rule, c *call, f *fact.Fact, spec *findingSpec) (key fact.Sum, id string) {
	who, callID, occurrence := f.Origin, f.CallKey, 0
	if c != nil {
		who, callID, occurrence = *c.session.Origin, c.group.key, c.occurrence
	}
	var room [16]string
	parts := append(room[:0], "finding", r.Name, spec.caseOf, who.Key.Tenant, who.Key.Source, who.Key.Session,
		callID.Id, callID.Tool, strconv.Itoa(occurrence), spec.content, spec.retracts)
	key = fact.SumOf(append(parts, spec.events...)...)
	return key, hexID(findingPrefix, key)
}

const findingPrefix = "fnd_"

// hexID is an id in a record.
func hexID(prefix string, s fact.Sum) string {
	var room [48]byte
	return string(appendHex(append(room[:0], prefix...), &s))
}

// appendHex appends the hexadecimal form. It does for a sum what package hex does
// for any number of bytes, in a third of the time.
func appendHex(b []byte, s *fact.Sum) []byte {
	const digits = "0123456789abcdef"
	var text [2 * len(s)]byte
	for i, x := range s {
		text[2*i], text[2*i+1] = digits[x>>4], digits[x&15]
	}
	return append(b, text[:]...)
}

func (fs *findings) emitFinding(r *Rule, c *call, f *fact.Fact, spec *findingSpec) string {
	fs.findingsSeen++
	who := f.Origin
	if c != nil {
		who = *c.session.Origin
	}
	key, id := identifyFinding(r, c, f, spec)
	mode := fs.findingMode(who, r)
	if mode == ModeOff && spec.retracts == "" {
		return id
	}
	seen := fs.history.emittedFindings(fact.SourceKey{Tenant: who.Key.Tenant, Source: who.Key.Source})
	if mode == ModeOff && !retractsEmitted(seen, spec) {
		return id
	}
	if _, again := seen.Get(key); again {
		return id
	}
	seen.Put(key, struct{}{})
	finding := &events.Finding{
		FindingID: id, Rule: r.Name, Severity: events.Severity(cmp.Or(string(spec.severity), string(r.Severity))),
		Tenant: who.Tenant, Source: who.Source, Session: who.Session, ToolCallID: f.CallID,
		EventIDs: spec.events, Seqs: spec.evidenceSeqs(c, f), Explanation: explainFinding(r, c, f, spec), Remedy: r.Remedy,
		DetectedAt: events.At(fs.timers.ToBrokerTime(fs.timers.Now())), Retracts: spec.retracts,
		Enforced: mode == ModeEnforce,
	}
	if finding.EventIDs == nil {
		finding.EventIDs = []string{}
	}
	if c != nil {
		finding.CallID, finding.ToolCallID = c.callID(), c.id
		c.noteFinding(r, finding.Severity, spec)
	}
	fs.findingCount++
	about := string(appendSubject(nil, fs.subjectPrefixes.findings, string(finding.Severity), who.Key))
	fs.outputs = append(fs.outputs, Output{Subject: about, Type: events.TypeFinding, ID: id, Finding: finding})
	return id
}

// noteFinding notes on the call which rules it broke.
func (x *details) noteFinding(r *Rule, severity events.Severity, spec *findingSpec) {
	switch {
	case spec.retracts != "":
		x.rules = slices.DeleteFunc(x.rules, func(name string) bool { return name == r.Name })
	case severity != events.SeverityInfo && !slices.Contains(x.rules, r.Name):
		x.rules = append(x.rules, r.Name)
	}
}

func explainFinding(r *Rule, c *call, f *fact.Fact, spec *findingSpec) string {
	if r.isCheck {
		return spec.checkExplanation(r)
	}
	text := r.Explanation
	if special, ok := r.Cases[spec.caseOf]; ok {
		text = special
	}
	tool, id, occurrence := f.Tool, f.CallID, 0
	if c != nil {
		tool, id, occurrence = cmp.Or(f.Tool, c.tool), c.id, c.occurrence
	}
	text = expandTemplate(text, func(name string) string {
		switch name {
		case "tool":
			return quoteName(tool, "a tool")
		case "call":
			return callName(id, occurrence)
		case "verdict":
			return string(spec.verdict)
		}
		return spec.text
	})
	return strings.ToUpper(text[:1]) + text[1:]
}

// expandTemplate replaces the names in braces.
func expandTemplate(text string, value func(name string) string) string {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, "{")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		var name string
		name, text, _ = strings.Cut(rest, "}")
		b.WriteString(value(name))
	}
}

// checkExplanation is the explanation of a check's finding.
func (spec *findingSpec) checkExplanation(r *Rule) string {
	switch {
	case spec.retracts != "":
		return "An earlier finding of this check is taken back: " + cmp.Or(spec.text, "the log has shown more since") + "."
	case spec.text != "":
		return strings.TrimSuffix(r.Explanation, ".") + ": " + spec.text + "."
	}
	return r.Explanation
}

// asCheckFinding is the same violation in the words of a protocol's check.
func (spec *findingSpec) asCheckFinding(r *Rule) *findingSpec {
	cp := *spec
	cp.text, cp.severity = "see "+r.Name, ""
	if spec.retracts != "" {
		cp.severity = events.SeverityInfo
	}
	return &cp
}

func callName(id string, occurrence int) string {
	if id == "" {
		return "a call without an id"
	}
	name := "call " + quoteName(id, "")
	if occurrence > 1 {
		name += " (occurrence " + strconv.Itoa(occurrence) + ")"
	}
	return name
}

// quoteName shows a name that a producer chose: bounded, and without anything that
// a terminal could take for a command. Of a long name there is little: redaction does
// not know a credential by most of it.
func quoteName(s, absent string) string {
	if s == "" {
		return absent
	}
	const longest, beginning = 64, 8
	if len(s) > longest {
		s = strings.ToValidUTF8(s[:beginning], "") + "…"
	}
	return strconv.QuoteToGraphic(s)
}

// emitCall emits a record of a call if it says more than the last one.
func (fs *findings) emitCall(c *call) {
	again := !c.recordCounts.isZero()
	if again && c.isOpen() {
		return
	}
	verdict := c.effectiveVerdict()
	now := c.currentState(&verdict)
	if again && now == c.lastEmitted {
		return
	}
	c.lastEmitted = now
	view := fs.callViewPool.next()
	view.fillFrom(c, &verdict, fs.lineage)
	view.prefix, view.recordNumber = fs.subjectPrefixes.calls, c.recordCounts.add(c.state)
	fs.callRecordCount++
	fs.outputs = append(fs.outputs, Output{Type: events.TypeCall, State: c.state, call: view})
}

func appendSubject(b []byte, prefix, state string, key fact.SourceSession) []byte {
	b = append(append(append(b, prefix...), key.Tenant...), '.')
	return append(append(append(b, state...), '.'), key.Session...)
}

// retractsEmitted reports whether a finding takes back one that was emitted: that is done
// however the rule is switched since.
func retractsEmitted(emitted *tables.FIFO[fact.Sum, struct{}], spec *findingSpec) bool {
	id, err := hex.DecodeString(strings.TrimPrefix(spec.retracts, findingPrefix))
	if err != nil || len(id) != len(fact.Sum{}) {
		return false
	}
	key := fact.Sum(id)
	_, made := emitted.Get(key)
	return made
}

// withEventsOf adds the places of its events that belong to another call than the one that
// it is reported of.
func (spec *findingSpec) withEventsOf(o *call) *findingSpec {
	spec.seqs = append(spec.seqs, o.eventSeqs(spec.events)...)
	return spec
}

// evidenceSeqs are the sequences that prove it, in order: of its events, and of the
// message that showed it. Where time does, and what was said before, that is all
// of the call.
func (spec *findingSpec) evidenceSeqs(c *call, f *fact.Fact) []uint64 {
	list := slices.Clone(spec.seqs)
	if f.Seq != 0 {
		list = append(list, f.Seq)
	}
	switch {
	case c != nil && len(list) == 0:
		list = c.timelineSeqs()
	case c != nil:
		list = append(list, c.eventSeqs(spec.events)...)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// findingRef is a finding that later events may take back.
type findingRef struct{ rule, id string }

// addRetractable notes a finding that would not have been made, or not as it was, if what
// may come late had come in time: the fail mode, the verdict, the announcement.
func (x *details) addRetractable(rule, id string) {
	x.retractable = append(x.retractable, findingRef{rule, id})
}

// reportRetractable reports what a late word may take back, under the checks that it breaks
// as well.
func (fs *findings) reportRetractable(r *Rule, c *call, f *fact.Fact, spec *findingSpec) {
	c.addRetractable(r.Name, fs.reportRule(r, c, f, spec))
	for _, check := range equivalentChecks(r, c, f, spec) {
		_, id := identifyFinding(checkRules[check], c, f, spec.asCheckFinding(r))
		c.addRetractable(check, id)
	}
}

// takeRetractable gives what was found of a call under these rules, and forgets it.
func (x *details) takeRetractable(rules ...string) (list []findingRef) {
	x.retractable = slices.DeleteFunc(x.retractable, func(made findingRef) bool {
		is := slices.Contains(rules, made.rule)
		if is {
			list = append(list, made)
		}
		return is
	})
	if len(x.retractable) == 0 {
		x.retractable = nil
	}
	return list
}

// reportCheck emits that a call breaks a check of its protocol.
func (fs *findings) reportCheck(id string, c *call, f *fact.Fact, spec *findingSpec) string {
	return fs.emitFinding(checkRules[id], c, f, spec)
}

// findingCase is a rule of ours with the case of a finding.
type findingCase struct{ rule, caseOf string }

// equivalentChecks are the checks that a violation of one of our rules breaks. A
// recorded reason excuses AH-C-080.
func equivalentChecks(r *Rule, c *call, f *fact.Fact, spec *findingSpec) []string {
	protocol := f.Protocol
	if protocol == "" && c != nil {
		protocol = c.protocol
	}
	if r == ruleDrift && spec.caseOf == "" && f.HasMutationReason {
		return nil
	}
	return rowOf(protocol).equivalents[findingCase{r.Name, spec.caseOf}]
}

// missingRule is the protocol's check behind missing_completion, nil if it has none.
func (x *details) missingRule() *Rule {
	return checkRules[x.announcingProtocol().missingCheck]
}

// orphanRules are the rules and checks under which an orphan finding is made.
var orphanRules []string

// ReportSessionFinding emits what a session found, and gives the finding's id.
func (fs *findings) ReportSessionFinding(f *fact.Fact, who fact.Origin, found *catalogue.Finding) string {
	rule, about, spec := fs.sessionFindingSpec(f, who, found)
	if found.Replaces != nil {
		_, _, old := fs.sessionFindingSpec(f, who, found.Replaces)
		_, id := identifyFinding(checkRules[found.Replaces.Check], nil, fs.findingSubject(f, who, found.Replaces), old)
		back := *spec
		back.retracts, back.severity, back.caseOf = id, events.SeverityInfo, caseWithdrawn
		fs.emitFinding(checkRules[found.Replaces.Check], nil, about, &back)
		if found.RetractsOnly {
			return id
		}
	}
	return fs.emitFinding(rule, nil, about, spec)
}

func (fs *findings) sessionFindingSpec(f *fact.Fact, who fact.Origin, found *catalogue.Finding) (*Rule, *fact.Fact, *findingSpec) {
	spec := findingFrom(found.Events...).withCase(found.Case).withText(found.Text).withSeverity(found.Severity)
	spec.seqs = append(spec.seqs, found.Seqs...)
	if f.Kind == fact.KindQuestionReply || len(spec.events) == 0 { // replies have no ids
		spec.withContent(f.ContentSum)
	}
	return checkRules[found.Check], fs.findingSubject(f, who, found), spec
}

// findingSubject is whom and what a finding is about.
func (fs *findings) findingSubject(f *fact.Fact, who fact.Origin, found *catalogue.Finding) *fact.Fact {
	about := &fact.Fact{Origin: who, Protocol: f.Protocol}
	if found.Call != "" {
		about.CallID = fact.BoundID(found.Call)
		about.SetCallKey(fact.CallKeyOf(found.Call, ""))
	}
	return about
}

// reportEventFindings reports the checks that an event fails by itself; hints once a session.
func (fs *findings) reportEventFindings(w *protocolSession, f *fact.Fact) {
	for _, found := range f.EventFindings {
		if found.Severity == events.SeverityInfo && w != nil {
			if w.givenHints[found.Check+found.Case] {
				continue
			}
			if w.givenHints == nil {
				w.givenHints = map[string]bool{}
			}
			w.givenHints[found.Check+found.Case] = true
		}
		fs.ReportSessionFinding(f, f.Origin, found)
	}
}

func (fs *findings) ReportSessionFindings(f *fact.Fact, who fact.Origin, found []*catalogue.Finding) {
	for _, one := range found {
		fs.ReportSessionFinding(f, who, one)
	}
}

// ReportEventFindings implements fact.Reporter.
func (fs *findings) ReportEventFindings(f *fact.Fact) { fs.reportEventFindings(nil, f) }

// ReportCheck implements fact.Reporter.
func (fs *findings) ReportCheck(check string, f *fact.Fact, content fact.Sum, text string) {
	fs.emitFinding(checkRules[check], nil, f, findingFrom().withContent(content).withText(text))
}

// RetractCheck implements fact.Reporter.
func (fs *findings) RetractCheck(check, id string, f *fact.Fact, because, why string) {
	fs.reportCheck(check, nil, f, findingFrom(because).withContent(f.ContentSum).withCase(caseWithdrawn).withSeverity(events.SeverityInfo).retracting(id).withText(why))
}

func (fs *findings) reportInvalid(f *fact.Fact, what string) {
	fs.reportRule(ruleSchema, nil, f, findingFrom(f.EventID).withContent(f.ContentSum).withText(what))
}

func (fs *findings) reportContradiction(f *fact.Fact, what string) {
	fs.reportRule(ruleSchema, nil, f, findingFrom(f.EventID).withContent(f.ContentSum).withCase(caseSubject).withText(what))
}
