package admission

import (
	"maps"

	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/admission/publisher"
	"github.com/countersign-dev/countersign/events"
)

// evaluation is the evaluation of one call beside the protocol's own evaluator: by the tool
// catalogue, and by every companion with a document that the call carries or names. Each can only
// make the verdict stricter.
type evaluation struct {
	request  call.Request
	token    string   // of the protocol
	protocol protocol // its row
	call     call.Call
	tool     publisher.Tool
	carrier  map[string]any // may hold documents of companions; nil if the protocol has no place for them
}

// carrierOf is the object of a request in which it may carry documents of companions.
func (p protocol) carrierOf(c *call.Call) map[string]any {
	if p.carrier == "" {
		return nil
	}
	carrier, _ := c.Event[p.carrier].(map[string]any)
	return carrier
}

// nativeOnly reports whether neither the catalogue nor a companion applies, so that the
// protocol's own evaluator decides. That is so for most calls.
func nativeOnly(ask *call.Request, token string, p protocol, c *call.Call) bool {
	if ask.Publishers != nil {
		return false
	}
	carrier := p.carrierOf(c)
	for i := range companions {
		if companions[i].AppliesTo(token, ask.Header, carrier) {
			return false
		}
	}
	return true
}

// runEvaluators runs the evaluators on a call that its protocol has read. It returns the call
// with what they add, and the protocol's own opinion joined with theirs: the catalogue's
// reasons come first, those of companions in the order of their table.
func runEvaluators(ask call.Request, token string, p protocol, c call.Call, own call.Opinion) (call.Call, call.Opinion) {
	m := &evaluation{request: ask, token: token, protocol: p, call: c}
	m.carrier = p.carrierOf(&c)
	m.lookupTool()
	if m.tool.Status != publisher.NoCatalogue {
		own.Merge(m.judgeCatalogue())
	}
	for i := range companions {
		if m.isJudgedBy(&companions[i]) {
			own.Merge(m.judgeBy(&companions[i]))
		}
	}
	m.hideCarried()
	return m.call, own
}

func (m *evaluation) isJudgedBy(c *call.Companion) bool {
	return c.AppliesTo(m.token, m.request.Header, m.carrier)
}

// lookupTool looks up the tool and copies the catalogue's facts into the call.
func (m *evaluation) lookupTool() {
	if m.request.Publishers == nil {
		return
	}
	c := &m.call
	tool := c.Tool
	if policy.ProposesHandoff(m.token) {
		tool = "" // a handoff has no tool
	}
	m.tool = m.request.Publishers.Lookup(m.request.Tenant, m.request.Source, tool)
	if m.tool.Status != publisher.NoCatalogue {
		c.Catalogue = m.tool.Facts()
	}
	if e := m.tool.Entry; e != nil {
		c.CanonicalTool, c.Risk = e.Name, e.RaiseRisk(c.Risk)
	}
}

// hideCarried removes what was carried from the event that policies see: it is a publisher's
// claims in its own favour.
func (m *evaluation) hideCarried() {
	var kept map[string]any
	for i := range companions {
		member := companions[i].Member
		if _, there := m.carrier[member]; !there {
			continue
		}
		if kept == nil {
			kept = maps.Clone(m.carrier)
		}
		delete(kept, member)
	}
	if kept == nil {
		return
	}
	event := maps.Clone(m.call.Event)
	event[m.protocol.carrier] = kept
	m.call.Event = event
}

// judgeCatalogue compares what the request states about its tool with the catalogue.
func (m *evaluation) judgeCatalogue() (o call.Opinion) {
	o.Verdict = events.Allow
	claim := m.call.Claim
	claim.Name = m.call.Tool
	for i := range companions {
		if c := &companions[i]; c.Name == m.token || m.isJudgedBy(c) {
			claim.Evaluated = append(claim.Evaluated, c.Requirement)
		}
	}
	for _, f := range publisher.Judge(m.tool, claim) {
		o.AddReason(f.Verdict, publisher.Evaluator, f.Code, f.Path)
	}
	return o
}

// judgeBy evaluates the call by the document of a companion.
func (m *evaluation) judgeBy(c *call.Companion) (o call.Opinion) {
	carried := call.Carried{Request: m.request, Call: m.call, Tool: m.tool, NoArguments: m.protocol.noArguments}
	if document, there := m.carrier[c.Member]; there {
		carried.Document, carried.Path = document, "/"+m.protocol.carrier+"/"+c.Member
	}
	m.call, o = c.Judge(carried)
	return o
}
