package policy

import (
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/countersign-dev/countersign/events/strictyaml"
)

// groupDoc is a document of kind ReviewerGroup. Its JSON form is part of a set's
// digest.
type groupDoc struct {
	Name    string   `json:"name"`
	Members []string `json:"members"`
	Tenants []string `json:"tenants,omitempty"`
	place
}

// userForm is the name of a NATS user.
var userForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.@-]*$`)

func (r *reader) readGroup(n *yaml.Node, g *groupDoc) {
	r.Mapping(n, "spec", strictyaml.Fields{
		"members": r.List("spec.members", MaxMembers, func(n *yaml.Node) {
			var user string
			if !r.Read(n, r.Form("an entry of spec.members", 63, userForm, &user)) {
				return
			}
			if slices.Contains(g.Members, user) {
				r.Fail(n, "spec.members lists %s twice", user)
			}
			g.Members = append(g.Members, user)
		}),
		"tenants": r.operandField("tenants", &g.Tenants),
	}, "members")
}

// group is a compiled reviewer group.
type group struct {
	members []string // sorted
	tenants *operand
}

func compileGroups(docs []groupDoc) map[string]group {
	groups := make(map[string]group, len(docs))
	for _, d := range docs {
		groups[d.Name] = group{slices.Sorted(slices.Values(d.Members)), newOperand(d.Tenants)}
	}
	return groups
}

// groupSeparator joins the names of groups into the name of their intersection. No document can
// have such a name.
const groupSeparator = "&"

// Members lists the users of a tenant that are in a reviewer group, sorted. The list is empty
// if the group is unknown or not for the tenant. The name may be a combined one from
// Result.Approval: then the members are those that are in all of its groups.
func (s *Set) Members(tenant, name string) []string {
	if s == nil {
		return nil
	}
	var members []string
	for i, part := range strings.Split(name, groupSeparator) {
		g, known := s.groups[part]
		switch {
		case !known || !g.tenants.matches(tenant):
			return nil
		case i == 0:
			members = slices.Clone(g.members)
		default:
			members = slices.DeleteFunc(members, func(u string) bool {
				_, in := slices.BinarySearch(g.members, u)
				return !in
			})
		}
	}
	return members
}
