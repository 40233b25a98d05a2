package correlation

import (
	"cmp"
	"encoding/hex"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

// Output is a record that the Correlator emits.
type Output struct {
	Type    string           // events.TypeCall or events.TypeFinding
	State   events.CallState // of a call only
	Finding *events.Finding  // nil for a call

	// Encode sets these fields.
	Subject string
	ID      string // the CloudEvent's id; the same in every replay
	Body    []byte // canonical JSON (RFC 8785)

	call *callView // nil for a finding
}

// Encode sets Subject, ID and Body unless they are set. Any goroutine may encode an output, and
// several may encode copies of it: an output shares only unchanging memory with the Correlator.
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
		// Records consist of texts, integers and times, which always have a JSON form.
		panic("correlation: " + err.Error())
	}
}

// findingSpec describes a finding, besides its rule and its call.
type findingSpec struct {
	events   []string
	seqs     []uint64
	verdict  events.Verdict
	caseOf   string
	text     string
	severity events.Severity
	content  string // distinguishes findings with the same events
	retracts string
}

// findingFrom starts the spec of a finding that these events prove.
func findingFrom(eventIDs ...string) *findingSpec {
	spec := &findingSpec{}
	for _, id := range eventIDs {
		if id = fact.BoundID(id); id != "" && !slices.Contains(spec.events, id) {
			spec.events = append(spec.events, id)
		}
	}
	return spec
}

// withVerdict adds the verdict that counted.
func (spec *findingSpec) withVerdict(verdict effectiveVerdict) *findingSpec {
	spec.verdict = verdict.verdict
	if verdict.recorded != nil {
		spec.verdict = verdict.recorded.Verdict
		spec.seqs = append(spec.seqs, verdict.recorded.Seq)
	}
	return spec
}

// withSeq adds the sequence of a message that belongs to no timeline entry of the call.
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

// findings emits all outputs: findings, by the modes of their rules, and records of calls.
type findings struct {
	opts            *engineOptions  `snapshot:"-"` // not part of a snapshot
	subjectPrefixes subjectPrefixes `snapshot:"-"` // from opts
	timers          *timers         `snapshot:"-"` // another part, as are the next two
	history         *history        `snapshot:"-"`
	lineage         *lineage        `snapshot:"-"`

	ruleModes       map[string]ruleModes // by tenant token
	findingsSeen    int                  // findings made, whether emitted or not
	findingCount    uint64               // findings emitted
	callRecordCount uint64               // records of calls emitted
	outputs         []Output             `snapshot:"-"` // of the current message
}

// subjectPrefixes are the beginnings of output subjects.
type subjectPrefixes struct{ calls, findings string }

func subjectPrefix(s subject.Space, c subject.Class) string { return strings.TrimSuffix(s.All(c), ">") }

func newFindings(o *engineOptions, t *timers, h *history, x *lineage) *findings {
	return &findings{
		opts: o, timers: t, history: h, lineage: x, ruleModes: map[string]ruleModes{},
		subjectPrefixes: subjectPrefixes{calls: subjectPrefix(o.Space, subject.Calls), findings: subjectPrefix(o.Space, subject.Findings)},
	}
}

// clearOutputs forgets the outputs of the last message.
func (fs *findings) clearOutputs() {
	clear(fs.outputs)
	fs.outputs = fs.outputs[:0]
}

// pending are the outputs of the current message, nil if there are none. The list is valid
// until clearOutputs.
func (fs *findings) pending() []Output {
	if len(fs.outputs) == 0 {
		return nil
	}
	return fs.outputs
}

// made is the number of findings made so far, whether emitted or not.
func (fs *findings) made() int { return fs.findingsSeen }

// emitted is the number of findings and of call records emitted so far.
func (fs *findings) emitted() (findings, calls uint64) { return fs.findingCount, fs.callRecordCount }

// notEmitted is the id of a finding whose rule was off: it is not on the log, so nothing retracts
// it, whatever the mode of its rule is by then.
const notEmitted = "not emitted"

