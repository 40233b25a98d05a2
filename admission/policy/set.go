package policy

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/admission/approval"
	"github.com/countersign-dev/countersign/events"
)

// Set is a compiled set of policies. It is immutable and safe for concurrent
// use; the nil Set denies everything with no_policy.
type Set struct {
	policies         []*policy // by name
	index            index
	anyCoverage      coverage // of every policy
	enforcedCoverage coverage // of those that decide
	hasFallbacks     bool     // there is a policy that is a fallback
	hasDefaults      bool     // there is one of scope default
	groups           map[string]group
	digest           string
}

// coverage is who has a policy.
type coverage struct {
	tenants tenantSet            // at all
	byGate  map[string]tenantSet // of each gate: one that reaches it, the built-in one not counted
}

// covers reports whether a call's tenant has a policy that could speak on such a
// call at all.
func (r *coverage) covers(in *Input) bool {
	return r.tenants.contains(in.Tenant) && (!in.isGate() || r.byGate[in.Protocol].contains(in.Tenant))
}

func coverageOf(specs []spec) coverage {
	r := coverage{tenants: tenantsOf(specs), byGate: map[string]tenantSet{}}
	for _, gate := range gates {
		r.byGate[gate] = tenantsOf(slices.DeleteFunc(slices.Clone(specs), func(s spec) bool { return s.builtin || !s.Match.reachesGate(gate) }))
	}
	return r
}

// tenantSet is a set of tenants.
type tenantSet struct {
	nonEmpty bool
	operand  *operand // nil is everybody
}

func (t tenantSet) contains(tenant string) bool { return t.nonEmpty && t.operand.matches(tenant) }

type policy struct {
	name                                                                  string
	level, action                                                         string
	tenants, sources, protocols, eventTypes, tools, actions, kinds, risks *operand
	from, to                                                              *operand
	foldedTools, foldedFrom, foldedTo                                     *operand
	restrictsNames                                                        bool // names are given, and a rule does not allow
	calls, handoffs                                                       bool // what it speaks on
	builtin, fallback, acceptRaw                                          bool
	expiresAfter                                                          time.Duration
	names                                                                 *policyNames // nil: neither params nor variables
	rules                                                                 []rule
	ruleIndex                                                             *index // nil: no rule has a match of its own
}

type rule struct {
	id                         string // policy/rule
	tools, actions, eventTypes *operand
	foldedTools                *operand
	when                       condition
	limit                      *limit
	verdict                    events.Verdict
	reason                     string
	message                    string
	toolResultMode             bool // ModeToolResult
	approval                   *approval.Terms
}

// Compile reads, checks and compiles every policy in docs. Either all of them
// are good or none is used: the error joins every mistake found, each as an
// *Error with file and line. No policy at all is ErrNoPolicies.
func Compile(docs []Document) (*Set, error) {
	src, err := readAll(docs)
	if n := len(src.policies); n > MaxPolicies {
		return nil, fmt.Errorf("policy: %d policies are too many; a set holds at most %d", n, MaxPolicies)
	}
	resolved := src.resolveReferences()
	set, compiled := compileAll(src)
	if err := errors.Join(err, resolved, compiled); err != nil {
		return nil, err
	}
	if len(src.policies) == 0 {
		return nil, ErrNoPolicies
	}
	return set, nil
}

// resolveReferences follows the names of other documents.
func (src *documentSet) resolveReferences() error {
	return errors.Join(append(src.resolveParams(), src.checkReviewers()...)...)
}

// EvaluatorsOnlySet is the compiled built-in policy, by itself.
func EvaluatorsOnlySet() (*Set, error) {
	doc, _ := Builtin(EvaluatorsOnly)
	return Compile([]Document{doc})
}

func tenantsOf(specs []spec) tenantSet {
	var all []string
	for _, s := range specs {
		if len(s.Match.Tenants) == 0 {
			return tenantSet{nonEmpty: true}
		}
		all = append(all, s.Match.Tenants...)
	}
	return tenantSet{nonEmpty: len(specs) > 0, operand: newOperand(all)}
}

// Digest is "sha256:<hex>" of everything in the set that decides, in canonical
// form: comments, layout, file names and order do not matter.
func (s *Set) Digest() string {
	if s == nil {
		return ""
	}
	return s.digest
}

// Names lists the policies in order.
func (s *Set) Names() []string {
	if s == nil {
		return nil
	}
	names := make([]string, len(s.policies))
	for i, p := range s.policies {
		names[i] = p.name
	}
	return names
}
