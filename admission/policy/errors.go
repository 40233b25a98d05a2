package policy

import (
	"errors"

	"github.com/countersign-dev/countersign/events/strictyaml"
)

// ErrNoPolicies reports that there is no policy at all: no file, or files without a policy. The
// caller must deny everything.
var ErrNoPolicies = errors.New("policy: there is no policy, so everything is denied; add one, or the line \"builtin: evaluators-only\"")

// Error is one mistake in one document.
type Error = strictyaml.Error

// Reason codes of verdicts that no rule gives.
const (
	CodeNoPolicy        = "no_policy"             // no policy could apply to this tenant
	CodeNoMatch         = "no_policy_match"       // policies exist, but no rule matched
	CodePolicyError     = "policy_error"          // a condition could not be evaluated
	CodePolicyMemory    = "policy_memory"         // the conditions make more of the request than its share of memory allows
	CodePolicyDeadline  = "policy_deadline"       // half of the admitter's --timeout passed before the conditions were evaluated; no record is kept
	CodeInvalidToolName = "invalid_tool_name"     // a tool name that two readers may take for different tools
	CodeInvalidArgName  = "invalid_argument_name" // an argument name that two readers may take for different names
	CodeInvalidOperand  = "invalid_operand"       // another operand with control characters or invalid UTF-8
	CodeToolNameCase    = "tool_name_case"        // a restricted tool's name in another case
	CodeEvaluatorsOnly  = "evaluators_only"       // the policy is the built-in one: the protocol's evaluator decides alone
	CodeInvalidAgent    = "invalid_agent_name"    // an agent name of a handoff that two readers may take for different agents
	CodeAgentNameCase   = "agent_name_case"       // a restricted agent's name in another case
	CodeCounters        = "counter_unavailable"   // the count of a limit is not known
	CodeInvalidArgs     = "invalid_arguments"     // arguments that are not JSON, and no policy that accepts them
)