// reportRule emits a finding, unless it was emitted before, and returns its id. c is nil if
// the finding is about no call. Tenant, source and session are the call's; without a call, the
// fact's. If the finding also breaks checks of the protocol (equivalentChecks), a finding is
// emitted under each of them.
func (fs *findings) reportRule(r *Rule, c *call, f *fact.Fact, spec *findingSpec) string {
	id := fs.emitFinding(r, c, f, spec)
	fs.reportEquivalents(r, c, f, spec)
	return id
}

// reportEquivalents emits a finding under the checks of the protocol that it breaks.
func (fs *findings) reportEquivalents(r *Rule, c *call, f *fact.Fact, spec *findingSpec) {
	for _, check := range equivalentChecks(r, c, f, spec) {
		fs.emitFinding(checkRules[check], c, f, spec.asCheckFinding(r))
	}
}

// identifyFinding returns the key and the id of a finding. The same violation always has the
// same id.
func identifyFinding(r *Rule, c *call, f *fact.Fact, spec *findingSpec) (key fact.Sum, id string) {
	who, callID, occurrence := f.Origin, f.CallKey, 0
	if c != nil {
		who, callID, occurrence = *c.session.Origin, c.group.key, c.occurrence
	}
	var room [16]string
	parts := append(room[:0], "finding", r.Name, spec.caseOf, who.Key.Tenant, who.Key.Source, who.Key.Session,
		callID.ID, callID.Tool, strconv.Itoa(occurrence), spec.content, spec.retracts)
	key = fact.SumOf(append(parts, spec.events...)...)
	return key, hexID(findingPrefix, key)
}

const findingPrefix = "fnd_"

// hexID is a prefix with a sum in hexadecimal.
func hexID(prefix string, s fact.Sum) string { return prefix + hex.EncodeToString(s[:]) }

// appendHex appends a sum in hexadecimal.
func appendHex(b []byte, s *fact.Sum) []byte { return hex.AppendEncode(b, s[:]) }

