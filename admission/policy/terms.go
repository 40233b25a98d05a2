package policy

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/countersign-dev/countersign/admission/approval"
	"github.com/countersign-dev/countersign/events/strictyaml"
)

// approvalSpec is approval as written.
type approvalSpec struct {
	Reviewers []string      `json:"reviewers,omitempty"`
	Quorum    int64         `json:"quorum,omitempty"`
	Resume    string        `json:"resume,omitempty"`
	Lifetime  time.Duration `json:"expires_after_ns,omitempty"`
	Show      []string      `json:"show,omitempty"`

	line   int
	groups []reference // Reviewers, with their lines
}

var (
	resumeForm = regexp.MustCompile("^(" + strings.Join(approval.ResumePolicies, "|") + ")$")
	showForm   = regexp.MustCompile(`^(resource|(/[^\x00-\x1f\x7f]*)+)$`)
)

func (r *reader) approvalField(what string, into **approvalSpec) strictyaml.Field {
	return func(n *yaml.Node) {
		if n.Kind == yaml.MappingNode && len(n.Content) == 0 {
			r.Fail(n, "%s is empty; leave it out for one approval by any reviewer of the tenant", what)
			return
		}
		a := &approvalSpec{line: n.Line}
		r.Mapping(n, what, strictyaml.Fields{
			"reviewers":    r.referencesField(what+".reviewers", MaxReviewers, &a.groups),
			"quorum":       r.Int(what+".quorum", 1, MaxQuorum, &a.Quorum),
			"resume":       r.Form(what+".resume", 32, resumeForm, &a.Resume),
			"expiresAfter": r.Duration(what+".expiresAfter", MinLifetime, MaxLifetime, &a.Lifetime),
			"show": r.List(what+".show", MaxShown, func(n *yaml.Node) {
				var pointer string
				r.Form("an entry of "+what+".show", MaxPattern, showForm, &pointer)(n)
				a.Show = append(a.Show, pointer)
			}),
		})
		for _, g := range a.groups {
			a.Reviewers = append(a.Reviewers, g.name)
		}
		*into = a
	}
}

// approvalOf is the approval of a rule: what it says itself, and for the rest what its policy says.
func (s spec) approvalOf(r ruleSpec) *approvalSpec {
	if r.Approval == nil || s.Approval == nil {
		return cmp.Or(r.Approval, s.Approval)
	}
	a, all := *r.Approval, s.Approval
	if len(a.Reviewers) == 0 {
		a.Reviewers, a.groups = all.Reviewers, all.groups
	}
	if len(a.Show) == 0 {
		a.Show = all.Show
	}
	a.Quorum, a.Resume, a.Lifetime = cmp.Or(a.Quorum, all.Quorum), cmp.Or(a.Resume, all.Resume), cmp.Or(a.Lifetime, all.Lifetime)
	return &a
}

func (a *approvalSpec) approvalTerms() *approval.Terms {
	if a == nil {
		return nil
	}
	return &approval.Terms{Reviewers: a.Reviewers, Quorum: int(a.Quorum), Resume: a.Resume, Lifetime: a.Lifetime, Show: a.Show}
}

// checkReviewers checks that the groups that policies name exist, and that quorums can be
// reached.
func (src *documentSet) checkReviewers() (errs []error) {
	groups := compileGroups(src.groups)
	for _, s := range src.policies {
		own := s.Approval.checkGroups(s, groups)
		errs = append(errs, own...)
		for _, r := range s.Rules {
			if r.Approval != nil && (len(own) == 0 || len(r.Approval.groups) > 0) { // else it is said already
				errs = append(errs, s.approvalOf(r).checkGroups(s, groups)...)
			}
		}
	}
	return errs
}

func (a *approvalSpec) checkGroups(s spec, groups map[string]group) (errs []error) {
	if a == nil || len(a.groups) == 0 {
		return nil
	}
	users := map[string]bool{}
	for _, ref := range a.groups {
		g, known := groups[ref.name]
		if !known {
			errs = append(errs, place{s.file, ref.line}.fail("policy %s: approval names the reviewers %s, and there is no document of kind %s with that name", s.Name, ref.name, kindGroup))
		}
		for _, u := range g.members {
			users[u] = true
		}
	}
	if len(errs) == 0 && len(users) < int(a.Quorum) {
		errs = append(errs, place{s.file, a.line}.fail("policy %s: approval wants %d reviewers, and its groups have %d members", s.Name, a.Quorum, len(users)))
	}
	return errs
}

// maxCombinedGroups bounds how many groups several approvals combine to. Beyond it no approval
// is possible.
const maxCombinedGroups = MaxReviewers

// combineTerms returns terms that satisfy every one of a list: a reviewer counts only if every
// rule that asks accepts them, the quorum is the largest and the lifetime the shortest. The
// first resume mode holds. A reviewer may see what any of the rules shows, because a reviewer
// must satisfy all of them.
func combineTerms(list []*approval.Terms) approval.Terms {
	var all approval.Terms
	for _, t := range list {
		all.Reviewers = intersectGroups(all.Reviewers, t.Reviewers)
		all.Quorum = max(all.Quorum, t.Quorum)
		all.Resume = cmp.Or(all.Resume, t.Resume)
		for _, p := range t.Show {
			if !slices.Contains(all.Show, p) {
				all.Show = append(all.Show, p)
			}
		}
		if t.Lifetime > 0 && (all.Lifetime == 0 || t.Lifetime < all.Lifetime) {
			all.Lifetime = t.Lifetime
		}
	}
	return all
}

// intersectGroups returns the groups of users that are in one of a and in one of b; an empty
// list stands for all users.
func intersectGroups(a, b []string) []string {
	switch {
	case len(a) == 0:
		return b
	case len(b) == 0 || slices.Equal(a, b):
		return a
	}
	var out []string
	for _, x := range a {
		for _, y := range b {
			names := append(strings.Split(x, groupSeparator), strings.Split(y, groupSeparator)...)
			slices.Sort(names)
			if name := strings.Join(slices.Compact(names), groupSeparator); !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	if len(out) > maxCombinedGroups {
		return []string{groupSeparator} // a group without members
	}
	return out
}
