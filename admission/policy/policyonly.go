package policy

import (
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/countersign-dev/countersign/events/casefold"
)

// Result modes: how a runtime that knows them (aioc, RFC-0002) reports a refusal. The zero
// value counts as ModeThrow.
const (
	ModeThrow      = "throw"       // as an error that ends the run
	ModeToolResult = "tool_result" // as the result of the call; the run goes on
)

// isHandoff reports whether the input proposes a change of agent. It then has no tool.
func (in *Input) isHandoff() bool { return ProposesHandoff(in.Protocol) }

// isPolicyOnly reports whether policies alone decide for the input's protocol.
func (in *Input) isPolicyOnly() bool { _, is := policyOnlyProtocols[in.Protocol]; return is }

// indexName is the name under which the index finds policies: the tool, or the target agent of
// a handoff.
func (in *Input) indexName() string {
	if in.isHandoff() {
		return in.ToAgent
	}
	return in.Tool
}

// addressesHandoffs reports whether a policy may apply to handoffs: it has an operand for their
// agents, or names the protocol itself. A pattern in protocols is not enough: a policy written
// for tool calls must not decide handoffs by accident, neither by allowing one nor by failing
// on arguments that a handoff lacks.
func (m match) addressesHandoffs() bool {
	return m.hasAgents() || slices.ContainsFunc(m.Protocols, ProposesHandoff)
}

// addressesCalls reports the same for everything that is not a handoff.
func (m match) addressesCalls() bool {
	if m.hasAgents() {
		return false
	}
	return len(m.Protocols) == 0 || slices.ContainsFunc(m.Protocols, func(p string) bool { return !ProposesHandoff(p) })
}

func (m match) hasAgents() bool { return len(m.FromAgents) > 0 || len(m.ToAgents) > 0 }

// reachesProtocol reports whether a policy can apply to requests of a protocol at all.
func (m match) reachesProtocol(protocol string) bool {
	if !newOperand(m.Protocols).matches(protocol) {
		return false
	}
	if ProposesHandoff(protocol) {
		return m.addressesHandoffs()
	}
	return m.addressesCalls()
}

// checkOperands refuses operands that exclude each other: such a policy would look like a
// restriction and never match.
func (r *reader) checkOperands(n *yaml.Node, m *match) {
	switch {
	case len(m.Tools) > 0 && m.hasAgents():
		r.Fail(n, "match.tools excludes match.fromAgents and match.toAgents: a handoff has no tool; write two policies")
	case len(m.Tools) > 0 && slices.ContainsFunc(m.Protocols, ProposesHandoff):
		r.Fail(n, "match.tools excludes the protocol handoff: a handoff has no tool; write a policy of its own, with toAgents")
	case m.hasAgents() && len(m.Protocols) > 0 && !newOperand(m.Protocols).matchesAny(handoffProtocols()):
		r.Fail(n, "match.fromAgents and match.toAgents are of the protocol handoff, which match.protocols leaves out")
	}
}

// matches reports whether a policy applies to the names of a call. folded reports whether it
// would apply if case were ignored, and the policy restricts.
func (p *policy) matches(in *Input) (exact, folded bool) {
	if in.isHandoff() && !p.handoffs || !in.isHandoff() && !p.calls {
		return false, false
	}
	if !in.isHandoff() {
		exact = p.tools.matches(in.Tool)
		return exact, !exact && p.restrictsNames && p.foldedTools.matches(casefold.String(in.Tool))
	}
	if exact = p.from.matches(in.FromAgent) && p.to.matches(in.ToAgent); exact {
		return true, false
	}
	return false, p.restrictsNames && p.foldedFrom.matches(casefold.String(in.FromAgent)) && p.foldedTo.matches(casefold.String(in.ToAgent))
}

// namesExactly reports whether a policy's operands contain the exact name of the tool, or of
// the agent that a handoff is to.
func (p *policy) namesExactly(in *Input) bool {
	names := p.tools
	if in.isHandoff() {
		names = p.to
	}
	if names == nil {
		return false
	}
	_, listed := names.literals[in.indexName()]
	return listed
}

// fallbacksOverruled reports whether fallback policies of a level do not apply because another policy
// that matches the call names it exactly (RFC-0010: exact name, then *). One of scope default overrules
// none of a tenant's own: it may not decide at all, and then nothing would stand in the fallback's place.
func (s *Set) fallbacksOverruled(in *Input, words []string, candidates []int, defaults bool) bool {
	if !s.hasFallbacks {
		return false
	}
	for _, i := range candidates {
		p := s.policies[i]
		if p.fallback || p.action != "" || p.level == ScopeDefault && !defaults || !p.namesExactly(in) || !p.matchesBesidesNames(in, words) {
			continue
		}
		if exact, _ := p.matches(in); exact {
			return true
		}
	}
	return false
}
