// Package agenthook is AgentHook's HTTP endpoint: POST /event. An event that waits for a verdict is
// an admission request; every other one is published, and answered once it is durable (AHP-001, AHP-007).
package agenthook

import (
	"encoding/json"
	"net/http"

	wire "github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/gateway/endpoint"
)

// Rows are the endpoints.
var Rows = []endpoint.Row{{Pattern: "POST /event", Plan: plan}}

// plan sends to the admitter what waits for a verdict, and what may: an unreadable event, one of a type that is
// none or a proposal's in other letters, or one of an unknown phase. An unknown type is stored, as the protocol demands, unless it says that it waits.
// The end of a call is always stored: a verdict on it would count as one on the call that ran.
func plan(r endpoint.Request) (endpoint.Plan, *endpoint.Problem) {
	e, err := wire.Decode(r.Body, strictjson.DefaultLimits)
	if e == nil {
		return endpoint.AdmitTo(subject.ProtoAgentHook)(r)
	}
	status, reply := http.StatusOK, wire.Reply{EventID: sentID(r.Body), Decision: "allow", Reason: "observational: stored, nothing was asked"}
	switch waits := err != nil || e.WaitsForVerdict(); {
	case e.ClosesCall() && waits:
		fault := "evidence_phase must be post_hoc or observational"
		if err != nil {
			fault = err.Error()
		}
		status, reply.Decision, reply.Reason = http.StatusBadRequest, "deny", "stored as the end of a call, about which nothing can be asked: "+fault
	case e.ClosesCall():
	case waits || !wire.ValidTypeName(e.EventType) || wire.NamesProposal(e.EventType) || e.HasUnknownPhase():
		return endpoint.AdmitTo(subject.ProtoAgentHook)(r)
	}
	return endpoint.Plan{Publish: &endpoint.Events{
		Protocol: subject.ProtoAgentHook, Bodies: [][]byte{r.Body},
		Stored: endpoint.JSON(status, reply),
	}}, nil
}

// sentID is the event's id as it was sent: the reply must repeat it, also if it is empty.
func sentID(body []byte) string {
	var e struct {
		EventID string `json:"event_id"`
	}
	_ = json.Unmarshal(body, &e) // the body was decoded before
	return e.EventID
}
