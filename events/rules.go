package events

import (
	"strings"

	"github.com/countersign-dev/countersign/events/subject"
)

// Modes of a rule for a tenant.
const (
	RuleOff     = "off"     // its findings are not put out
	RuleWarn    = "warn"    // they are; unless something else is said
	RuleEnforce = "enforce" // they are, marked for whoever acts on them
)

// ValidRuleMode reports whether a mode is one of the three.
func ValidRuleMode(mode string) bool {
	return mode == RuleOff || mode == RuleWarn || mode == RuleEnforce
}

// RuleSwitches says which modes the operator wants for a tenant: a document of
// the bucket of rules. Rules that it does not name are RuleWarn.
type RuleSwitches struct {
	Tenant string            `json:"tenant"`
	Rules  map[string]string `json:"rules"` // mode by rule or check, as findings name it
}

// RulesChange records that from here on the correlator judges a tenant by these
// switches, and by them only. It is what counts: whoever reads the log again comes
// to the same findings. Store and Revision say which document it was; a change
// with a lower revision of the same store is an old one and does not count.
type RulesChange struct {
	Writer   string            `json:"writer"`
	Store    string            `json:"store"` // the bucket's incarnation
	Revision uint64            `json:"revision"`
	Tenant   string            `json:"tenant"`
	Rules    map[string]string `json:"rules"`
}

// escapeMark stands for the ~ of subject tokens in keys of buckets, which cannot
// have it.
const escapeMark = "="

// RuleKey is the key of a tenant's switches in the bucket of rules.
func RuleKey(tenant string) string {
	return strings.Replace(subject.Escape(tenant), "~", escapeMark, 1)
}

// RuleKeyTenant is the tenant of such a key, "" if the key is none or does not
// tell: a long name is hashed.
func RuleKeyTenant(key string) string {
	tenant, exact := subject.Unescape(strings.Replace(key, escapeMark, "~", 1))
	if !exact {
		return ""
	}
	return tenant
}
