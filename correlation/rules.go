package correlation

import (
	"slices"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/correlation/checks"
	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

// Rule is a rule that findings name: one of ours, or a check of package checks.
type Rule struct {
	Name     string
	Severity events.Severity // a case may have another
	Refs     []string        // the checks, specifications and documents that it comes from
	Inputs   string          // the inputs that decide it
	// Explanation is one sentence. {tool}, {call} and {verdict} stand for the tool, the call
	// and the verdict that counted. {what} stands for the text of the finding.
	Explanation string
	// Cases are the explanations of special cases.
	Cases  map[string]string
	Remedy string

	isCheck bool // it is a check of package checks
}

// Rules returns our own rules, by name. They compare verdicts with executions in every
// protocol. The checks of the protocols are in package checks.
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
	caseOrphanForgotten     = "forgotten"
	caseOrphanErased        = "erased"
	caseDeadline            = ""
	caseRoom                = "room"
	caseSessionEnd          = "session_end"
	caseRetracted           = "withdrawn"
	caseReplaced            = "replaced"
	caseFailOpen            = "fail_open"
	caseFailOpenClaimed     = "fail_open_claimed"
	caseOnlyClaimed         = "claimed"
	caseApprovalExpired     = "approval"
	caseAllowOver           = "allow_over"
	caseApprovalOver        = "approval_over"
	caseRecordedLate        = "late"
	caseDeniedLate          = "late_denied"
	caseInvoked             = "invoked"
	caseInvokedFirst        = "invoked_first"
	caseOvertaken           = "overtaken"
	caseClaim               = "claim"
	caseClaimNotRun         = "claim_not_run"
	caseClaimAlone          = "claim_alone"
	caseClaimDecision       = "claim_decision"
	caseOtherTool           = "tool"
	caseApprovalMismatch    = "mismatch"
	caseApprovalLate        = "late"
	caseApprovalRefused     = "refused"
	caseApprovalUnrecorded  = "unrecorded"
	caseSubject             = "subject"
	caseUndecodable         = "undecodable"
	caseKey                 = "key"
	caseVerdict             = "verdict"
	caseApproval            = "approval"
	caseTrace               = "trace"
	caseTraceSubject        = "trace_subject"
)

