// Package aump is AUMP's REST binding, as far as the gateway has it: evaluating an action under a
// mandate, storing evidence, showing a mandate to its principal and revoking it for that principal, and the
// profile that says so. Statuses do not tell more than the admitter's answer does. Mandates are put by
// operators, not through the gateway.
package aump

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/events/aump"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/gateway/endpoint"
	"github.com/countersign-dev/countersign/schemas"
)

// Rows are the endpoints. A pattern of net/http cannot end a segment with ":verb", so plan splits it.
var Rows = []endpoint.Row{{Pattern: "POST /aump/mandates/{target}", Plan: plan, Reply: reply, AllowSubscribers: true, BodyOptional: true}}

// verbs are the ends of a target, and what each does.
var verbs = map[string]func(endpoint.Request) (endpoint.Plan, *endpoint.Problem){
	"evaluateAction": endpoint.AdmitTo(subject.ProtoAUMP), "appendEvidence": planEvidence,
	aump.ActionPresent: planPrincipal(aump.ActionPresent), aump.ActionRevoke: planPrincipal(aump.ActionRevoke),
}

// Statuses of the binding by the reason in the admitter's answer.
var statuses = []struct {
	reason string
	status int
}{
	{"mandate_not_found", http.StatusNotFound}, {"mandate_revoked", http.StatusGone}, {"mandate_expired", http.StatusGone},
}

func plan(r endpoint.Request) (endpoint.Plan, *endpoint.Problem) {
	cut := strings.LastIndexByte(r.Target, ':')
	if cut < 1 || verbs[r.Target[cut+1:]] == nil {
		return endpoint.Plan{}, &endpoint.Problem{Status: http.StatusNotFound, Code: "not_found", Message: "the gateway has no such endpoint; it has …:evaluateAction, …:appendEvidence, …:present and …:revoke"}
	}
	if id := bodyMandate(r.Body); id.Kind() == strictjson.KindString && id.Text() != r.Target[:cut] {
		return endpoint.Plan{}, &endpoint.Problem{Status: http.StatusBadRequest, Code: "mandate_mismatch", Message: "mandate_ref.id in the body is not the mandate in the path"}
	}
	return verbs[r.Target[cut+1:]](r)
}

// planEvidence puts an evidence event on the log. Whether it is good evidence the correlator says; the
// answer does not tell whether the mandate exists.
func planEvidence(r endpoint.Request) (endpoint.Plan, *endpoint.Problem) {
	return endpoint.Plan{Publish: &endpoint.Events{Protocol: subject.ProtoAUMP, Bodies: [][]byte{r.Body}, Stored: endpoint.JSON(http.StatusCreated, map[string]int{"stored": 1})}}, nil
}

// planPrincipal asks the admitter for the principal of a mandate. The body may be empty; it has no action.
func planPrincipal(action string) func(endpoint.Request) (endpoint.Plan, *endpoint.Problem) {
	return func(r endpoint.Request) (endpoint.Plan, *endpoint.Problem) {
		var body struct {
			Ref    aump.PrincipalRef `json:"mandate_ref"`
			Reason string            `json:"reason"`
		}
		if len(r.Body) > 0 && strictjson.Unmarshal(r.Body, &body, strictjson.RejectUnknown) != nil {
			return endpoint.Plan{}, &endpoint.Problem{Status: http.StatusBadRequest, Code: aump.PrincipalInvalid, Message: "the body must be one JSON object with mandate_ref and reason alone"}
		}
		body.Ref.ID = r.Target[:strings.LastIndexByte(r.Target, ':')]
		request, err := json.Marshal(aump.PrincipalRequest{Action: action, Ref: body.Ref, Reason: body.Reason})
		if err != nil {
			return endpoint.Plan{}, &endpoint.Problem{Status: http.StatusBadRequest, Code: aump.PrincipalInvalid, Message: "the request cannot be written as JSON"}
		}
		return endpoint.Plan{Mandate: &endpoint.Principal{Body: request, Respond: respond}}, nil
	}
}

// principalStatuses are the statuses of the binding by the code of the admitter's answer to a principal.
var principalStatuses = map[string]int{
	aump.PrincipalDone: http.StatusOK, aump.PrincipalInvalid: http.StatusBadRequest, aump.PrincipalRefused: http.StatusForbidden, aump.PrincipalUnknown: http.StatusNotFound,
	aump.PrincipalMismatch: http.StatusConflict, aump.PrincipalBusy: http.StatusTooManyRequests, aump.PrincipalUnavailable: http.StatusServiceUnavailable,
}

// respond is the response to the admitter's answer to a principal: its body as it is. ok is false if
// the answer makes no sense.
func respond(answer []byte) (out endpoint.Response, ok bool) {
	var body struct {
		Code string `json:"code"`
	}
	if json.Unmarshal(answer, &body) != nil || principalStatuses[body.Code] == 0 {
		return out, false
	}
	out = endpoint.Response{Status: principalStatuses[body.Code], Header: http.Header{"Content-Type": {"application/json"}}, Body: answer}
	if out.Status == http.StatusTooManyRequests || out.Status == http.StatusServiceUnavailable {
		out.Header.Set("Retry-After", "1")
	}
	return out, true
}

// Document is AUMP's discovery document.
var Document = endpoint.Document{Pattern: "GET /.well-known/aump", Media: "application/json", Text: profile}

// profile is AUMP's discovery document (aump.md 1.4). Schemas are named by their stable identifiers;
// the gateway does not know under which name its callers reach it, so the binding has no address.
func profile() ([]byte, error) {
	name := func(schema string) string { return schemas.Base + "aump/" + schema + "/v1" }
	return json.Marshal(map[string]any{
		"aump": map[string]string{"version": aump.Version, "type": "profile"}, "issuer": map[string]string{"id": "countersign-gateway", "name": "Countersign gateway"},
		"supported_versions": []string{aump.Version},
		"schemas": map[string]string{"mandate": name("mandate"), "profile": name("profile"),
			"action_evaluation": name("action-evaluation.request"), "evidence_event": name("evidence-event")},
		"bindings": map[string]any{"rest": map[string]any{"supported": true, "methods": slices.Sorted(maps.Keys(verbs))}},
	})
}

// bodyMandate is the id of the mandate in a body. A body that cannot be read has none; the admitter
// refuses it.
func bodyMandate(body []byte) strictjson.Value {
	v, err := strictjson.ReadObject(body, strictjson.DefaultLimits)
	if err != nil {
		return strictjson.Value{}
	}
	return v.Get("mandate_ref").Get("id")
}

// reply has the binding's status for what the answer says.
func reply(a endpoint.Reply) endpoint.Response {
	var body struct {
		Reasons []string `json:"reason_codes"`
	}
	if a.Status == http.StatusOK && json.Unmarshal(a.Body, &body) == nil {
		for _, s := range statuses {
			if slices.Contains(body.Reasons, s.reason) {
				a.Status = s.status
				break
			}
		}
	}
	return endpoint.Row{}.Respond(a)
}
