package policy

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"cel.dev/cel-go/cel"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
)

// Set is a compiled set of policies. It is immutable and safe for concurrent
// use; the nil Set denies everything with no_policy.
type Set struct {
	policies  []*policy // by name
	index     map[indexKey][]int
	tenants   tenancy            // who has a policy at all
	gated     map[string]tenancy // of each gate: who has one that reaches it, the built-in one not counted
	fallbacks bool               // there is a policy that is a fallback
	digest    string
}

// tenancy is a set of tenants.
type tenancy struct {
	some bool
	who  *operand // nil is everybody
}

func (t tenancy) includes(tenant string) bool { return t.some && t.who.matches(tenant) }

type policy struct {
	name                                                          string
	tenants, sources, protocols, tools, actions, kinds, riskWords *operand
	from, to                                                      *operand
	foldedTools, foldedFrom, foldedTo                             *operand
	restricts                                                     bool // names are given, and a rule does not allow
	calls, handoffs                                               bool // what it speaks on
	builtin, fallback, acceptRaw                                  bool
	expiresAfter                                                  time.Duration
	rules                                                         []rule
}

type rule struct {
	id      string // policy/rule
	when    condition
	verdict events.Verdict
	reason  string
	message string
	soft    bool // ModeToolResult
}

// indexKey finds the policies that may speak on a tenant's use of a tool. The
// empty string in either place holds the policies that do not list it by its
// full name. Names are folded, so that one in another case finds the policy
// that restricts it. Handoffs have an index of their own, in which the agent
// that the handoff is to stands for the tool.
type indexKey struct {
	tenant, name string
	handoff      bool
}

// Compile reads, checks and compiles every policy in docs. Either all of them
// are good or none is used: the error joins every mistake found, each as an
// *Error with file and line. No policy at all is ErrNoPolicies.
func Compile(docs []Document) (*Set, error) {
	var specs []spec
	var errs []error
	for _, d := range docs {
		s, err := readFile(d)
		specs, errs = append(specs, s...), append(errs, err)
	}
	if len(specs) > MaxPolicies {
		return nil, fmt.Errorf("policy: %d policies are too many; a set holds at most %d", len(specs), MaxPolicies)
	}
	errs = append(errs, duplicates(specs)...)
	set, err := compileAll(specs)
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	if len(specs) == 0 {
		return nil, ErrNoPolicies
	}
	return set, nil
}

// EvaluatorsOnlySet is the compiled built-in policy, by itself.
func EvaluatorsOnlySet() (*Set, error) {
	doc, _ := Builtin(EvaluatorsOnly)
	return Compile([]Document{doc})
}

func duplicates(specs []spec) (errs []error) {
	first := map[string]spec{}
	for _, s := range specs {
		if o, taken := first[s.Name]; taken {
			errs = append(errs, &Error{File: s.file, Line: s.line,
				Msg: fmt.Sprintf("the name %s is taken by the policy at %s:%d", s.Name, o.file, o.line)})
			continue
		}
		first[s.Name] = s
	}
	return errs
}

func compileAll(specs []spec) (*Set, error) {
	env, err := newEnv()
	if err != nil {
		return nil, fmt.Errorf("policy: the CEL environment: %w", err)
	}
	specs = slices.SortedFunc(slices.Values(specs), func(a, b spec) int { return cmp.Compare(a.Name, b.Name) })
	set := &Set{index: map[indexKey][]int{}}
	var errs []error
	for i, s := range specs {
		p, err := compilePolicy(env, s)
		set.policies, errs = append(set.policies, p), append(errs, err)
		set.fallbacks = set.fallbacks || s.Fallback
		for _, k := range indexKeys(s) {
			set.index[k] = append(set.index[k], i)
		}
	}
	set.tenants = tenantsOf(specs)
	set.gated = map[string]tenancy{}
	for _, gate := range gates {
		set.gated[gate] = tenantsOf(slices.DeleteFunc(slices.Clone(specs), func(s spec) bool { return s.builtin || !s.Match.reaches(gate) }))
	}
	canonical, err := events.Encode(map[string]any{"language": apiVersion, "policies": specs})
	set.digest = digest.Plain(canonical)
	return set, errors.Join(append(errs, err)...)
}

