package correlation

import (
	"errors"
	"slices"

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
			m[c.ID] = &Rule{Name: c.ID, Severity: c.Severity, Refs: []string{c.Ref}, Explanation: c.Explanation, Remedy: c.Remedy, check: true}
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

var equivalences = map[equivalence][]string{
	{ExecutedDespiteDeny, "", protoAgentHook}:                           {"AH-C-075"},
	{ExecutedWhileAskPending, "", protoAgentHook}:                       {"AH-C-076"},
	{ExecutedWhileAskPending, detailApprovalMismatch, protoAgentHook}:   {"AH-C-076", "AH-C-104"},
	{ExecutedWhileAskPending, detailApprovalLate, protoAgentHook}:       {"AH-C-076", "AH-C-103"},
	{ExecutedWhileAskPending, detailApprovalRefused, protoAgentHook}:    {"AH-C-076", "AH-C-103"},
	{ExecutedWhileAskPending, detailApprovalUnrecorded, protoAgentHook}: {"AH-C-076", "AH-C-105"},
	{ExecutedAfterExpiry, detailApprovalExpired, protoAgentHook}:        {"AH-C-103"},
	{ExecutedWithoutVerdict, detailOnlyClaimed, protoAgentHook}:         {"AH-C-082"},
	{ExecutedBeforeVerdict, "", protoAgentHook}:                         {"AH-C-083"},
	{ExecutedBeforeVerdict, detailRecordedLate, protoAgentHook}:         {"AH-C-083"},
	{ExecutedBeforeVerdict, detailDeniedLate, protoAgentHook}:           {"AH-C-083"},
	{InputDrift, "", protoAgentHook}:                                    {"AH-C-080"},
	{InputDrift, detailOtherTool, protoAAEP}:                            {"AAEP-C-082"},
	{OrphanCompletion, detailOrphan, protoAgentHook}:                    {"AH-C-078"},
	{OrphanCompletion, detailOrphan, protoAAEP}:                         {"AAEP-C-080"},
	{OrphanCompletion, detailOrphanAgain, protoAAEP}:                    {"AAEP-C-083"},
	{ReusedToolCallID, detailReusedOpen, protoAgentHook}:                {"AH-C-052"},
	{ReusedToolCallID, detailReusedAAEP, protoAAEP}:                     {"AAEP-C-052"},
	{ForgedRecord, detailClaim, protoAgentHook}:                         {"AH-C-082"},
	{ForgedRecord, detailClaimNotRun, protoAgentHook}:                   {"AH-C-082"},
	{ForgedRecord, detailClaimAlone, protoAgentHook}:                    {"AH-C-082"},
	{DuplicateEventConflict, "", protoAgentHook}:                        {"AH-C-050"},
	{DuplicateEventConflict, "", protoAAEP}:                             {"AAEP-C-050"},
	{DuplicateEventConflict, "", protoAUMP}:                             {"AUMP-E-012"},
}

// equivalents are the checks that a violation of one of our rules breaks. A
// recorded reason excuses AH-C-080.
func equivalents(r *Rule, c *call, f *fact, v *violation) []string {
	protocol := f.protocol
	if protocol == "" && c != nil {
		protocol = c.protocol
	}
	if r == ruleDrift && v.caseOf == "" && f.mutation {
		return nil
	}
	return equivalences[equivalence{r.Name, v.caseOf, protocol}]
}

// missingRule is the protocol's check behind missing_completion.
func (c *call) missingRule() *Rule {
	if first(c.preProtocol, c.protocol) == protoAAEP {
		return checkRules["AAEP-C-081"]
	}
	return checkRules["AH-C-079"]
}

// breach puts out what a session found, and gives the finding's id.
func (m *machine) breach(f *fact, who origin, b *catalogue.Breach) string {
	rule, about, v := m.violationOf(f, who, b)
	if b.Withdraws != nil {
		_, _, old := m.violationOf(f, who, b.Withdraws)
		_, id := identify(checkRules[b.Withdraws.Check], nil, m.factOf(f, who, b.Withdraws), old)
		back := *v
		back.withdraws, back.severity, back.caseOf = id, events.SeverityInfo, detailWithdrawn
		m.finding(checkRules[b.Withdraws.Check], nil, about, &back)
		if b.Retracts {
			return id
		}
	}
	return m.finding(rule, nil, about, v)
}

func (m *machine) violationOf(f *fact, who origin, b *catalogue.Breach) (*Rule, *fact, *violation) {
	v := about(b.Events...).detail(b.Case).saying(b.What).grade(b.Severity)
	v.seqs = append(v.seqs, b.Seqs...)
	if f.kind == kindAnswer || len(v.events) == 0 { // replies have no ids
		v.distinct(f.content)
	}
	return checkRules[b.Check], m.factOf(f, who, b), v
}

// factOf is whom and what a breach is about.
func (m *machine) factOf(f *fact, who origin, b *catalogue.Breach) *fact {
	about := &fact{origin: who, protocol: f.protocol}
	if b.Call != "" {
		about.callID = show(b.Call)
		about.setSlot(slotOf(b.Call, ""))
	}
	return about
}

// notesOn turns what the schemas say of an event into breaches: errors once
// each check, warnings as hints.
func notesOn(f *fact, vs []schemas.Violation) []*catalogue.Breach {
	var notes []*catalogue.Breach
	said := map[string]bool{}
	for _, v := range vs {
		warning := v.Level == schemas.LevelWarning
		if v.Check == "" || said[v.Check] || checkRules[v.Check] == nil {
			continue
		}
		b := single(v.Check, wordsFor(v), f)
		if warning {
			b.Severity, b.Case = events.SeverityInfo, v.Keyword
		} else {
			said[v.Check] = true
		}
		notes = append(notes, b)
	}
	return notes
}

// unreadableChecks are the checks that an event breaks that strict decoding
// refuses; AgentHook and AUMP have one for all.
var unreadableChecks = map[strictjson.Code]string{
	strictjson.DuplicateKey: "AAEP-C-022", strictjson.CaseCollision: "AAEP-C-022",
	strictjson.UnsafeInteger: "AAEP-C-021", strictjson.ImpreciseNumber: "AAEP-C-021",
	strictjson.TooLarge: "AAEP-C-020", strictjson.TooDeep: "AAEP-C-020",
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
	return first(unreadableChecks[strict.Code], "AAEP-C-001")
}

// check puts out that a call breaks a check of its protocol.
func (m *machine) check(id string, c *call, f *fact, v *violation) string {
	return m.finding(checkRules[id], c, f, v)
}

// unanswered: admission was asked for and never given, and nothing says that
// the fail mode let the call pass (AH-C-073).
func (m *machine) unanswered(c *call, f *fact) {
	if f.protocol == protoAgentHook && c.hasRequest && !c.failOpen {
		c.excusable("AH-C-073", m.check("AH-C-073", c, f, about(c.firstEvent(), f.eventID)))
	}
}

// outsideGate: the session's attestation claims a gate that this call did not
// go through (AH-C-084).
func (m *machine) outsideGate(c *call, f *fact) {
	w, ok := m.flows.peek(flowKey{f.key, protoAgentHook})
	said := slices.ContainsFunc(c.excuses, func(made madeFinding) bool { return made.rule == "AH-C-084" })
	if ok && !said && f.ran != ranNo && w.hook.Gated() {
		c.excusable("AH-C-084", m.check("AH-C-084", c, f, about(c.firstEvent(), f.eventID)))
	}
}

// orphanChecks: a completion that nothing was before went around the gate, and
// one that came again may contradict the first (AH-C-089).
func (m *machine) orphanChecks(sl *slot, c *call, f *fact) {
	if f.protocol != protoAgentHook {
		return
	}
	before := sl.latestClosed(func(o *call) bool { return o != c && o.hasPost })
	switch {
	case before == nil:
		m.outsideGate(c, f)
	case before.outcome != f.outcome:
		m.check("AH-C-089", c, f, about(before.postEvent, f.eventID).in(before))
	}
}

// unnamedEnd: the end of a call does not carry the id that its beginning had
// (AH-C-087).
func (m *machine) unnamedEnd(c *call, f *fact, inferred bool) {
	if inferred && f.protocol == protoAgentHook && f.slot.id == "" && c.slot.key.id != "" {
		m.check("AH-C-087", c, f, about(c.firstEvent(), f.eventID).saying("its end has no id"))
	}
}

// unnamedApproval: what ran after an approval must say which: the workflow and,
// where a decision used it up, that decision (AH-C-081).
func (m *machine) unnamedApproval(c *call, f *fact) {
	if f.protocol != protoAgentHook {
		return
	}
	for _, d := range c.decisions {
		a := d.pending.value()
		used := d.verdict == events.Allow && granted(a.status)
		switch {
		case a.workflow == "":
		case f.approval.value().workflow == "":
			m.check("AH-C-081", c, f, about(c.firstEvent(), f.eventID))
			return
		case used && d.id != "" && f.reference == "" && f.receiptOf == "":
			m.check("AH-C-081", c, f, about(c.firstEvent(), f.eventID).saying("decision_ref is missing"))
			return
		}
	}
}