// emitFinding emits a finding under one rule, unless it was emitted before, and returns its id.
// A retraction of a finding on the log is emitted in every mode.
func (fs *findings) emitFinding(r *Rule, c *call, f *fact.Fact, spec *findingSpec) string {
	fs.findingsSeen++
	who := f.Origin
	if c != nil {
		who = *c.session.Origin
	}
	mode := fs.findingMode(who, r)
	if mode == ModeOff && spec.retracts == "" || spec.retracts == notEmitted {
		return notEmitted
	}
	key, id := identifyFinding(r, c, f, spec)
	seen := fs.history.emittedFindings(fact.PublisherKey{Tenant: who.Key.Tenant, Source: who.Key.Source})
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

// noteFinding records on the call that it broke a rule, or that one finding of it is retracted.
func (x *details) noteFinding(r *Rule, severity events.Severity, spec *findingSpec) {
	switch {
	case spec.retracts != "":
		x.rules.remove(r.Name)
	case severity != events.SeverityInfo:
		x.rules.add(r.Name)
	}
}

// brokenRules are the rules of a call's findings that are not retracted, one entry for each
// finding.
type brokenRules []string

// maxOfOneRule bounds the entries of one rule. Once there are as many, the rule stays, whatever is
// retracted.
const maxOfOneRule = 8

func (b *brokenRules) add(rule string) {
	if b.count(rule) < maxOfOneRule {
		*b = append(*b, rule)
	}
}

func (b *brokenRules) remove(rule string) {
	if i := slices.Index(*b, rule); i >= 0 && b.count(rule) < maxOfOneRule {
		*b = slices.Delete(*b, i, i+1)
	}
}

func (b *brokenRules) count(rule string) (n int) {
	for _, name := range *b {
		if name == rule {
			n++
		}
	}
	return n
}

// names are the rules, each once.
func (b *brokenRules) names() iter.Seq[string] {
	return func(yield func(string) bool) {
		for i, name := range *b {
			if !slices.Contains((*b)[:i], name) && !yield(name) {
				return
			}
		}
	}
}

// size is the number of names.
func (b *brokenRules) size() (n int) {
	for range b.names() {
		n++
	}
	return n
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

// checkExplanation is the explanation of a finding under a protocol's check.
func (spec *findingSpec) checkExplanation(r *Rule) string {
	switch {
	case spec.retracts != "":
		return "An earlier finding of this check is taken back: " + cmp.Or(spec.text, "the log has shown more since") + "."
	case spec.text != "":
		return strings.TrimSuffix(r.Explanation, ".") + ": " + spec.text + "."
	}
	return r.Explanation
}

// asCheckFinding is the same finding under a protocol's check.
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

// quoteName quotes a name that a producer chose. It is bounded, and has no control characters,
// which a terminal could interpret. Of a long name only the beginning is shown: redaction does
// not recognise a truncated credential.
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

// emitCall emits a record of a call if it says more than the last record.
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
	view := new(callView)
	view.fillFrom(c, &verdict, fs.lineage)
	view.prefix, view.recordNumber = fs.subjectPrefixes.calls, c.recordCounts.add(c.state)
	fs.callRecordCount++
	fs.outputs = append(fs.outputs, Output{Type: events.TypeCall, State: c.state, call: view})
}

func appendSubject(b []byte, prefix, state string, key fact.SourceSession) []byte {
	b = append(append(append(b, prefix...), key.Tenant...), '.')
	return append(append(append(b, state...), '.'), key.Session...)
}

// withEventsOf adds the sequences of the spec's events that belong to another call, o.
func (spec *findingSpec) withEventsOf(o *call) *findingSpec {
	spec.seqs = append(spec.seqs, o.eventSeqs(spec.events)...)
	return spec
}

// evidenceSeqs are the sequences that prove the finding, in order: those of its events, and of
// the message that showed it. If there is no such message, they are the call's whole timeline.
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

// findingRef is a finding that a later event may retract.
type findingRef struct{ rule, id string }

// addRetractable records a finding that a late fail mode, verdict or announcement may retract.
func (x *details) addRetractable(rule, id string) {
	x.retractable = append(x.retractable, findingRef{rule, id})
}

// reportRetractable is reportRule for a finding that may be retracted. The findings under the
// protocol's checks may be retracted too.
func (fs *findings) reportRetractable(r *Rule, c *call, f *fact.Fact, spec *findingSpec) {
	c.addRetractable(r.Name, fs.emitFinding(r, c, f, spec))
	for _, check := range equivalentChecks(r, c, f, spec) {
		c.addRetractable(check, fs.emitFinding(checkRules[check], c, f, spec.asCheckFinding(r)))
	}
}

// takeRetractable removes and returns the retractable findings of a call under these rules.
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

// retract retracts one finding of a call. back says why. If the finding is under a check of the
// protocol and not under r, text is added.
func (fs *findings) retract(made findingRef, r *Rule, c *call, f *fact.Fact, back *findingSpec, text string) {
	back.withSeverity(events.SeverityInfo).retracting(made.id)
	if made.rule == r.Name {
		fs.reportRule(r, c, f, back)
		return
	}
	fs.emitFinding(checkRules[made.rule], c, f, back.withText(text))
}

// reportCheck emits a finding under a check of a call's protocol.
func (fs *findings) reportCheck(id string, c *call, f *fact.Fact, spec *findingSpec) string {
	return fs.emitFinding(checkRules[id], c, f, spec)
}

// findingCase is a rule and a case of its findings.
type findingCase struct{ rule, caseOf string }

// equivalentChecks are the checks of the protocol that a finding of one of our rules also
// breaks. A mutation reason excuses AH-C-080.
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

// missingRule is the protocol's check for a missing completion, nil if it has none.
func (x *details) missingRule() *Rule {
	return checkRules[x.announcingProtocol().missingCheck]
}

// orphanRules are the names of all rules and checks for orphans. setProtocols fills them.
var orphanRules []string

// ReportSessionFinding emits a finding of a session and returns its id.
func (fs *findings) ReportSessionFinding(f *fact.Fact, who fact.Origin, found *catalogue.Finding) string {
	rule, about, spec := fs.sessionFindingSpec(f, who, found)
	if found.Replaces != nil {
		id := notEmitted
		if !found.Replaces.Unsaid {
			_, _, old := fs.sessionFindingSpec(f, who, found.Replaces)
			_, id = identifyFinding(checkRules[found.Replaces.Check], nil, findingSubject(f, who, found.Replaces), old)
		}
		back := *spec
		back.retracts, back.severity, back.caseOf = id, events.SeverityInfo, caseRetracted
		fs.emitFinding(checkRules[found.Replaces.Check], nil, about, &back)
		if found.RetractsOnly {
			return id
		}
	}
	id := fs.emitFinding(rule, nil, about, spec)
	if id == notEmitted {
		found.Unsaid = true
	}
	return id
}

func (fs *findings) sessionFindingSpec(f *fact.Fact, who fact.Origin, found *catalogue.Finding) (*Rule, *fact.Fact, *findingSpec) {
	spec := findingFrom(found.Events...).withCase(found.Case).withText(found.Text).withSeverity(found.Severity)
	spec.seqs = append(spec.seqs, found.Seqs...)
	if f.Kind == fact.KindQuestionReply || len(spec.events) == 0 { // replies have no ids
		spec.withContent(f.ContentSum)
	}
	return checkRules[found.Check], findingSubject(f, who, found), spec
}

// findingSubject is a fact that names the session and the call of a finding.
func findingSubject(f *fact.Fact, who fact.Origin, found *catalogue.Finding) *fact.Fact {
	about := &fact.Fact{Origin: who, Protocol: f.Protocol}
	if found.Call != "" {
		about.CallID = fact.BoundID(found.Call)
		about.SetCallKey(fact.CallKeyOf(found.Call, ""))
	}
	return about
}

// reportEventFindings reports the checks that an event breaks by itself. A hint is reported
// once for each session.
func (fs *findings) reportEventFindings(w *protocolSession, f *fact.Fact) {
	for _, found := range f.EventFindings {
		if found.Severity == events.SeverityInfo && w != nil && !w.giveHint(found.Check+found.Case) {
			continue
		}
		fs.ReportSessionFinding(f, f.Origin, found)
	}
}

// ReportSessionFindings emits findings of a session.
func (fs *findings) ReportSessionFindings(f *fact.Fact, who fact.Origin, found []*catalogue.Finding) {
	for _, one := range found {
		fs.ReportSessionFinding(f, who, one)
	}
}

// ReportEventFindings implements fact.Reporter.
func (fs *findings) ReportEventFindings(f *fact.Fact) { fs.reportEventFindings(nil, f) }

// ReportCheck implements fact.Reporter.
func (fs *findings) ReportCheck(check string, f *fact.Fact, content fact.Sum, text string) {
	fs.reportCheck(check, nil, f, findingFrom().withContent(content).withText(text))
}

// RetractCheck implements fact.Reporter.
func (fs *findings) RetractCheck(check, id string, f *fact.Fact, because, why string) {
	fs.reportCheck(check, nil, f, findingFrom(because).withContent(f.ContentSum).withCase(caseRetracted).withSeverity(events.SeverityInfo).retracting(id).withText(why))
}

func (fs *findings) reportInvalid(f *fact.Fact, what string) {
	fs.reportRule(ruleSchema, nil, f, findingFrom(f.EventID).withContent(f.ContentSum).withText(what))
}

func (fs *findings) reportContradiction(f *fact.Fact, what string) {
	fs.reportRule(ruleSchema, nil, f, findingFrom(f.EventID).withContent(f.ContentSum).withCase(caseSubject).withText(what))
}
