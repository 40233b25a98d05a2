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

// nativeOnly reports whether certainly neither the catalogue nor a companion applies: no publisher
// of the shard has declared anything, and the request carries and names no document. The protocol's
// own evaluator decides then.
func nativeOnly(request *call.Request, token string, p protocol, c *call.Call) bool {
	if request.Publishers != nil {
		return false
	}
	carrier := p.carrierOf(c)
	for i := range companions {
		if companions[i].AppliesTo(token, request.Header, carrier) {
			return false
		}
	}
	return true
}

// runEvaluators runs the evaluators on a call that its protocol has read. It returns the call
// with what they add, and the protocol's own opinion joined with theirs: its own reasons
// come first, then the catalogue's, then those of companions in the order of their table.
func runEvaluators(request call.Request, token string, p protocol, c call.Call, own call.Opinion) (call.Call, call.Opinion) {
	e := &evaluation{request: request, token: token, protocol: p, call: c}
	e.carrier = p.carrierOf(&c)
	e.lookupTool()
	if e.tool.Status != publisher.NoCatalogue {
		own.Merge(e.judgeCatalogue())
	}
	for i := range companions {
		if e.isJudgedBy(&companions[i]) {
			own.Merge(e.judgeBy(&companions[i]))
		}
	}
	e.hideCarried()
	return e.call, own
}

func (e *evaluation) isJudgedBy(c *call.Companion) bool {
	return c.AppliesTo(e.token, e.request.Header, e.carrier)
}

// lookupTool looks up the tool and copies the catalogue's facts into the call.
func (e *evaluation) lookupTool() {
	if e.request.Publishers == nil {
		return
	}
	c := &e.call
	tool := c.Tool
	if policy.ProposesHandoff(e.token) {
		tool = "" // a handoff has no tool
	}
	e.tool = e.request.Publishers.Lookup(e.request.Tenant, e.request.Source, tool)
	if e.tool.Status != publisher.NoCatalogue {
		c.Catalogue = e.tool.Facts()
	}
	if e := e.tool.Entry; e != nil {
		c.CanonicalTool, c.Risk = e.Name, e.RaiseRisk(c.Risk)
	}
}

// hideCarried removes what was carried from the event that policies see: it is a publisher's
// claims in its own favour.
func (e *evaluation) hideCarried() {
	var kept map[string]any
	for i := range companions {
		member := companions[i].Member
		if _, there := e.carrier[member]; !there {
			continue
		}
		if kept == nil {
			kept = maps.Clone(e.carrier)
		}
		delete(kept, member)
	}
	if kept == nil {
		return
	}
	event := maps.Clone(e.call.Event)
	event[e.protocol.carrier] = kept
	e.call.Event = event
}

// judgeCatalogue compares what the request states about its tool with the catalogue.
func (e *evaluation) judgeCatalogue() (o call.Opinion) {
	o.Verdict = events.Allow
	claim := e.call.Claim
	claim.Name = e.call.Tool
	for i := range companions {
		if c := &companions[i]; c.Name == e.token || e.isJudgedBy(c) {
			claim.Evaluated = append(claim.Evaluated, c.Requirement)
		}
	}
	for _, f := range publisher.Judge(e.tool, claim) {
		o.AddReason(f.Verdict, publisher.EvaluatorName, f.Code, f.Path)
	}
	return o
}

// judgeBy evaluates the call by the document of a companion.
func (e *evaluation) judgeBy(c *call.Companion) (o call.Opinion) {
	carried := call.Carried{Request: e.request, Call: e.call, Tool: e.tool, NoArguments: e.protocol.noArguments}
	if document, there := e.carrier[c.Member]; there {
		carried.Document, carried.Path = document, "/"+e.protocol.carrier+"/"+c.Member
	}
	e.call, o = c.Judge(carried)
	return o
}
