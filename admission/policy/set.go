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

// coverage records which tenants have a policy.
type coverage struct {
	tenants    tenantSet            // tenants with any policy
	byProtocol map[string]tenantSet // for each policy-only protocol: tenants with a policy that reaches it, the built-in one not counted
}

// covers reports whether a call's tenant has a policy that can apply to such a call at all.
func (r *coverage) covers(in *Input) bool {
	return r.tenants.contains(in.Tenant) && (!in.isPolicyOnly() || r.byProtocol[in.Protocol].contains(in.Tenant))
}

func coverageOf(specs []spec) coverage {
	r := coverage{tenants: tenantsOf(specs), byProtocol: map[string]tenantSet{}}
	for protocol := range policyOnlyProtocols {
		r.byProtocol[protocol] = tenantsOf(slices.DeleteFunc(slices.Clone(specs), func(s spec) bool { return s.builtin || !s.Match.reachesProtocol(protocol) }))
	}
	return r
}

// tenantSet is a set of tenants.
type tenantSet struct {
	nonEmpty bool
	operand  *operand // nil is all tenants
}

func (t tenantSet) contains(tenant string) bool { return t.nonEmpty && t.operand.matches(tenant) }

type policy struct {
	name                                                                  string
	level, action                                                         string
	tenants, sources, protocols, eventTypes, tools, actions, kinds, risks *operand
	from, to                                                              *operand
	foldedTools, foldedFrom, foldedTo                                     *operand
	restrictsNames                                                        bool // it has names, and a rule that does not allow
	calls, handoffs                                                       bool // what it applies to
	builtin, fallback, acceptRaw                                          bool
	expiresAfter                                                          time.Duration
	names                                                                 *policyNames // nil if it has neither params nor variables
	rules                                                                 []rule
	ruleIndex                                                             *index // nil if no rule has a match of its own
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

// Compile reads, checks and compiles every policy in docs. It returns either all of them or
// none: the error joins every mistake found, each as an *Error with file and line. Without any
// policy it is ErrNoPolicies.
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

// resolveReferences resolves the names of other documents.
func (src *documentSet) resolveReferences() error {
	return errors.Join(append(src.resolveParams(), src.checkReviewers()...)...)
}

// EvaluatorsOnlySet is the compiled built-in policy alone.
func EvaluatorsOnlySet() (*Set, error) {
	doc, _ := builtinDocument(EvaluatorsOnly)
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

// Digest returns "sha256:<hex>" of everything in the set that affects decisions, in canonical
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
