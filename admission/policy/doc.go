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
// The operands of match are tenants, sources, protocols, tools, actions,
// resourceKinds and risks. An operand that is left out places no condition; one
// that is there and empty (null, [], "" or a list with such an entry) is an
// error, so that nothing matches everything by accident. Entries are exact in
// case and cover the whole value; * stands for any characters, ? for one. No
// entry matches a value that the request does not have. risks is compared with
// operation_risk, risk_class and level of the request and with the word
// irreversible if the request is that.
//
// CEL sees tenant, source, protocol, tool, action, resource_kind,
// resource_scope, session and agent (strings), resource (text or object), risk,
// args and event (maps) and now (timestamp). Numbers are ints when their value
// is an integer, else doubles, however they were written. Parts of an event in
// which a publisher speaks for itself on approvals, verdicts or identity are
// not in event: claims are no authority (AH-C-088, AH-C-105).
//
// All matching policies and all their rules are evaluated; the strictest
// matching rule wins (allow < ask < defer < deny) and every matching rule is a
// reason. What nothing matches is denied, and so is what cannot be evaluated.
//
// A document that consists of the one line
//
//	builtin: evaluators-only
//
// is the policy of that name: it allows everything, so that the protocol's own
// evaluator decides alone.
//
// The package is pure: it reads no clock and has no state. A Set is immutable
// and safe for concurrent use.
package policy
