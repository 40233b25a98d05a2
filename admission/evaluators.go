package admission

import (
	"maps"

	"github.com/countersign-dev/countersign/admission/aaep"
	"github.com/countersign-dev/countersign/admission/aana"
	"github.com/countersign-dev/countersign/admission/agenthook"
	"github.com/countersign-dev/countersign/admission/aioc"
	"github.com/countersign-dev/countersign/admission/aump"
	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/admission/publisher"
	"github.com/countersign-dev/countersign/events"
)

// evaluator evaluates calls in addition to the protocol's own evaluator: by the tool catalogue,
// by the mandate that a call names, or by the contract that it carries. Every evaluator that
// applies is run, and each can only make the verdict stricter.
type evaluator struct {
	name    string
	applies func(*evaluation) bool
	judge   func(*evaluation) call.Opinion
}

// evaluators are run in this order. Their reasons come after the protocol's own and before
// those of the policies.
var evaluators = []evaluator{
	{publisher.Evaluator, (*evaluation).hasCatalogue, (*evaluation).judgeCatalogue},
	{aump.Name, (*evaluation).namesMandate, (*evaluation).judgeMandate},
	{aana.Name, (*evaluation).carriesContract, (*evaluation).judgeContract},
}

// evaluation is the evaluation of one call.
type evaluation struct {
	request     call.Request
	protocol    string
	call        call.Call
	tool        publisher.Tool
	carried     map[string]any // may hold a mandate's request and a contract; nil if the protocol has no place for them
	carriedPath string         // its JSON pointer

	// mandateCall is the call as the mandate's evaluator read it; nil if no mandate is named.
	mandateCall *call.Call
}

// carrierPaths says where a call of another protocol carries a mandate's action evaluation
// request and a contract: in the members aump and aana of the object at this JSON pointer.
var carrierPaths = map[string]string{agenthook.Name: "/metadata", aaep.Name: "/extensions"}

// Members of the object at carrierPaths, and of the member aana.
const (
	memberMandate  = "aump"
	memberContract = "aana"
	memberDocument = "contract"
)

// nativeOnly reports whether none of the evaluators applies, so that the protocol's own
// decides. That is so for most calls.
func nativeOnly(ask *call.Request, protocol string, c *call.Call) bool {
	if ask.Publishers != nil || protocol != aump.Name && headersNameMandate(ask.Header) {
		return false
	}
	at := carrierPaths[protocol]
	if at == "" {
		return true
	}
	carried, _ := c.Event[at[1:]].(map[string]any)
	_, mandate := carried[memberMandate]
	_, contract := carried[memberContract]
	return !mandate && !contract
}

// runEvaluators runs the evaluators on a call that its protocol has read. It returns the
// protocol's own opinion joined with theirs.
func runEvaluators(ask call.Request, protocol string, c call.Call, own call.Opinion) (*evaluation, call.Opinion) {
	m := &evaluation{request: ask, protocol: protocol, call: c}
	if m.carriedPath = carrierPaths[protocol]; m.carriedPath != "" {
		m.carried, _ = c.Event[m.carriedPath[1:]].(map[string]any)
	}
	m.lookupTool()
	for _, e := range evaluators {
		if e.applies(m) {
			own.Merge(e.judge(m))
		}
	}
	m.hideCarried()
	return m, own
}

// lookupTool looks up the tool and copies the catalogue's facts into the call.
func (m *evaluation) lookupTool() {
	if m.request.Publishers == nil {
		return
	}
	c := &m.call
	tool := c.Tool
	if m.protocol == aioc.NameHandoff {
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
	_, mandate := m.carried[memberMandate]
	_, contract := m.carried[memberContract]
	if !mandate && !contract {
		return
	}
	kept := maps.Clone(m.carried)
	delete(kept, memberMandate)
	delete(kept, memberContract)
	event := maps.Clone(m.call.Event)
	event[m.carriedPath[1:]] = kept
	m.call.Event = event
}

func (m *evaluation) hasCatalogue() bool { return m.tool.Status != publisher.NoCatalogue }

func (m *evaluation) judgeCatalogue() (o call.Opinion) {
	o.Verdict = events.Allow
	claim := publisher.Claim{
		Name:    m.call.Tool,
		Mandate: m.protocol == aump.Name || m.namesMandate(), Contract: m.protocol == aana.Name || m.carriesContract(),
	}
	if m.protocol == agenthook.Name {
		identity := "/tool_identity"
		claim.Canonical, claim.Provider = m.carriedField(identity, "canonical_name"), m.carriedField(identity, "provider_name")
		for _, block := range []string{identity, "/provider_translation", "/validation"} {
			claim.Hashes = append(claim.Hashes, m.carriedField(block, "schema_hash"))
		}
	}
	for _, f := range publisher.Judge(m.tool, claim) {
		o.AddReason(f.Verdict, publisher.Evaluator, f.Code, f.Path)
	}
	if m.protocol == aana.Name {
		m.checkCategory(&o, m.call.Event, "")
	}
	return o
}

// carriedField reads a text of a block of metadata.
func (m *evaluation) carriedField(block, key string) publisher.Field {
	b, _ := m.carried[block[1:]].(map[string]any)
	text, _ := b[key].(string)
	return publisher.Field{Text: text, Path: m.carriedPath + block + "/" + key}
}

// checkCategory denies a contract whose tool category understates what the catalogue knows of
// the tool.
func (m *evaluation) checkCategory(o *call.Opinion, contract map[string]any, at string) {
	category, _ := contract["tool_category"].(string)
	if m.tool.Entry.Understates(category) {
		o.AddReason(events.Deny, publisher.Evaluator, publisher.CodeCategory, at+"/tool_category")
	}
}
