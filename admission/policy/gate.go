package policy

import (
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/countersign-dev/countersign/events/subject"
)

// Result modes: how a runtime that knows them (aioc, RFC-0002) is to tell a
// refusal. The zero value is ModeThrow.
const (
	ModeThrow      = "throw"       // as an error that ends the run
	ModeToolResult = "tool_result" // as the result of the call; the run goes on
)

// gates are the protocols that have no judgement of their own: policies are all
// there is. For them the built-in policy evaluators-only is no policy, and a
// tenant none of whose policies can speak on such a call has none.
var gates = []string{subject.ProtoTool, subject.ProtoHandoff}

// isHandoff reports whether the input proposes a change of agent. It has no tool
// then.
func (in *Input) isHandoff() bool { return in.Protocol == subject.ProtoHandoff }

// isGate reports whether the input's protocol is one of gates.
func (in *Input) isGate() bool { return slices.Contains(gates, in.Protocol) }

// indexName is what the index finds policies by: the tool, or the agent that a
// handoff is to.
func (in *Input) indexName() string {
	if in.isHandoff() {
		return in.ToAgent
	}
	return in.Tool
}

// addressesHandoffs reports whether a policy may speak on handoffs: it says so,
// by an operand for their agents or by the protocol's own name. A pattern in
// protocols is not enough: a policy written for tool calls must not decide on
// handoffs by accident, neither allow one nor trip over arguments that it has
// not.
func (m match) addressesHandoffs() bool {
	return m.hasAgents() || slices.Contains(m.Protocols, subject.ProtoHandoff)
}

// addressesCalls is the same for everything that is no handoff.
func (m match) addressesCalls() bool {
	if m.hasAgents() {
		return false
	}
	return len(m.Protocols) == 0 || slices.ContainsFunc(m.Protocols, func(p string) bool { return p != subject.ProtoHandoff })
}

func (m match) hasAgents() bool { return len(m.FromAgents) > 0 || len(m.ToAgents) > 0 }

// reachesGate reports whether a policy can speak on calls of a gate at all.
func (m match) reachesGate(gate string) bool {
	if !newOperand(m.Protocols).matches(gate) {
		return false
	}
	if gate == subject.ProtoHandoff {
		return m.addressesHandoffs()
	}
	return m.addressesCalls()
}

// checkOperands refuses operands that exclude each other: such a policy would look
// as if it restricted something and never match.
func (r *reader) checkOperands(n *yaml.Node, m *match) {
	handoffs := newOperand([]string{subject.ProtoHandoff})
	switch {
	case len(m.Tools) > 0 && m.hasAgents():
		r.fail(n, "match.tools excludes match.fromAgents and match.toAgents: a handoff has no tool; write two policies")
	case len(m.Tools) > 0 && handoffs.matchesAny(m.Protocols):
		r.fail(n, "match.tools excludes the protocol handoff: a handoff has no tool; write a policy of its own, with toAgents")
	case m.hasAgents() && len(m.Protocols) > 0 && !newOperand(m.Protocols).matches(subject.ProtoHandoff):
		r.fail(n, "match.fromAgents and match.toAgents are of the protocol handoff, which match.protocols leaves out")
	}
}

// matches reports whether the names of a call are those that a policy speaks
// on; folded, whether they would be but for their case, and the policy
// restricts.
func (p *policy) matches(in *Input) (exact, folded bool) {
	if in.isHandoff() && !p.handoffs || !in.isHandoff() && !p.calls {
		return false, false
	}
	if !in.isHandoff() {
		exact = p.tools.matches(in.Tool)
		return exact, !exact && p.restrictsNames && p.foldedTools.matches(foldCase(in.Tool))
	}
	if exact = p.from.matches(in.FromAgent) && p.to.matches(in.ToAgent); exact {
		return true, false
	}
	return false, p.restrictsNames && p.foldedFrom.matches(foldCase(in.FromAgent)) && p.foldedTo.matches(foldCase(in.ToAgent))
}

// namesExactly reports whether a policy has the very name of the tool, or of
// the agent that a handoff is to, among its operands.
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

// fallbacksOverruled reports whether fallback policies keep silent: another policy that
// matches the call names it exactly (RFC-0010: exact name, then *).
func (s *Set) fallbacksOverruled(in *Input, words []string, candidates []int) bool {
	if !s.hasFallbacks {
		return false
	}
	for _, i := range candidates {
		p := s.policies[i]
		if p.fallback || p.action != "" || !p.namesExactly(in) || !p.matchesBesidesNames(in, words) {
			continue
		}
		if exact, _ := p.matches(in); exact {
			return true
		}
	}
	return false
}
