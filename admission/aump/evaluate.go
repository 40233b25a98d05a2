package aump

import (
	"slices"
	"time"

	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/admission/call"
	wire "github.com/countersign-dev/countersign/events/aump"
)

// Input holds everything that a decision depends on.
type Input struct {
	Mandate *mandate.Mandate // nil: there is none with this id
	Ref     wire.Ref         // the reference in the request
	Action  wire.Action
	Context wire.Context
	Now     time.Time
	Profile call.Profile

	Agent string // the requesting agent, as the request states; "" if not stated

	// From Countersign's own records.
	Revoked    bool
	Facts      mandate.PrincipalConsent
	Spend      mandate.Spend
	Signatures mandate.SignaturePolicy
}

// noteDecision is the decision of a finding that has no effect on the verdict.
const noteDecision = ""

// Finding is one finding of an evaluation.
type Finding struct {
	Decision string // wire.Denied, wire.RequiresEscalation, or "" for a note
	Code     string
	Path     string // JSONPath into the mandate, or below $.proposed_action into the request
}

// Result is the result of an evaluation.
type Result struct {
	Decision string
	Findings []Finding // in the order of the table; notes last
}

// Evaluate evaluates one action. The same input gives the same result. Documents must satisfy
// their schemas; a mandate that does not is refused.
func Evaluate(in Input) Result {
	var r Result
	switch {
	case in.Mandate == nil:
		r.addFinding(wire.Denied, CodeNotFound, "$.mandate_ref.id")
	case in.Mandate.Violations != nil:
		r.addFinding(wire.Denied, CodeSchemaInvalid, "$")
	default:
		s := rowInput{Input: in, rules: rulesFor(in.Profile), commits: commitsPrincipal(in.Action)}
		if r.runChecks(references, s); len(r.Findings) == 0 {
			r.runChecks(checkRows, s)
		}
	}
	r.Decision = wire.Allowed
	for _, d := range []string{wire.RequiresEscalation, wire.Denied} {
		if slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Decision == d }) {
			r.Decision = d
		}
	}
	return r
}

// rowInput is the input of the rows.
type rowInput struct {
	Input
	rules   profileRules
	commits bool
}

// maxPaths bounds the findings of one kind. The decision does not depend on the ones left out.
const maxPaths = 32

func (r *Result) runChecks(rows []checkRow, s rowInput) {
	for _, decision := range []string{wire.Denied, wire.RequiresEscalation, noteDecision} {
		for _, row := range rows {
			if row.decision != decision {
				continue
			}
			paths := row.paths(&s)
			for _, path := range paths[:min(len(paths), maxPaths)] {
				for _, code := range row.codes {
					r.addFinding(decision, code, path)
				}
			}
			if len(paths) > maxPaths {
				r.addFinding(noteDecision, CodeReasonsCut, "")
			}
		}
	}
}

func (r *Result) addFinding(decision, code, path string) {
	r.Findings = append(r.Findings, Finding{decision, code, path})
}

// ReasonCodes are the codes of the findings that caused the decision, each once.
func (r Result) ReasonCodes() []string {
	return r.collectUnique(func(f Finding) string { return f.Code })
}

// Paths are the paths of the findings that caused the decision, each once.
func (r Result) Paths() []string {
	return r.collectUnique(func(f Finding) string { return f.Path })
}

func (r Result) collectUnique(what func(Finding) string) []string {
	list := []string{}
	for _, f := range r.Findings {
		if f.Decision == r.Decision && !slices.Contains(list, what(f)) {
			list = append(list, what(f))
		}
	}
	return list
}

// committingActions are the types of action that always commit the principal.
var committingActions = []string{"accept_deal", "complete_checkout", "place_order", "create_ap2_payment_mandate"}

// commitsPrincipal reports whether an action commits the principal.
func commitsPrincipal(a wire.Action) bool {
	return a.Commitment || slices.Contains(committingActions, a.Type)
}
