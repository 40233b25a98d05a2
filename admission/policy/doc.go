// Package policy is the tool policy language of Countersign: YAML documents in
// the manner of Kubernetes ValidatingAdmissionPolicy whose conditions are CEL
// expressions.
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
// The operands of match are tenants, sources, protocols, eventTypes, tools,
// actions, resourceKinds, risks, fromAgents and toAgents. An operand that is left out places no condition; one
// that is there and empty (null, [], "" or a list with such an entry) is an
// error, so that nothing matches everything by accident. Entries are exact in
// case and cover the whole value; * stands for any characters, ? for one. No
// entry matches a value that the request does not have. risks is compared with
// operation_risk, risk_class and level of the request and with the word
// irreversible if the request is that. A rule may have a match of its own with
// tools, actions and eventTypes.
//
// CEL sees tenant, source, protocol, event_type, tool, action, resource_kind,
// resource_scope, session, agent, from_agent and to_agent (strings), resource (text or object), risk,
// args, event and catalog (maps) and now (timestamp); params.<name> for the
// constants of spec.params and of the Params documents that spec.paramsFrom
// names; and variables.<name> for the expressions of spec.variables, each worked
// out at most once for a call, and only if somebody asks. Numbers are ints when their value
// is an integer, else doubles, however they were written. Parts of an event in
// which a publisher speaks for itself on approvals, verdicts or identity are
// not in event: claims are no authority (AH-C-088, AH-C-105).
//
// All matching policies and all their rules are evaluated; the strictest
// matching rule wins (allow < ask < defer < deny) and every matching rule is a
// reason. What nothing matches is denied, and so is what cannot be evaluated.
//
// # Levels
//
// Policies of scope global and tenant are always evaluated; those of scope
// default only where no rule of a policy of scope tenant has spoken. Everything
// that is evaluated goes into one verdict, the strictest, so that nothing can
// loosen what a global policy says.
//
// spec.validationActions: [audit] or [warn] keeps a policy from deciding: its
// reasons are recorded with Reason.Action, after all others, and have no part
// in anything but Verdicts.Warnings.
//
// # Approvals and limits
//
// approval on a policy or rule says how an ask is approved (Verdicts.Approval).
// Its reviewers are documents of kind ReviewerGroup (Set.Members). Where several
// rules ask, all are satisfied: see combine.
//
// A rule with a limit matches only if the call takes a counter beyond its max.
// What was counted before is an input (Input.Counters), what the call adds if it
// is allowed an output (Verdicts.Counts): there is no state here. What is not
// known denies (counter_unavailable).
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
// The protocols tool and handoff (aioc, RFC-0002) have no judgement of their
// own. For them evaluators-only is no policy, and a tenant whose policies can
// all not speak on such a call has none: no_policy.
//
// A handoff proposes another agent instead of a tool. A policy speaks on
// handoffs only if it says so, with fromAgents or toAgents or with the very word
// handoff in protocols; a pattern such as * there, or a match that is left out,
// does not reach them, for allow and for deny alike. A rule that shall hold for
// everything therefore stands in a policy with protocols [handoff] too.
// fromAgents and toAgents are the agents' names, written as operands are; a
// policy that has them speaks on nothing else, and has no tools. The payload of
// a handoff is args. Names of agents get the care that names of tools get:
// invalid_agent_name, agent_name_case.
//
// spec.fallback: true makes a policy the * entry of aioc's composition
// (RFC-0010): it keeps silent where another policy that matches the call lists
// the tool, or the agent that the handoff is to, by its exact name, whether or
// not a rule of that one matches. Without the key the strictest wins, as ever.
//
// Arguments that are not JSON come as {"__raw": text}. They are denied with
// invalid_arguments unless a rule matched in a policy with
// spec.acceptRawArguments: true; all others are evaluated nonetheless.
//
// resultMode: tool_result on a rule that does not allow makes its refusal soft:
// the runtime tells the model and goes on. The default is throw. Where several
// rules give the verdict all of them must be soft.
//
// The package is pure: it reads no clock and has no state. A Set is immutable
// and safe for concurrent use.
package policy
