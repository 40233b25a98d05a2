package policy

import (
	"slices"

	"github.com/countersign-dev/countersign/events/subject"
)

// policyOnlyProtocol is the row of a protocol that has no evaluator of its own, so that policies alone
// decide. For such a protocol the built-in policy evaluators-only is no policy, and a tenant
// without a policy that can apply to such a call has none.
type policyOnlyProtocol struct {
	handoff bool // its requests propose a change of agent, and have no tool
}

// policyOnlyProtocols are the rows by their subject token. This file is the only one of the package that
// names a protocol (docs/adr/0023).
var policyOnlyProtocols = map[string]policyOnlyProtocol{subject.ProtoTool: {}, subject.ProtoHandoff: {handoff: true}}

// judgedProtocols are the protocols with an evaluator of their own, which alone decides where the tenant has
// policies and no rule matches.
var judgedProtocols = []string{subject.ProtoAANA, subject.ProtoAUMP}

// onlyJudged reports whether the protocols of a match are such protocols and no others.
func onlyJudged(protocols []string) bool {
	return len(protocols) > 0 && !slices.ContainsFunc(protocols, func(p string) bool { return !slices.Contains(judgedProtocols, p) })
}

// ProposesHandoff reports whether the requests of a protocol propose a change of agent. They
// then have no tool.
func ProposesHandoff(protocol string) bool { return policyOnlyProtocols[protocol].handoff }

func handoffProtocols() (tokens []string) {
	for token, g := range policyOnlyProtocols {
		if g.handoff {
			tokens = append(tokens, token)
		}
	}
	return tokens
}
