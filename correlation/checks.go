package correlation

import (
	"cmp"

	"github.com/countersign-dev/countersign/correlation/fact"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
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

// findingSubject is whom and what a breach is about.
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
