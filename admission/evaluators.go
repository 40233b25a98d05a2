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

// An evaluator judges calls beside the protocol's own: by the tool catalogue, by
// the mandate that a call names, by the contract that it carries. All that apply
// always speak, and each can only make the verdict stricter.
type evaluator struct {
	name    string
	applies func(*evaluation) bool
	judge   func(*evaluation) call.Opinion
}

// evaluators are all of them, in the order in which their reasons are kept,
// after the protocol's own and before those of the policies.
var evaluators = []evaluator{
	{publisher.Evaluator, (*evaluation).hasCatalogue, (*evaluation).judgeCatalogue},
	{aump.Name, (*evaluation).namesMandate, (*evaluation).judgeMandate},
	{aana.Name, (*evaluation).carriesContract, (*evaluation).judgeContract},
}

// evaluation is one call that the evaluators judge.
type evaluation struct {
	request     call.Request
	protocol    string
	call        call.Call
	tool        publisher.Tool
	carried     map[string]any // what may hold a mandate's request and a contract; nil if the protocol has no place for them
	carriedPath string         // its JSON pointer

	// mandateCall is the call as the mandate's evaluator read it, nil if none is named.
	mandateCall *call.Call
}

// Where a call of another protocol carries a mandate's action evaluation request
// and a contract: the members aump and aana of the place that its protocol keeps
// for such things, by its JSON pointer.
var carrierPaths = map[string]string{agenthook.Name: "/metadata", aaep.Name: "/extensions"}

// Members of such a place, and of the member aana.
const (
	memberMandate  = "aump"
	memberContract = "aana"
	memberDocument = "contract"
)

// nativeOnly reports whether no evaluator can have anything to say: most calls are
// nobody's but their protocol's.
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

// runEvaluators lets the evaluators judge a call that its protocol has read. The
// opinion is the protocol's own with theirs joined to it.
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

// lookupTool looks the tool up, and lets the call know what the catalogue knows.
func (m *evaluation) lookupTool() {
	if m.request.Publishers == nil {
		return
	}
	c := &m.call
	tool := c.Tool
	if m.protocol == aioc.NameHandoff {
		tool = "" // it has none
	}
	m.tool = m.request.Publishers.Lookup(m.request.Tenant, m.request.Source, tool)
	if m.tool.Status != publisher.NoCatalogue {
		c.Catalogue = m.tool.Facts()
	}
	if e := m.tool.Entry; e != nil {
		c.CanonicalTool, c.Risk = e.Name, e.RaiseRisk(c.Risk)
	}
}

// hideCarried takes what was carried out of what policies see: it is full of what a
// publisher says in its own favour.
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

// checkCategory denies a contract that says that the tool does less than the
// catalogue knows.
func (m *evaluation) checkCategory(o *call.Opinion, contract map[string]any, at string) {
	category, _ := contract["tool_category"].(string)
	if m.tool.Entry.Understates(category) {
		o.AddReason(events.Deny, publisher.Evaluator, publisher.CodeCategory, at+"/tool_category")
	}
}
