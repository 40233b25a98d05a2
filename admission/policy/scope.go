package policy

import (
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictyaml"
)

// Scopes: the level of a policy. Within and among levels the strictest verdict wins, with one
// exception: the default level does not apply where a rule of the tenant's own policies
// matches. So no policy can loosen a global one.
const (
	ScopeGlobal  = "global"  // for all tenants; a policy without match.tenants
	ScopeTenant  = "tenant"  // for the tenants that match.tenants names
	ScopeDefault = "default" // applies where no rule of a tenant's own policies matches
)

var scopeForm = regexp.MustCompile("^(" + strings.Join([]string{ScopeGlobal, ScopeTenant, ScopeDefault}, "|") + ")$")

// scopeLevel is the scope of a policy, explicit or implied.
func (s *spec) scopeLevel() string {
	switch {
	case s.Scope == ScopeDefault:
		return ScopeDefault
	case len(s.Match.Tenants) > 0:
		return ScopeTenant
	}
	return ScopeGlobal
}

// readScope keeps only a scope that does not follow from match: writing out the implied scope
// does not make another policy.
func (r *reader) readScope(n *yaml.Node, scope string, s *spec) {
	switch {
	case scope == ScopeGlobal && len(s.Match.Tenants) > 0:
		r.Fail(n, "a policy of scope global is for all tenants; leave match.tenants out, or the scope")
	case scope == ScopeTenant && len(s.Match.Tenants) == 0:
		r.Fail(n, "a policy of scope tenant needs match.tenants")
	case scope == ScopeDefault:
		s.Scope = scope
	}
}

// Validation actions: the effect of a policy's rules.
const (
	ActionEnforce = "enforce" // they decide
	ActionWarn    = "warn"    // they are recorded, and the caller is told
	ActionAudit   = "audit"   // they are recorded

	// ActionObserve is no word of a policy: it marks the reasons of policies that decide, in an
	// admitter that only observes.
	ActionObserve = events.ModeObserve
)

// actionsField reads validationActions. "" stands for enforce; warn includes audit.
func (r *reader) actionsField(into *string) strictyaml.Field {
	var said []string
	form := regexp.MustCompile("^(" + strings.Join([]string{ActionEnforce, ActionWarn, ActionAudit}, "|") + ")$")
	read := r.List("spec.validationActions", 3, func(n *yaml.Node) {
		var a string
		r.Form("an entry of spec.validationActions", 16, form, &a)(n)
		if a != "" && slices.Contains(said, a) {
			r.Fail(n, "spec.validationActions lists %s twice", a)
		}
		said = append(said, a)
	})
	return func(n *yaml.Node) {
		read(n)
		enforce, warn := slices.Contains(said, ActionEnforce), slices.Contains(said, ActionWarn)
		switch {
		case enforce && len(said) > 1:
			r.Fail(n, "spec.validationActions: enforce goes with nothing else; what decides is recorded anyway")
		case warn:
			*into = ActionWarn
		case slices.Contains(said, ActionAudit):
			*into = ActionAudit
		}
	}
}
