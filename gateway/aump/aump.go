// Package aump is AUMP's REST binding, as far as the gateway has it: evaluating an action under a
// mandate. Statuses do not tell more than the admitter's answer does.
package aump

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/gateway/endpoint"
)

// Rows are the endpoints. A pattern of net/http cannot end a segment with ":verb", so plan splits it.
var Rows = []endpoint.Row{{Pattern: "POST /aump/mandates/{target}", Plan: plan, Reply: reply}}

const verbEvaluate = "evaluateAction"

// Statuses of the binding by the reason in the admitter's answer.
var statuses = []struct {
	reason string
	status int
}{
	{"mandate_not_found", http.StatusNotFound}, {"mandate_revoked", http.StatusGone}, {"mandate_expired", http.StatusGone},
}

func plan(r endpoint.Request) (endpoint.Plan, *endpoint.Problem) {
	cut := strings.LastIndexByte(r.Target, ':')
	if cut < 1 || r.Target[cut+1:] != verbEvaluate {
		return endpoint.Plan{}, &endpoint.Problem{Status: http.StatusNotFound, Code: "not_found", Message: "the gateway has no such endpoint; it evaluates actions (…:" + verbEvaluate + ")"}
	}
	if id := bodyMandate(r.Body); id.Kind() == strictjson.KindString && id.Text() != r.Target[:cut] {
		return endpoint.Plan{}, &endpoint.Problem{Status: http.StatusBadRequest, Code: "mandate_mismatch", Message: "mandate_ref.id in the body is not the mandate in the path"}
	}
	return endpoint.AdmitTo(subject.ProtoAUMP)(r)
}

// bodyMandate is the id of the mandate in a body. A body that cannot be read has none; the admitter
// refuses it.
func bodyMandate(body []byte) strictjson.Value {
	v, err := new(strictjson.Document).ParseObject(body, strictjson.DefaultLimits)
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
