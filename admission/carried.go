package admission

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"github.com/countersign-dev/countersign/admission/aaep"
	"github.com/countersign-dev/countersign/admission/aana"
	"github.com/countersign-dev/countersign/admission/aump"
	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/admission/publisher"
	"github.com/countersign-dev/countersign/events"
	wire "github.com/countersign-dev/countersign/events/aump"
	"github.com/countersign-dev/countersign/events/strictjson"
)

var mandateHeaders = []string{wire.HeaderMandateID, wire.HeaderMandateHash, wire.HeaderMandateVersion}

// namesMandate excludes AUMP's own requests: their protocol has evaluated them.
func (m *evaluation) namesMandate() bool {
	if m.protocol == aump.Name {
		return false
	}
	if _, there := m.carried[memberMandate]; there {
		return true
	}
	return headersNameMandate(m.request.Header)
}

func headersNameMandate(header map[string][]string) bool {
	return len(header) > 0 && slices.ContainsFunc(mandateHeaders, func(h string) bool { return len(header[h]) > 0 })
}

// carriesContract excludes AANA's own requests: their protocol has evaluated them.
func (m *evaluation) carriesContract() bool {
	_, there := m.carried[memberContract]
	return there
}

// judgeMandate evaluates the call as AUMP's own evaluator evaluates the request that the call
// carries. A request that only names its mandate in the headers proposes to run the tool, under
// its canonical name, with its arguments as attributes.
func (m *evaluation) judgeMandate() (o call.Opinion) {
	o.Verdict = events.Allow
	request, at := m.mandateRequest(), ""
	if carried, there := m.carried[memberMandate]; there {
		at = m.carriedPath + "/" + memberMandate
		given, ok := carried.(map[string]any)
		if !ok {
			o.AddReason(events.Deny, aump.Name, call.CodeSchemaInvalid, at)
			return o
		}
		if request = given; request["aump"] == nil {
			request = maps.Clone(given)
			request["aump"] = aumpHeader()
		}
	}
	c, inner := m.judgeCarried(aump.Evaluator{}, request)
	m.mandateCall = &c
	m.call.Mandate, m.call.Mandated = c.Mandate, c.ArgsCanonical
	o.MergeCarried(inner, at)
	if action, ok := request["proposed_action"].(map[string]any); ok && m.tool.Entry != nil && !inner.Malformed {
		m.checkBinding(&o, m.tool.Entry.Mandate, action, at)
	}
	return o
}

func aumpHeader() map[string]any {
	return map[string]any{"version": wire.Version, "type": wire.TypeRequest}
}

// mandateRequest builds the request of a call that only names its mandate.
func (m *evaluation) mandateRequest() map[string]any {
	c := m.call
	name := orDefault(orDefault(orDefault(c.CanonicalTool, c.Tool), c.Action), c.EventType)
	action := map[string]any{"type": name, "summary": name}
	if e := m.tool.Entry; e != nil {
		action["type"] = orDefault(e.Mandate.Action, name)
		if a, there, ok := e.Mandate.AmountIn(c.Args); there && ok && a.Currency != "" {
			action["amount"] = map[string]any{"total_minor": json.Number(strconv.FormatInt(a.TotalMinor, 10)), "currency": a.Currency}
		}
	}
	if c.Args != nil {
		action["attributes"] = c.Args
	}
	ref := map[string]any{}
	for i, name := range []string{"id", "hash", "version"} {
		if v := m.request.Header[mandateHeaders[i]]; len(v) > 0 {
			ref[name] = v[0]
		}
	}
	return map[string]any{"aump": aumpHeader(), "mandate_ref": ref, "proposed_action": action}
}

// checkBinding denies an action that differs from the tool's catalogue entry, or whose amount
// differs from the arguments: the evaluated action would not be the one that runs.
func (m *evaluation) checkBinding(o *call.Opinion, b publisher.Binding, action map[string]any, at string) {
	path := at + "/proposed_action"
	if b.Action != "" && action["type"] != b.Action {
		o.AddReason(events.Deny, publisher.Evaluator, publisher.CodeMandateAction, path+"/type")
	}
	stated, there, ok := b.AmountIn(m.call.Args)
	if !there {
		return
	}
	amount, _ := action["amount"].(map[string]any)
	judged, _, same := publisher.Binding{TotalMinor: "/total_minor", Currency: "/currency"}.AmountIn(amount)
	if !ok || !same || judged.TotalMinor != stated.TotalMinor || stated.Currency != "" && judged.Currency != stated.Currency {
		o.AddReason(events.Deny, publisher.Evaluator, publisher.CodeMandateAmount, path+"/amount")
	}
}

// Reason codes of a contract that is about another call.
const (
	CodeContractTool      = "contract_tool_mismatch"      // the AANA contract is about another tool than the call
	CodeContractArguments = "contract_arguments_mismatch" // the AANA contract is about other arguments than those of the call
)

// judgeContract evaluates the call as AANA's own evaluator evaluates the contract that the call
// carries. The contract must be about this call.
func (m *evaluation) judgeContract() (o call.Opinion) {
	o.Verdict = events.Allow
	holder, _ := m.carried[memberContract].(map[string]any)
	contract, ok := holder[memberDocument].(map[string]any)
	if at := m.carriedPath + "/" + memberContract; !ok || len(holder) != 1 {
		o.AddReason(events.Deny, aana.Name, call.CodeSchemaInvalid, at)
		return o
	}
	at := m.carriedPath + "/" + memberContract + "/" + memberDocument
	c, inner := m.judgeCarried(aana.Evaluator{}, contract)
	o.MergeCarried(inner, at)
	if inner.Malformed {
		return o
	}
	if c.Tool != m.call.Tool && c.Tool != m.call.CanonicalTool {
		o.AddReason(events.Deny, Evaluator, CodeContractTool, at+"/tool_name")
	}
	if m.protocol != aaep.Name && !sameArguments(c.ArgsCanonical, m.call.ArgsCanonical) { // AAEP has no arguments
		o.AddReason(events.Deny, Evaluator, CodeContractArguments, at+"/proposed_arguments")
	}
	m.checkCategory(&o, contract, at)
	return o
}

// sameArguments treats missing and empty arguments as equal.
func sameArguments(a, b []byte) bool {
	return string(a) == string(b) || len(a) <= len("{}") && len(b) <= len("{}")
}

// judgeCarried evaluates a document that a call carries with another protocol, as a request of
// the same session and call.
func (m *evaluation) judgeCarried(p call.Protocol, document map[string]any) (call.Call, call.Opinion) {
	body, err := strictjson.Canonical(document)
	if err != nil {
		panic(err) // cannot happen: everything in it came out of strictjson
	}
	ask := m.request
	ask.Body, ask.Header = body, map[string][]string{}
	for _, h := range mandateHeaders {
		if v := call.HeaderValues(m.request.Header, h); len(v) > 0 {
			ask.Header[h] = v
		}
	}
	for h, v := range map[string]string{
		events.HeaderSession: m.call.Session, events.HeaderToolCallID: m.call.ToolCallID, events.HeaderAgent: m.call.Agent,
	} {
		if v != "" {
			ask.Header[h] = []string{v}
		}
	}
	return p.Read(ask)
}
