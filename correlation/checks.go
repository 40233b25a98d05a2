package correlation

import (
	"errors"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/schemas"
)

// checkRules are the implemented checks of the protocols as rules.
var checkRules = func() map[string]*Rule {
	m := map[string]*Rule{}
	for _, c := range catalogue.All() {
		if c.Status == catalogue.Implemented {
			m[c.ID] = &Rule{Name: c.ID, Severity: c.Severity, Refs: []string{c.Ref}, Explanation: c.Explanation, Remedy: c.Remedy, isCheck: true}
		}
	}
	return m
}()

// What breaks one of our rules breaks a check of the protocol as well. Ours
// says what happened between verdict and execution in the same words for all
// protocols; the check says which demand of the specification that breaks. Both
// are findings, with the same evidence: whoever counts by rule, and whoever
// measures conformance, sees each violation once.
type equivalence struct{ rule, caseOf, protocol string }

var equivalentCheckTable = map[equivalence][]string{
	{ExecutedDespiteDeny, "", protoAgentHook}:                         {"AH-C-075"},
	{ExecutedWhileAskPending, "", protoAgentHook}:                     {"AH-C-076"},
	{ExecutedWhileAskPending, caseApprovalMismatch, protoAgentHook}:   {"AH-C-076", "AH-C-104"},
	{ExecutedWhileAskPending, caseApprovalLate, protoAgentHook}:       {"AH-C-076", "AH-C-103"},
	{ExecutedWhileAskPending, caseApprovalRefused, protoAgentHook}:    {"AH-C-076", "AH-C-103"},
	{ExecutedWhileAskPending, caseApprovalUnrecorded, protoAgentHook}: {"AH-C-076", "AH-C-105"},
	{ExecutedAfterExpiry, caseApprovalExpired, protoAgentHook}:        {"AH-C-103"},
	{ExecutedWithoutVerdict, caseOnlyClaimed, protoAgentHook}:         {"AH-C-082"},
	{ExecutedBeforeVerdict, "", protoAgentHook}:                       {"AH-C-083"},
	{ExecutedBeforeVerdict, caseRecordedLate, protoAgentHook}:         {"AH-C-083"},
	{ExecutedBeforeVerdict, detailDeniedLate, protoAgentHook}:         {"AH-C-083"},
	{InputDrift, "", protoAgentHook}:                                  {"AH-C-080"},
	{InputDrift, caseOtherTool, protoAAEP}:                            {"AAEP-C-082"},
	{OrphanCompletion, caseOrphan, protoAgentHook}:                    {"AH-C-078"},
	{OrphanCompletion, caseOrphan, protoAAEP}:                         {"AAEP-C-080"},
	{OrphanCompletion, caseOrphanAgain, protoAAEP}:                    {"AAEP-C-083"},
	{ReusedToolCallID, caseReusedOpen, protoAgentHook}:                {"AH-C-052"},
	{ReusedToolCallID, caseReusedAAEP, protoAAEP}:                     {"AAEP-C-052"},
	{ForgedRecord, caseClaim, protoAgentHook}:                         {"AH-C-082"},
	{ForgedRecord, caseClaimNotRun, protoAgentHook}:                   {"AH-C-082"},
	{ForgedRecord, caseClaimAlone, protoAgentHook}:                    {"AH-C-082"},
	{DuplicateEventConflict, "", protoAgentHook}:                      {"AH-C-050"},
	{DuplicateEventConflict, "", protoAAEP}:                           {"AAEP-C-050"},
	{DuplicateEventConflict, "", protoAUMP}:                           {"AUMP-E-012"},
}

// equivalentChecks are the checks that a violation of one of our rules breaks. A
// recorded reason excuses AH-C-080.
func equivalentChecks(r *Rule, c *call, f *fact, v *findingSpec) []string {
	protocol := f.protocol
	if protocol == "" && c != nil {
		protocol = c.protocol
	}
	if r == ruleDrift && v.caseOf == "" && f.hasMutationReason {
		return nil
	}
	return equivalentCheckTable[equivalence{r.Name, v.caseOf, protocol}]
}

