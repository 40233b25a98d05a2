// Package policy is the tool policy language of Countersign: YAML documents in the manner of
// Kubernetes ValidatingAdmissionPolicy with CEL expressions as conditions. The admitter
// compiles documents with Compile and evaluates each call with Set.Evaluate; begin reading
// there. Lint checks documents. The package is pure: it reads no clock and keeps no state. A
// Set is immutable and safe for concurrent use.
//
//	apiVersion: countersign.dev/v1
//	kind: AdmissionPolicy
//	metadata: {name: mail}
//	spec:
//	  match: {tenants: [acme], protocols: [agenthook], tools: ["send_*"]}
//	  expiresAfter: 60s
//	  rules:
//	    - name: internal
//	      when: 'args.to.endsWith("@example.com")'
//	      verdict: allow
//	      reason: internal_recipient
//	      message: "Mail inside the company."
//
// The operands of match are tenants, sources, protocols, eventTypes, tools, actions,
// resourceKinds, risks, fromAgents and toAgents. An operand that is left out places no
// condition. One that is present and empty (null, [], "" or a list with such an entry) is an
// error, so that nothing matches everything by accident. Entries are case-sensitive and cover
// the whole value; * stands for any characters, ? for one. No entry matches a value that the
// request does not have. risks is compared with operation_risk, risk_class and level of the
// request, with the catalogue's word for the tool and, if either says irreversible, with that
// word. A rule may have a match of its own with tools, actions and eventTypes.
//
// CEL sees tenant, source, protocol, event_type, tool, action, resource_kind, resource_scope,
// session, agent, from_agent and to_agent (strings), resource (text or object), risk, args,
// event and catalog (maps), agent_tool (object) and now (timestamp), see RequestVariables; params.<name> for the constants of spec.params
// and of the Params documents that spec.paramsFrom names; and variables.<name> for the
// expressions of spec.variables, each evaluated at most once for a call, and only if an
// expression reads it. Numbers are ints when their value is an integer, else doubles, however
// they were written. event leaves out the parts in which a publisher makes claims about
// approvals, verdicts or identity: claims are no authority (AH-C-088, AH-C-105).
//
// All matching policies and all their rules are evaluated; the strictest matching rule wins
// (allow < ask < defer < deny) and every matching rule is a reason. A call that no rule matches
// is denied, and so is one that cannot be evaluated. In a protocol whose evaluator decides alone
// if need be, package admission uses Result.AdvisoryOnly instead of the former.
//
// # Levels
//
// Policies of scope global and tenant are always evaluated; those of scope default only where
// no rule of a policy of scope tenant matches. All evaluated policies give one verdict, the
// strictest, so that no policy can loosen a global one.
//
// spec.validationActions: [audit] or [warn] keeps a policy from deciding: its reasons are
// recorded with Reason.Action, after all others, and affect only Result.Warnings.
//
// # Approvals and limits
//
// approval on a policy or rule says how an ask is approved (Result.Approval).
// Its reviewers are documents of kind ReviewerGroup (Set.Members). Where several
// rules ask, all are satisfied: see combine.
//
// A rule with a limit matches only if the call takes a counter beyond its max. Earlier counts
// are an input (Input.Counters); what the call adds if it is allowed is an output
// (Result.Counts). An unknown count denies (counter_unavailable).
//
// # Built-in
//
// A document that consists of the one line
//
//	builtin: evaluators-only
//
// is the policy of that name: it allows everything, so that the protocol's own
// evaluator decides alone.
//
// # Gates: tool and handoff
//
// The protocols tool and handoff (aioc, RFC-0002) have no evaluator of their own. For them
// evaluators-only does not count as a policy, and a tenant without a policy that can apply to
// such a call is denied with no_policy.
//
// A handoff proposes another agent instead of a tool. A policy applies to handoffs only if it
// says so, with fromAgents or toAgents or with the word handoff in protocols; a pattern such as
// * in protocols, or a match that is left out, does not include them, for allow and for deny
// alike. A rule that must hold for everything therefore also needs a policy with protocols
// [handoff]. fromAgents and toAgents are the agents' names, written as operands are; a policy
// that has them applies to handoffs only, and has no tools. The payload of a handoff is args.
// Names of agents are checked as names of tools are: invalid_agent_name, agent_name_case.
//
// spec.fallback: true makes a policy the * entry of aioc's composition (RFC-0010): it does not
// apply where another policy that matches the call lists the tool, or the agent that the
// handoff is to, by its exact name, whether or not a rule of that policy matches; one of scope
// default silences fallbacks of that scope alone. Without the key the strictest wins.
//
// Arguments that are not JSON arrive as {"__raw": text}. They are denied with invalid_arguments
// unless a rule matches in a policy with spec.acceptRawArguments: true; all other policies are
// evaluated all the same.
//
// resultMode: tool_result on a rule that does not allow makes its refusal soft: the runtime
// tells the model and continues. The default is throw. The verdict is soft only if all rules
// that give it are soft.
package policy