func compilePolicy(env *cel.Env, s spec) (*policy, error) {
	m := s.Match
	p := &policy{
		name: s.Name, expiresAfter: s.ExpiresAfter,
		tenants: newOperand(m.Tenants), sources: newOperand(m.Sources), protocols: newOperand(m.Protocols),
		tools: newOperand(m.Tools), actions: newOperand(m.Actions), kinds: newOperand(m.ResourceKinds), riskWords: newOperand(m.Risks),
		from: newOperand(m.FromAgents), to: newOperand(m.ToAgents), calls: m.addressesCalls(), handoffs: m.addressesHandoffs(),
		builtin: s.builtin, fallback: s.Fallback, acceptRaw: s.AcceptRaw,
	}
	p.foldedTools, p.foldedFrom, p.foldedTo = p.tools.folded(), p.from.folded(), p.to.folded()
	named := p.tools != nil || m.hasAgents()
	var errs []error
	for _, r := range s.Rules {
		when, err := compile(env, r.When)
		if err != nil {
			errs = append(errs, &Error{File: s.file, Line: r.whenLine, Msg: fmt.Sprintf("policy %s, rule %s: %v", s.Name, r.Name, err)})
		}
		p.restricts = p.restricts || named && r.Verdict != events.Allow
		p.rules = append(p.rules, rule{id: s.Name + "/" + r.Name, when: when, verdict: r.Verdict, reason: r.Reason, message: r.Message,
			soft: r.ResultMode == ModeToolResult})
	}
	return p, errors.Join(errs...)
}

func indexKeys(s spec) []indexKey {
	var keys []indexKey
	for _, tenant := range exactOrAll(s.Match.Tenants, func(t string) string { return t }) {
		if s.Match.addressesCalls() {
			for _, tool := range exactOrAll(s.Match.Tools, fold) {
				keys = append(keys, indexKey{tenant, tool, false})
			}
		}
		if s.Match.addressesHandoffs() {
			for _, agent := range exactOrAll(s.Match.ToAgents, fold) {
				keys = append(keys, indexKey{tenant, agent, true})
			}
		}
	}
	return keys
}

// exactOrAll gives the entries if every one is exact, and else the one key that
// stands for all.
func exactOrAll(patterns []string, key func(string) string) []string {
	if len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool { return strings.ContainsAny(p, "*?") }) {
		return []string{""}
	}
	var keys []string
	for _, p := range patterns {
		if k := key(p); !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	return keys
}

func tenantsOf(specs []spec) tenancy {
	var all []string
	for _, s := range specs {
		if len(s.Match.Tenants) == 0 {
			return tenancy{some: true}
		}
		all = append(all, s.Match.Tenants...)
	}
	return tenancy{some: len(specs) > 0, who: newOperand(all)}
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

// LoadDir reads every *.yaml and *.yml file of a directory and below, in the
// order of their paths. Names that begin with a dot are skipped. A directory
// that is not there or holds no such file is ErrNoPolicies: an empty or
// misspelt path must never read as "no rules".
func LoadDir(fsys fs.FS) ([]Document, error) {
	var docs []Document
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		switch base := path.Base(name); {
		case err != nil && name == "." && errors.Is(err, fs.ErrNotExist):
			return ErrNoPolicies
		case err != nil:
			return err
		case name != "." && strings.HasPrefix(base, "."):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir(), !slices.Contains(extensions, strings.ToLower(path.Ext(base))):
			return nil
		}
		data, err := fs.ReadFile(fsys, name)
		docs = append(docs, Document{Name: name, Data: data})
		return err
	})
	switch {
	case errors.Is(err, ErrNoPolicies):
		return nil, ErrNoPolicies
	case err != nil:
		return nil, fmt.Errorf("policy: reading policies: %w", err)
	case len(docs) == 0:
		return nil, ErrNoPolicies
	}
	return docs, nil
}

var extensions = []string{".yaml", ".yml"}
