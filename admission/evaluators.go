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
	applies func(*matter) bool
	judge   func(*matter) call.Opinion
}

// evaluators are all of them, in the order in which their reasons are kept,
// after the protocol's own and before those of the policies.
var evaluators = []evaluator{
	{publisher.Evaluator, (*matter).catalogued, (*matter).byCatalogue},
	{aump.Name, (*matter).mandated, (*matter).byMandate},
	{aana.Name, (*matter).contracted, (*matter).byContract},
}

// matter is one call that the evaluators judge.
type matter struct {
	ask      call.Request
	protocol string
	call     call.Call
	tool     publisher.Tool
	carried  map[string]any // what may hold a mandate's request and a contract; nil if the protocol has no place for them
	at       string         // its JSON pointer

	// under is the call as the mandate's evaluator read it, nil if none is named.
	under *call.Call
}

// Where a call of another protocol carries a mandate's action evaluation request
// and a contract: the members aump and aana of the place that its protocol keeps
// for such things, by its JSON pointer.
var places = map[string]string{agenthook.Name: "/metadata", aaep.Name: "/extensions"}

// Members of such a place, and of the member aana.
const (
	memberMandate  = "aump"
	memberContract = "aana"
	memberDocument = "contract"
)

// alone reports whether no evaluator can have anything to say: most calls are
// nobody's but their protocol's.
func alone(ask *call.Request, protocol string, c *call.Call) bool {
	if ask.Publishers != nil || protocol != aump.Name && mandateNamed(ask.Header) {
		return false
	}
	at := places[protocol]
	if at == "" {
		return true
	}
	carried, _ := c.Event[at[1:]].(map[string]any)
	_, mandate := carried[memberMandate]
	_, contract := carried[memberContract]
	return !mandate && !contract
}

// further lets the evaluators judge a call that its protocol has read. The
// opinion is the protocol's own with theirs joined to it.
func further(ask call.Request, protocol string, c call.Call, own call.Opinion) (*matter, call.Opinion) {
	m := &matter{ask: ask, protocol: protocol, call: c}
	if m.at = places[protocol]; m.at != "" {
		m.carried, _ = c.Event[m.at[1:]].(map[string]any)
	}
	m.identify()
	for _, e := range evaluators {
		if e.applies(m) {
			own.Join(e.judge(m))
		}
	}
	m.conceal()
	return m, own
}

// identify looks the tool up, and lets the call know what the catalogue knows.
func (m *matter) identify() {
	if m.ask.Publishers == nil {
		return
	}
	c := &m.call
	tool := c.Tool
	if m.protocol == aioc.NameHandoff {
		tool = "" // it has none
	}
	m.tool = m.ask.Publishers.Lookup(m.ask.Tenant, m.ask.Source, tool)
	if m.tool.Standing != publisher.NoCatalogue {
		c.Catalogue = m.tool.Facts()
	}
	if e := m.tool.Entry; e != nil {
		c.CanonicalTool, c.Risk = e.Name, e.Raise(c.Risk)
	}
}

// conceal takes what was carried out of what policies see: it is full of what a
// publisher says in its own favour.
func (m *matter) conceal() {
	_, mandate := m.carried[memberMandate]
	_, contract := m.carried[memberContract]
	if !mandate && !contract {
		return
	}
	kept := maps.Clone(m.carried)
	delete(kept, memberMandate)
	delete(kept, memberContract)
	event := maps.Clone(m.call.Event)
	event[m.at[1:]] = kept
	m.call.Event = event
}

func (m *matter) catalogued() bool { return m.tool.Standing != publisher.NoCatalogue }

func (m *matter) byCatalogue() (o call.Opinion) {
	o.Verdict = events.Allow
	claim := publisher.Claim{
		Name:    m.call.Tool,
		Mandate: m.protocol == aump.Name || m.mandated(), Contract: m.protocol == aana.Name || m.contracted(),
	}
	if m.protocol == agenthook.Name {
		identity := "/tool_identity"
		claim.Canonical, claim.Provider = m.said(identity, "canonical_name"), m.said(identity, "provider_name")
		for _, block := range []string{identity, "/provider_translation", "/validation"} {
			claim.Hashes = append(claim.Hashes, m.said(block, "schema_hash"))
		}
	}
	for _, f := range publisher.Judge(m.tool, claim) {
		o.Say(f.Verdict, publisher.Evaluator, f.Code, f.Path)
	}
	if m.protocol == aana.Name {
		m.categorised(&o, m.call.Event, "")
	}
	return o
}

// said reads a text of a block of metadata.
func (m *matter) said(block, key string) publisher.Said {
	b, _ := m.carried[block[1:]].(map[string]any)
	text, _ := b[key].(string)
	return publisher.Said{Text: text, Path: m.at + block + "/" + key}
}

// categorised denies a contract that says that the tool does less than the
// catalogue knows.
func (m *matter) categorised(o *call.Opinion, contract map[string]any, at string) {
	category, _ := contract["tool_category"].(string)
	if m.tool.Entry.Understates(category) {
		o.Say(events.Deny, publisher.Evaluator, publisher.CodeCategory, at+"/tool_category")
	}
}