var (
	ruleDespiteDeny = &Rule{
		Name: ExecutedDespiteDeny, Severity: events.SeverityCritical,
		Refs:        []string{"AH-C-075", "docs/architecture.md#five-ideas 3"},
		Inputs:      "decisions, verdicts that events claim, fail modes, the place of an AAEP invocation, and what the call's completion says of its execution",
		Explanation: "{tool} ran as {call} although it had been denied.",
		Cases: map[string]string{
			caseInvoked: "{tool} was invoked as {call} although it had been denied.",
		},
		Remedy: "Stop this runtime, treat what the call did as unauthorised, and find out why its gate did not hold.",
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
			caseRetracted:       "{tool} had a reason to run as {call} without a verdict: its publisher's fail mode, which is on the log by now.",
		},
		Remedy: "Route this tool through admission, or find out how the call went around it.",
	}
	ruleExpired = &Rule{
		Name: ExecutedAfterExpiry, Severity: events.SeverityHigh,
		Refs:        []string{"docs/architecture.md#five-ideas 3", "AH-C-103"},
		Inputs:      "the expiry of the decision or the approval, and when the execution began: by its own word, or by its end and its duration; if neither is said, when it ended",
		Explanation: "{tool} ran as {call} after its allow had expired.",
		Cases: map[string]string{
			caseApprovalExpired: "{tool} ran as {call} after its approval had expired.",
			caseAllowOver:       "The end of {tool} was reported for {call} when its allow had expired; nothing says when it began.",
			caseApprovalOver:    "The end of {tool} was reported for {call} when its approval had expired; nothing says when it began.",
		},
		Remedy: "Make the runtime check the receipt's expiry right before it acts, ask again when it is over, and report when the execution began or how long it took.",
	}
	ruleBeforeVerdict = &Rule{
		Name: ExecutedBeforeVerdict, Severity: events.SeverityMedium,
		Refs:        []string{"AH-C-083", "docs/architecture.md#five-ideas 1"},
		Inputs:      "place and broker time of the decision, when the execution began by its own word, and the place of an AAEP invocation",
		Explanation: "{tool} says of {call} that it started before the verdict was recorded.",
		Cases: map[string]string{
			caseRecordedLate: "{tool} ran as {call}, and only afterwards a verdict was recorded.",
			caseDeniedLate:   "{tool} ran as {call}, and only afterwards it was denied.",
			caseInvokedFirst: "{tool} was invoked as {call} before it was denied; its end does not say whether it ran.",
		},
		Remedy: "Check that the runtime waits for the reply, and that its clock is right; its pre_commit claim proves nothing here.",
	}
	ruleDrift = &Rule{
		Name: InputDrift, Severity: events.SeverityHigh,
		Refs:        []string{"AH-C-080", "AAEP-C-082", "docs/architecture.md#five-ideas 3"},
		Inputs:      "tool and arguments of the request or announcement and of the execution; what a redaction hides is not compared. Critical if the allow had a receipt, medium if the event gives a reason for the change",
		Explanation: "{tool} ran as {call} with other arguments than were {what}.",
		Cases: map[string]string{
			caseOtherTool: "{call} was {what} for one tool and ran {tool}.",
		},
		Remedy: "Compare the admitted and the executed arguments of this call; make the runtime check the receipt against what it is about to run.",
	}
	ruleMissing = &Rule{
		Name: MissingCompletion, Severity: events.SeverityMedium,
		Refs:        []string{"AH-C-079", "AAEP-C-081"},
		Inputs:      "requests, announcements and completions, approvals on record, the end of the session, and time passing on the log. High in AAEP",
		Explanation: "{tool} was announced as {call} and nothing said how it ended before its time was over.",
		Cases: map[string]string{
			caseSessionEnd: "{tool} was announced as {call} and its session ended without a word on how it went.",
			caseRoom:       "{tool} was announced as {call}, and the correlator forgot it for want of room before anything said how it ended.",
			caseRetracted:  "The completion of {tool} that was missing for {call} has arrived after all.",
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
			caseRetracted:       "What announces {call} of {tool} is on the log after all; its end had overtaken it.",
			caseOrphanAgain:     "{tool} was reported as done as {call}, with no call of that id open any more.",
			caseOrphanForgotten: "{tool} was reported as done as {call}, in a session whose open calls were forgotten for want of room.",
			caseOrphanErased:    "{tool} was reported as done as {call}, in a session that was erased in the day before: what announced it may be erased, too.",
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
		Inputs:      "decisions, approvals, keys and trace events with their signatures and subjects, and verdicts that events claim",
		Explanation: "A decision is in the log that no admitter signed: {what}.",
		Cases: map[string]string{
			caseSubject:       "A decision is in the log under a subject that contradicts it: {what}.",
			caseUndecodable:   "A message among the decisions is no decision record: {what}.",
			caseVerdict:       "A decision is in the log with a verdict that does not exist.",
			caseApproval:      "An approval is in the log that no admitter signed: {what}.",
			caseKey:           "A key was published or retired that the checkpoint key does not vouch for.",
			caseTrace:         "A trace event is in the log that no admitter wrote for a decision: {what}.",
			caseTraceSubject:  "A trace event is in the log under a subject that contradicts it: {what}.",
			caseClaim:         "{tool} ran as {call} on a verdict that its publisher claims to be looser than the recorded {verdict}.",
			caseClaimNotRun:   "The publisher of {tool} claims a looser verdict on {call} than the recorded {verdict}.",
			caseClaimDecision: "{tool} ran as {call} on a decision that its publisher names and that is not on record: {what}.",
			caseClaimAlone:    "The publisher of {tool} claims a verdict on {call} that is not on record: {what}.",
			caseRetracted:     "The verdict on {call} of {tool} that its publisher claims is on record by now.",
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
			caseRetracted: "It was not the agent that had handed over that called {tool} as {call}.",
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

// checkRules are the implemented checks of the protocols, as rules.
var checkRules = func() map[string]*Rule {
	m := map[string]*Rule{}
	for _, c := range checks.All() {
		if c.Status == catalogue.Implemented {
			m[c.ID] = &Rule{Name: c.ID, Severity: c.Severity, Refs: []string{c.Ref}, Explanation: c.Explanation, Remedy: c.Remedy, isCheck: true}
		}
	}
	return m
}()

// maxRuleModes bounds the modes of one tenant. There are fewer rules.
const maxRuleModes = 1024

// ruleModes are the modes that a tenant's operator has set, as the log has them.
type ruleModes struct {
	store    string
	revision uint64
	modes    map[string]RuleMode
}

var modesByName = map[string]RuleMode{events.RuleOff: ModeOff, events.RuleWarn: ModeWarn, events.RuleEnforce: ModeEnforce}

// applyRulesChange applies a change of a tenant's modes. It concerns later findings only.
func (c *Correlator) applyRulesChange(m events.LogMessage, p subject.Parsed) {
	if c.shard != "" && fact.TokenOf(p.Shard) != subject.Escape(c.shard) {
		return
	}
	change, err := events.DecodeRecord[events.RulesChange](m.Body)
	if err != nil || change.Tenant == "" || len(change.Rules) > maxRuleModes {
		return
	}
	token := subject.Escape(change.Tenant)
	if old, known := c.engine.findings.modesOf(token); known && old.store == change.Store && change.Revision <= old.revision {
		return
	}
	modes := make(map[string]RuleMode, len(change.Rules))
	for rule, mode := range change.Rules {
		m, known := modesByName[mode]
		if !known {
			return
		}
		if m != ModeWarn {
			modes[rule] = m
		}
	}
	c.engine.findings.setModes(token, ruleModes{store: change.Store, revision: change.Revision, modes: modes})
}

// RuleModesRevision is the store and the revision of a tenant's modes, as the log has them so
// far; zero if the log has none.
func (c *Correlator) RuleModesRevision(tenant string) (store string, revision uint64) {
	s, _ := c.engine.findings.modesOf(subject.Escape(tenant))
	return s.store, s.revision
}

// modesOf returns the modes of a tenant, by its token.
func (fs *findings) modesOf(tenant string) (ruleModes, bool) {
	s, known := fs.ruleModes[tenant]
	return s, known
}

func (fs *findings) setModes(tenant string, s ruleModes) { fs.ruleModes[tenant] = s }

// findingMode is the mode of a rule for a tenant.
func (fs *findings) findingMode(who fact.Origin, r *Rule) RuleMode {
	if fs.opts.Rules != nil {
		return fs.opts.Rules(who.Tenant, r.Name)
	}
	return fs.ruleModes[who.Key.Tenant].modes[r.Name]
}

// RuleMode says what the correlator does with the findings of a rule.
type RuleMode int

// The modes.
const (
	ModeWarn    RuleMode = iota // findings are emitted
	ModeOff                     // findings are not emitted
	ModeEnforce                 // findings are emitted, marked as enforced
)
