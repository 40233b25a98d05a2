package correlation

import (
	"cmp"
	"slices"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/correlation/checks"
	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
)

// Rule is one entry of the catalogue.
type Rule struct {
	Name     string
	Severity events.Severity // unless a case has its own
	Refs     []string        // what it comes from: checks, other specifications, places in our own documents
	Inputs   string          // what it is decided from
	// Explanation is one sentence. {tool} and {call} stand for the tool and the
	// call, {verdict} for the verdict that stood, {what} for what was found.
	Explanation string
	// Cases are the explanations of special cases, by case.
	Cases  map[string]string
	Remedy string

	isCheck bool // it is a check of package catalogue
}

// Rules gives our own rules, by name: what is broken between verdict and
// execution, whatever the protocol. The protocols' checks are in package
// catalogue; findings of both kinds name their rule.
func Rules() []Rule {
	list := make([]Rule, 0, len(ruleList))
	for _, r := range ruleList {
		list = append(list, *r)
	}
	slices.SortFunc(list, func(a, b Rule) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return list
}

// Names of the rules.
const (
	ExecutedDespiteDeny     = "executed_despite_deny"
	ExecutedWhileAskPending = "executed_while_ask_pending"
	ExecutedWithoutVerdict  = "executed_without_verdict"
	ExecutedAfterExpiry     = "executed_after_expiry"
	ExecutedBeforeVerdict   = "executed_before_verdict"
	InputDrift              = "input_drift"
	MissingCompletion       = "missing_completion"
	OrphanCompletion        = "orphan_completion"
	SchemaInvalid           = "schema_invalid"
	ReusedToolCallID        = "reused_tool_call_id"
	ForgedRecord            = "forged_record"
	DuplicateEventConflict  = "duplicate_event_conflict"
	CallAfterHandoff        = "call_after_handoff"
	ReceiptReused           = "receipt_reused"
	caseReusedOpen          = "open"
	caseReusedOnce          = "aaep"
	caseOrphan              = ""
	caseOrphanAgain         = "again"
	caseDeadline            = ""
	caseSessionEnd          = "session_end"
	caseWithdrawn           = "withdrawn"
	caseReplaced            = "replaced"
	caseFailOpen            = "fail_open"
	caseFailOpenClaimed     = "fail_open_claimed"
	caseOnlyClaimed         = "claimed"
	caseApprovalExpired     = "approval"
	caseRecordedLate        = "late"
	detailDeniedLate        = "late_denied"
	detailInvokedFirst      = "invoked_first"
	caseOvertaken           = "overtaken"
	caseClaim               = "claim"
	caseClaimNotRun         = "claim_not_run"
	caseClaimAlone          = "claim_alone"
	detailClaimDecision     = "claim_decision"
	caseOtherTool           = "tool"
	caseApprovalMismatch    = "mismatch"
	caseApprovalLate        = "late"
	caseApprovalRefused     = "refused"
	caseApprovalUnrecorded  = "unrecorded"
	caseSubject             = "subject"
	caseUndecodable         = "undecodable"
	caseKey                 = "key"
	caseVerdict             = "verdict"
	caseTrace               = "trace"
	caseTraceSubject        = "trace_subject"
)

var (
	ruleDespiteDeny = &Rule{
		Name: ExecutedDespiteDeny, Severity: events.SeverityCritical,
		Refs:        []string{"AH-C-075", "docs/architecture.md#five-ideas 3"},
		Inputs:      "decisions, verdicts that events claim, fail modes, and what the call's completion says of its execution",
		Explanation: "{tool} ran as {call} although it had been denied.",
		Remedy:      "Stop this runtime, treat what the call did as unauthorised, and find out why its gate did not hold.",
	}
	rulePending = &Rule{
		Name: ExecutedWhileAskPending, Severity: events.SeverityHigh,
		Refs:        []string{"AH-C-076", "AH-C-103", "AH-C-104", "AH-C-105"},
		Inputs:      "decisions, approvals on record and in events, and what the call's completion says of its execution",
		Explanation: "{tool} ran as {call} while the verdict was still {verdict} and no reviewer had approved it.",
		Cases: map[string]string{
			caseApprovalMismatch:   "{tool} ran as {call} on an approval that was given for something else.",
			caseApprovalLate:       "{tool} ran as {call} on an approval that came after its time was over.",
			caseApprovalRefused:    "{tool} ran as {call} although its approval had ended without a yes.",
			caseApprovalUnrecorded: "{tool} ran as {call} on an approval that only its publisher knows of; the recorded verdict is still {verdict}.",
		},
		Remedy: "Have the call reviewed after the fact, and make the runtime wait for an allow before it acts.",
	}
	ruleWithoutVerdict = &Rule{
		Name: ExecutedWithoutVerdict, Severity: events.SeverityHigh,
		Refs:        []string{"AH-C-082", "AH-C-084", "AH-C-032"},
		Inputs:      "requests, decisions, verdicts that events claim, fail modes, and completions; of a recording only if it holds a decision",
		Explanation: "{tool} ran as {call} without any recorded verdict.",
		Cases: map[string]string{
			caseFailOpen: "{tool} ran as {call} without a verdict, because its publisher's fail mode let it pass.",

			caseFailOpenClaimed: "{tool} ran as {call} and the runtime had not asked for a verdict. Its publisher says that its fail mode let it pass, but no request is on the log.",
			caseOnlyClaimed:     "{tool} ran as {call} on a verdict that the publisher claims and the admitter did not record.",
			caseRecordedLate:    "A verdict on {call} of {tool} is on the log by now; it came after the execution.",
			caseWithdrawn:       "{tool} had a reason to run as {call} without a verdict: its publisher's fail mode, which is on the log by now.",
		},
		Remedy: "Route this tool through admission, or find out how the call went around it.",
	}
	ruleExpired = &Rule{
		Name: ExecutedAfterExpiry, Severity: events.SeverityHigh,
		Refs:        []string{"docs/architecture.md#five-ideas 3", "AH-C-103"},
		Inputs:      "the expiry of the decision or the approval, and when the execution began: by its own word if it has one, otherwise when it was reported",
		Explanation: "{tool} ran as {call} after its allow had expired.",
		Cases: map[string]string{
			caseApprovalExpired: "{tool} ran as {call} after its approval had expired.",
		},
		Remedy: "Make the runtime check the receipt's expiry right before it acts, and ask again when it is over.",
	}
	ruleBeforeVerdict = &Rule{
		Name: ExecutedBeforeVerdict, Severity: events.SeverityMedium,
		Refs:        []string{"AH-C-083", "docs/architecture.md#five-ideas 1"},
		Inputs:      "place and broker time of the decision, when the execution began by its own word, and the place of an AAEP invocation",
		Explanation: "{tool} says of {call} that it started before the verdict was recorded.",
		Cases: map[string]string{
			caseRecordedLate:   "{tool} ran as {call}, and only afterwards a verdict was recorded.",
			detailDeniedLate:   "{tool} ran as {call}, and only afterwards it was denied.",
			detailInvokedFirst: "{tool} was invoked as {call} before it was denied; its end does not say whether it ran.",
		},
		Remedy: "Check that the runtime waits for the reply, and that its clock is right; its pre_commit claim proves nothing here.",
	}
	ruleDrift = &Rule{
		Name: InputDrift, Severity: events.SeverityHigh,
		Refs:        []string{"AH-C-080", "AAEP-C-082", "docs/architecture.md#five-ideas 3"},
		Inputs:      "tool and arguments of the request or announcement and of the execution; what a redaction hides is not compared",
		Explanation: "{tool} ran as {call} with other arguments than were {what}.",
		Cases: map[string]string{
			caseOtherTool: "{call} was {what} for one tool and ran {tool}.",
		},
		Remedy: "Compare the admitted and the executed arguments of this call; make the runtime check the receipt against what it is about to run.",
	}
	ruleMissing = &Rule{
		Name: MissingCompletion, Severity: events.SeverityMedium,
		Refs:        []string{"AH-C-079", "AAEP-C-081"},
		Inputs:      "requests, announcements and completions, the end of the session, and time passing on the log",
		Explanation: "{tool} was announced as {call} and nothing said how it ended before its time was over.",
		Cases: map[string]string{
			caseSessionEnd: "{tool} was announced as {call} and its session ended without a word on how it went.",
			caseWithdrawn:  "The completion of {tool} that was missing for {call} has arrived after all.",
			caseReplaced:   "No completion of {tool} is missing for {call}: another call uses the approval that it waited for.",
		},
		Remedy: "Find out whether the call ran; make the runtime report timeouts and failures, too.",
	}
	ruleOrphan = &Rule{
		Name: OrphanCompletion, Severity: events.SeverityHigh,
		Refs:        []string{"AH-C-078", "AH-C-089", "AAEP-C-080", "AAEP-C-083"},
		Inputs:      "completions, and the requests and announcements before them",
		Explanation: "{tool} was reported as done as {call}, and the runtime had neither asked for it nor announced it.",
		Cases: map[string]string{
			caseWithdrawn:   "What announces {call} of {tool} is on the log after all; its end had overtaken it.",
			caseOrphanAgain: "{tool} was reported as done as {call}, with no call of that id open any more.",
		},
		Remedy: "Check what this runtime ran outside its gate, or why its announcement was lost.",
	}
	ruleSchema = &Rule{
		Name: SchemaInvalid, Severity: events.SeverityMedium,
		Refs:        []string{"AAEP-C-001", "AAEP-C-030", "AH-C-001", "AH-C-002"},
		Inputs:      "bytes and subject of one message, and the schema of its protocol",
		Explanation: "A message does not follow its protocol: {what}.",
		Cases: map[string]string{
			caseSubject: "A message was published under a subject that contradicts it: {what}.",
		},
		Remedy: "Have the publisher validate its events before it sends them; the bytes are in the log.",
	}
	ruleReused = &Rule{
		Name: ReusedToolCallID, Severity: events.SeverityHigh,
		Refs:        []string{"AH-C-052", "AAEP-C-052", "docs/architecture.md#identity-of-a-call"},
		Inputs:      "requests and announcements under one id: of AgentHook those with other arguments while one is open, of AAEP all of a session",
		Explanation: "The id of {call} was used again for another call.",
		Cases: map[string]string{
			caseReusedOpen: "The id of {call} was used for {tool} with other arguments while an earlier call was still open under it.",
			caseReusedOnce: "The id of {call} was used for a second invocation in the same session.",
		},
		Remedy: "Make the runtime give every call an id of its own; until then its verdicts and executions are easily mistaken for each other.",
	}
	ruleForged = &Rule{
		Name: ForgedRecord, Severity: events.SeverityCritical,
		Refs:        []string{"docs/security.md#what-is-signed-by-which-key", "AH-C-082"},
		Inputs:      "decisions, keys and trace events with their signatures and subjects, and verdicts that events claim",
		Explanation: "A decision is in the log that no admitter signed: {what}.",
		Cases: map[string]string{
			caseSubject:         "A decision is in the log under a subject that contradicts it: {what}.",
			caseUndecodable:     "A message among the decisions is no decision record: {what}.",
			caseVerdict:         "A decision is in the log with a verdict that does not exist.",
			caseKey:             "A key was published or retired that the checkpoint key does not vouch for.",
			caseTrace:           "A trace event is in the log that no admitter wrote for a decision: {what}.",
			caseTraceSubject:    "A trace event is in the log under a subject that contradicts it: {what}.",
			caseClaim:           "{tool} ran as {call} on a verdict that its publisher claims to be looser than the recorded {verdict}.",
			caseClaimNotRun:     "The publisher of {tool} claims a looser verdict on {call} than the recorded {verdict}.",
			detailClaimDecision: "{tool} ran as {call} on a decision that its publisher names and that is not on record: {what}.",
			caseClaimAlone:      "The publisher of {tool} claims a verdict on {call} that is not on record: {what}.",
			caseWithdrawn:       "The verdict on {call} of {tool} that its publisher claims is on record by now.",
		},
		Remedy: "Find out which user could write this; do not trust anything that was done on it.",
	}
	ruleConflict = &Rule{
		Name: DuplicateEventConflict, Severity: events.SeverityMedium,
		Refs:        []string{"AH-C-050", "AAEP-C-050"},
		Inputs:      "events of the publisher under one id",
		Explanation: "One event id came with two contents.",
		Remedy:      "Compare both copies in the evidence; make the publisher give every event an id of its own.",
	}
	ruleAfterHandoff = &Rule{
		Name: CallAfterHandoff, Severity: events.SeverityMedium,
		Refs:        []string{"aioc RFC-0002", "docs/architecture.md#identity-of-a-call"},
		Inputs:      "recorded decisions that allow a handoff (aioc), and the agents of the requests and announcements after them; AgentHook's AgentHandoff and AAEP's handoff.requested do not count, as neither says that the agent stops",
		Explanation: "{tool} was called as {call} by an agent that had handed over to another one before.",
		Cases: map[string]string{
			caseWithdrawn: "It was not the agent that had handed over that called {tool} as {call}.",
		},
		Remedy: "Make the runtime stop an agent once its handoff was accepted; have what it asked for since decided for the agent that took over.",
	}
)

var ruleReceipt = &Rule{
	Name: ReceiptReused, Severity: events.SeverityHigh,
	Refs:        []string{"docs/architecture.md#five-ideas 3"},
	Inputs:      "decisions with a receipt, executions, and the decisions that those name",
	Explanation: "{tool} ran as {call} on a receipt that an earlier execution had used up.",
	Cases: map[string]string{
		caseReceiptOther: "{tool} ran as {call} on a receipt that was made for another call: it names decision {what}.",
	},
	Remedy: "Make the executor check every receipt against the call that it is about to run, and take each only once.",
}

var ruleList = []*Rule{
	ruleDespiteDeny, rulePending, ruleWithoutVerdict, ruleExpired, ruleBeforeVerdict, ruleDrift,
	ruleMissing, ruleOrphan, ruleSchema, ruleReused, ruleForged, ruleConflict,
	ruleAfterHandoff, ruleReceipt,
}

// approvalDetail says why an approval does not count.
func approvalDetail(c *call, a fact.Approval) string {
	want := c.awaitedApproval()
	switch {
	case a.Status == "" || a.Status == fact.StatusPending:
		return ""
	case a.Status != fact.StatusApproved:
		return caseApprovalRefused
	case !agreeIfKnown(a.Workflow, want.Workflow) || !agreeIfKnown(a.Action, want.Action):
		return caseApprovalMismatch
	case c.approvedBy(a):
		return caseApprovalUnrecorded
	}
	return caseApprovalLate
}

// checkRules are the implemented checks of the protocols as rules.
var checkRules = func() map[string]*Rule {
	m := map[string]*Rule{}
	for _, c := range checks.All() {
		if c.Status == catalogue.Implemented {
			m[c.ID] = &Rule{Name: c.ID, Severity: c.Severity, Refs: []string{c.Ref}, Explanation: c.Explanation, Remedy: c.Remedy, isCheck: true}
		}
	}
	return m
}()

// equivalentChecks are the checks that a violation of one of our rules breaks. A
// recorded reason excuses AH-C-080.
func equivalentChecks(r *Rule, c *call, f *fact.Fact, v *findingSpec) []string {
	protocol := f.Protocol
	if protocol == "" && c != nil {
		protocol = c.protocol
	}
	if r == ruleDrift && v.caseOf == "" && f.HasMutationReason {
		return nil
	}
	return rowOf(protocol).equivalents[findingCase{r.Name, v.caseOf}]
}

// missingRule is the protocol's check behind missing_completion, nil if it has none.
func (x *details) missingRule() *Rule {
	return checkRules[x.announcingProtocol().missingCheck]
}

// announcingProtocol is the row of the protocol that announced a call; of one that was not
// announced, that of the first fact about it.
func (x *details) announcingProtocol() *protocolRow {
	return rowOf(cmp.Or(x.preProtocol, x.protocol))
}

// ReportSessionFinding emits what a session found, and gives the finding's id.
func (fs *findings) ReportSessionFinding(f *fact.Fact, who fact.Origin, b *catalogue.Finding) string {
	rule, about, v := fs.sessionFindingSpec(f, who, b)
	if b.Replaces != nil {
		_, _, old := fs.sessionFindingSpec(f, who, b.Replaces)
		_, id := identifyFinding(checkRules[b.Replaces.Check], nil, fs.findingSubject(f, who, b.Replaces), old)
		back := *v
		back.retracts, back.severity, back.caseOf = id, events.SeverityInfo, caseWithdrawn
		fs.emitFinding(checkRules[b.Replaces.Check], nil, about, &back)
		if b.RetractsOnly {
			return id
		}
	}
	return fs.emitFinding(rule, nil, about, v)
}

func (fs *findings) sessionFindingSpec(f *fact.Fact, who fact.Origin, b *catalogue.Finding) (*Rule, *fact.Fact, *findingSpec) {
	v := findingFrom(b.Events...).withCase(b.Case).withText(b.Text).withSeverity(b.Severity)
	v.seqs = append(v.seqs, b.Seqs...)
	if f.Kind == fact.KindQuestionReply || len(v.events) == 0 { // replies have no ids
		v.withContent(f.ContentSum)
	}
	return checkRules[b.Check], fs.findingSubject(f, who, b), v
}

// findingSubject is whom and what a finding is about.
func (fs *findings) findingSubject(f *fact.Fact, who fact.Origin, b *catalogue.Finding) *fact.Fact {
	about := &fact.Fact{Origin: who, Protocol: f.Protocol}
	if b.Call != "" {
		about.CallID = fact.BoundID(b.Call)
		about.SetCallKey(fact.CallKeyOf(b.Call, ""))
	}
	return about
}

// unreadableCheck is the check that an event breaks that strict decoding refuses, "" if
// its protocol has none.
func unreadableCheck(p *protocolRow, code strictjson.Code) string {
	if p.unreadable == nil {
		return ""
	}
	return p.unreadable(code)
}

// reportCheck emits that a call breaks a check of its protocol.
func (fs *findings) reportCheck(id string, c *call, f *fact.Fact, v *findingSpec) string {
	return fs.emitFinding(checkRules[id], c, f, v)
}

// checkUnanswered: admission was asked for and never given, and nothing says that
// the fail mode let the call pass (AH-C-073).
func (j *judge) checkUnanswered(c *call, f *fact.Fact) {
	if c.hasRequest && !c.failOpen && rowOf(f.Protocol).mustBeAnswered {
		c.addRetractable("AH-C-073", j.findings.reportCheck("AH-C-073", c, f, findingFrom(c.firstEvent(), f.EventID)))
	}
}

// checkUnnamedEnd: the end of a call does not carry the id that its beginning had
// (AH-C-087).
func (j *judge) checkUnnamedEnd(c *call, f *fact.Fact, inferred bool) {
	if inferred && f.CallKey.Id == "" && rowOf(f.Protocol).rulesEnds && c.group.key.Id != "" {
		j.findings.reportCheck("AH-C-087", c, f, findingFrom(c.firstEvent(), f.EventID).withText("its end has no id"))
	}
}

// What is derived from the table of protocols.

// trackedSessions is how a protocol's sessions are followed. All of it is set.
type trackedSessions struct {
	restore     func(ts *trackers, w *protocolSession, f *fact.Fact, d trackerTombstone) // begins with what was kept
	storedItems func(w *protocolSession) int
	expire      func(ts *trackers, w *protocolSession) *catalogue.Finding // it has been idle for too long; what that proves, if anything
	tombstone   func(ts *trackers, w *protocolSession, d *trackerTombstone)
}

// findingCase is a rule of ours with the case of a finding.
type findingCase struct{ rule, caseOf string }

// orphanRules are the rules and checks under which an orphan finding is made.
var orphanRules []string

func setProtocols(rows ...*protocolRow) {
	protocols, orphanRules = rows, []string{OrphanCompletion}
	for _, p := range rows {
		if p.wordCode != 0 {
			codedWords[p.wordCode-1] = p.Token
		}
		for of, checks := range p.equivalents {
			if of.rule == OrphanCompletion {
				orphanRules = append(orphanRules, checks...)
			}
		}
	}
	slices.Sort(orphanRules)
}

// protocolWordCode is how a compacted call writes the name of a protocol; 0: in full.
func protocolWordCode(token string) byte { return rowOf(token).wordCode }

// The checks of what admission itself says and records, which stands on the log
// as everything else does.

// missingRecordField says what the record of a resolved approval lacks (AH-C-108), "" if
// nothing. Records that do not count their steps are not the admitter's.
func missingRecordField(a events.Approval) string {
	if a.Step == 0 || a.Refused != "" || (a.Status != fact.StatusApproved && a.Status != "denied") {
		return ""
	}
	switch {
	case a.Approver == "" && len(a.Approvers) == 0:
		return "who"
	case a.DecidedAt.IsZero():
		return "when"
	case a.Reason == "":
		return "why"
	case a.ActionID == "" && a.ActionDigest == "":
		return "what"
	}
	return ""
}

func (c *Correlator) checkApprovalRecord(m events.LogMessage, p subject.Parsed, a events.Approval) {
	f := fact.Unread(m, p)
	f.Origin = fact.OriginOf(a.Tenant, a.Source, a.Session)
	c.engine.calls.recordApprovalStep(f, a)
	if what := missingRecordField(a); what != "" {
		c.engine.findings.emitFinding(checkRules["AH-C-108"], nil, f, findingFrom().withContent(f.ContentSum).withCase(what).withText("it does not say "+what))
	}
}

// checkEffectFirst: a call began, as one protocol tells it, before another protocol
// announced that it begins.
func (j *judge) checkEffectFirst(c *call, f *fact.Fact) {
	check := rowOf(f.Protocol).effectFirst
	if check == "" || f.Effect == fact.NoEffect || f.StartedAt.IsZero() || c.invokedAt.IsZero() {
		return
	}
	if f.StartedAt.Add(max(j.opts.ClockSkew, DefaultClockSkew)).Before(c.invokedAt) {
		j.findings.reportCheck(check, c, f, findingFrom(c.invokedEvent, f.EventID))
	}
}

// refuseEvent reports the checks that an invalid event breaks by itself. The event
// changes no state: it opens no session, announces, ends and excuses no call, and
// settles no question. Its meaning is not certain, and its publisher must not gain
// by that. Only its number in its session or mandate counts: see arrived.
func (e *engine) refuseEvent(f *fact.Fact) {
	e.findings.reportEventFindings(nil, f)
	if refuse := rowOf(f.Protocol).refuse; refuse != nil {
		refuse(e, f)
	}
	e.noteRefusedNumber(f)
}

// noteRefusedNumber notes the number of an event that is refused, so that the events after it
// do not seem to leave it out: the finding about the event itself says what is wrong.
// A session of which nothing is known does not begin with it.
func (e *engine) noteRefusedNumber(f *fact.Fact) {
	if note := rowOf(f.Protocol).noteNumber; note != nil {
		note(e, f)
	}
}
