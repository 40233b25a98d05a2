// Package aana is AANA's HTTP endpoints: the tool pre-check, its alias, and validation. A refusal is
// a verdict, with status 200; an outage is an HTTP error, which AANA's clients take for a refusal.
package aana

import (
	"net/http"

	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/gateway/endpoint"
	"github.com/countersign-dev/countersign/schemas/judge"
)

// Rows are the endpoints. The query is not read: shadow_mode would let a caller choose that nothing is
// enforced.
var Rows = []endpoint.Row{
	{Pattern: "POST /pre-tool-check", Plan: endpoint.AdmitTo(subject.ProtoAANA), Reply: reply, Problem: problem, TokenHeader: tokenHeader},
	{Pattern: "POST /tool-precheck", Plan: endpoint.AdmitTo(subject.ProtoAANA), Reply: reply, Problem: problem, TokenHeader: tokenHeader},
	{Pattern: "POST /validate-tool-precheck", Plan: validate, Problem: problem, TokenHeader: tokenHeader},
}

// tokenHeader is the header in which AANA's clients may send the token instead of Authorization.
const tokenHeader = "X-Aana-Token"

// scope is what the endpoints demand, in AANA's word: the role of a token.
const scope = "runtime"

// contractVersion is the version that a validation names.
const contractVersion = "aana.agent_action_contract.v1"

// reply gives a verdict as it is. An event that is not valid has AANA's error.
func reply(a endpoint.Reply) endpoint.Response {
	if a.Status == http.StatusOK {
		return endpoint.Row{}.Respond(a)
	}
	return problem(&endpoint.Problem{Status: a.Status, Code: "pre_tool_check_failed", Message: "the event is not valid or cannot be judged; POST /validate-tool-precheck says what is wrong with it"})
}

// problem is a failure in AANA's words: under the member detail, but for what exceeds a limit.
func problem(p *endpoint.Problem) endpoint.Response {
	members := map[string]any{"error": p.Code, "message": p.Message}
	switch p.Status {
	case http.StatusUnauthorized:
		return p.With(map[string]string{"detail": "Unauthorized."})
	case http.StatusForbidden:
		if p.Role != "" {
			members["error"], members["required_scope"], members["configured_scopes"] = "insufficient_scope", scope, []string{p.Role}
		}
	case http.StatusRequestEntityTooLarge:
		if p.Limit > 0 {
			members["max_request_bytes"] = p.Limit
		}
		return p.With(members)
	case http.StatusTooManyRequests:
		members["retry_after_seconds"] = p.RetryAfter
		if p.Limit > 0 {
			members["requests_per_minute"] = 60 * p.Limit
		}
		return p.With(members)
	}
	return p.With(map[string]any{"detail": members})
}

// validate judges an event by its schema. Nothing is recorded.
func validate(r endpoint.Request) (endpoint.Plan, *endpoint.Problem) {
	errs := []string{}
	found, err := judge.Judge(subject.ProtoAANA, r.Body)
	if err != nil {
		errs = append(errs, err.Error())
	}
	for _, v := range found {
		errs = append(errs, v.String())
	}
	answer := endpoint.JSON(http.StatusOK, map[string]any{"valid": len(errs) == 0, "errors": errs, "schema_version": contractVersion})
	return endpoint.Plan{Answer: &answer}, nil
}