// missingRule is the protocol's check behind missing_completion.
func (x *details) missingRule() *Rule {
	if firstNonEmpty(x.preProtocol, x.protocol) == protoAAEP {
		return checkRules["AAEP-C-081"]
	}
	return checkRules["AH-C-079"]
}

// reportSessionFinding emits what a session found, and gives the finding's id.
func (fs *findings) reportSessionFinding(f *fact, who origin, b *catalogue.Finding) string {
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

func (fs *findings) sessionFindingSpec(f *fact, who origin, b *catalogue.Finding) (*Rule, *fact, *findingSpec) {
	v := findingFrom(b.Events...).withCase(b.Case).withText(b.Text).withSeverity(b.Severity)
	v.seqs = append(v.seqs, b.Seqs...)
	if f.kind == kindQuestionReply || len(v.events) == 0 { // replies have no ids
		v.withContent(f.contentSum)
	}
	return checkRules[b.Check], fs.findingSubject(f, who, b), v
}

// findingSubject is whom and what a breach is about.
func (fs *findings) findingSubject(f *fact, who origin, b *catalogue.Finding) *fact {
	about := &fact{origin: who, protocol: f.protocol}
	if b.Call != "" {
		about.callID = boundID(b.Call)
		about.setCallKey(callKeyOf(b.Call, ""))
	}
	return about
}

// schemaFindings turns what the schemas say of an event into breaches: errors once
// each check, warnings as hints.
func schemaFindings(f *fact, vs []schemas.Violation) []*catalogue.Finding {
	var notes []*catalogue.Finding
	said := map[string]bool{}
	for _, v := range vs {
		warning := v.Level == schemas.LevelWarning
		if v.Check == "" || said[v.Check] || checkRules[v.Check] == nil {
			continue
		}
		b := singleEventFinding(v.Check, violationText(v), f)
		if warning {
			b.Severity, b.Case = events.SeverityInfo, v.Keyword
		} else {
			said[v.Check] = true
		}
		notes = append(notes, b)
	}
	return notes
}

func unreadableCheck(protocol string, err error) string {
	var strict *strictjson.Error
	switch {
	case !errors.As(err, &strict):
		return ""
	case protocol == protoAgentHook:
		return "AH-C-001"
	case protocol == protoAUMP:
		return "AUMP-E-001"
	case protocol != protoAAEP:
		return ""
	}
	return firstNonEmpty(unreadableChecks[strict.Code], "AAEP-C-001")
}

// reportCheck emits that a call breaks a check of its protocol.
func (fs *findings) reportCheck(id string, c *call, f *fact, v *findingSpec) string {
	return fs.emitFinding(checkRules[id], c, f, v)
}

// checkUnanswered: admission was asked for and never given, and nothing says that
// the fail mode let the call pass (AH-C-073).
func (j *judge) checkUnanswered(c *call, f *fact) {
	if f.protocol == protoAgentHook && c.hasRequest && !c.failOpen {
		c.addRetractable("AH-C-073", j.findings.reportCheck("AH-C-073", c, f, findingFrom(c.firstEvent(), f.eventID)))
	}
}

// checkOrphan: a completion that nothing was before went around the gate, and
// one that came again may contradict the first (AH-C-089).
func (j *judge) checkOrphan(sl *callGroup, c *call, f *fact) {
	if f.protocol != protoAgentHook {
		return
	}
	before := sl.latestClosed(func(o *call) bool { return o != c && o.hasPost })
	switch {
	case before == nil:
		j.trackers.checkOutsideGate(c, f)
	case before.outcome != f.outcome:
		j.findings.reportCheck("AH-C-089", c, f, findingFrom(before.postEvent, f.eventID).withEventsOf(before))
	}
}

// checkUnnamedEnd: the end of a call does not carry the id that its beginning had
// (AH-C-087).
func (j *judge) checkUnnamedEnd(c *call, f *fact, inferred bool) {
	if inferred && f.protocol == protoAgentHook && f.callKey.id == "" && c.group.key.id != "" {
		j.findings.reportCheck("AH-C-087", c, f, findingFrom(c.firstEvent(), f.eventID).withText("its end has no id"))
	}
}
