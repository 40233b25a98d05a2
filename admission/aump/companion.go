package aump

import (
	"cmp"
	"encoding/json"
	"maps"
	"strconv"

	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/admission/publisher"
	"github.com/countersign-dev/countersign/events"
	wire "github.com/countersign-dev/countersign/events/aump"
)

// Companion evaluates calls of other protocols by the mandate that they name.
var Companion = call.Companion{
	Name: Name, Member: "aump", Headers: wire.Headers, Requirement: publisher.RequireMandate, Judge: judgeCarried,
}

// judgeCarried evaluates the call as Evaluator evaluates the request that the call carries. A
// call that only names its mandate in the headers proposes to run the tool, under its canonical
// name, with its arguments as attributes.
func judgeCarried(carried call.Carried) (c call.Call, o call.Opinion) {
	c, o.Verdict = carried.Call, events.Allow
	request, at := requestOf(carried), carried.Path
	if at != "" {
		given, ok := carried.Document.(map[string]any)
		if !ok {
			o.AddReason(events.Deny, Name, call.CodeSchemaInvalid, at)
			return c, o
		}
		if request = given; request["aump"] == nil {
			request = maps.Clone(given)
			request["aump"] = requestHeader()
		}
	}
	if carried.Tool.Entry != nil && carried.Tool.Entry.Irreversible {
		request = withCommitment(request)
	}
	mandated, inner := carried.Read(Evaluator{}, request, wire.Headers)
	c.Mandate, c.Mandated, c.Reservation = mandated.Mandate, mandated.ArgsCanonical, mandated.Reservation
	o.MergeCarried(inner, at)
	if action, ok := request["proposed_action"].(map[string]any); ok && carried.Tool.Entry != nil && !inner.Malformed {
		checkBinding(&o, carried.Tool.Entry.Mandate, c.Args, action, at)
	}
	return c, o
}

// withCommitment is the request of a tool that the catalogue calls irreversible: running it commits the principal, whatever
// the request leaves out.
func withCommitment(request map[string]any) map[string]any {
	action, ok := request["proposed_action"].(map[string]any)
	if stated, there := action["commitment"]; !ok || there && stated != false {
		return request
	}
	request, action = maps.Clone(request), maps.Clone(action)
	action["commitment"], request["proposed_action"] = true, action
	return request
}

func requestHeader() map[string]any {
	return map[string]any{"version": wire.Version, "type": wire.TypeRequest}
}

// requestOf builds the request of a call that only names its mandate.
func requestOf(carried call.Carried) map[string]any {
	c := carried.Call
	name := cmp.Or(c.CanonicalTool, c.Tool, c.Action, c.EventType)
	action := map[string]any{"type": name, "summary": name}
	if e := carried.Tool.Entry; e != nil {
		action["type"] = cmp.Or(e.Mandate.Action, name)
		if a, there, ok := e.Mandate.AmountIn(c.Args); there && ok && a.Currency != "" {
			action["amount"] = map[string]any{"total_minor": json.Number(strconv.FormatInt(a.TotalMinor, 10)), "currency": a.Currency}
		}
	}
	if c.Args != nil {
		action["attributes"] = c.Args
	}
	ref := map[string]any{}
	for member, header := range map[string]string{"id": wire.HeaderMandateID, "hash": wire.HeaderMandateHash, "version": wire.HeaderMandateVersion} {
		if v := carried.Request.Header[header]; len(v) > 0 {
			ref[member] = v[0]
		}
	}
	return map[string]any{"aump": requestHeader(), "mandate_ref": ref, "proposed_action": action}
}

// checkBinding denies an action that differs from the tool's catalogue entry, or has an amount that
// differs from the arguments: the evaluated action would not be the one that runs.
func checkBinding(o *call.Opinion, b publisher.Binding, args, action map[string]any, at string) {
	path := at + "/proposed_action"
	if b.Action != "" && action["type"] != b.Action {
		o.AddReason(events.Deny, publisher.EvaluatorName, publisher.CodeMandateAction, path+"/type")
	}
	stated, there, ok := b.AmountIn(args)
	if !there {
		return
	}
	amount, _ := action["amount"].(map[string]any)
	judged, _, same := publisher.Binding{TotalMinor: "/total_minor", Currency: "/currency"}.AmountIn(amount)
	if !ok || !same || judged.TotalMinor != stated.TotalMinor || stated.Currency != "" && judged.Currency != stated.Currency {
		o.AddReason(events.Deny, publisher.EvaluatorName, publisher.CodeMandateAmount, path+"/amount")
	}
}
