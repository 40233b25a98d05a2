package events

import (
	"strings"

	"github.com/countersign-dev/countersign/events/subject"
)

// Modes of a rule for a tenant.
const (
	RuleOff     = "off"     // its findings are not output
	RuleWarn    = "warn"    // its findings are output; the default
	RuleEnforce = "enforce" // its findings are output and marked for action
)

// ValidRuleMode reports whether a mode is one of the three.
func ValidRuleMode(mode string) bool {
	return mode == RuleOff || mode == RuleWarn || mode == RuleEnforce
}

// RuleSwitches are the operator's rule modes for a tenant: a document of the bucket of rules.
// Rules that it does not name are RuleWarn.
type RuleSwitches struct {
	Tenant string            `json:"tenant"`
	Rules  map[string]string `json:"rules"` // mode by rule or check, as named in findings
}

// RulesChange records that from here on the correlator uses these switches for a tenant, and no
// others. Only this record counts, so that another reading of the log gives the same findings.
// Store and Revision identify the document; a change with a lower revision of the same store is
// outdated and does not count.
type RulesChange struct {
	Writer   string            `json:"writer"`   // the correlator's process
	Store    string            `json:"store"`    // the bucket's incarnation
	Revision uint64            `json:"revision"` // of the bucket
	Tenant   string            `json:"tenant"`   // whose switches they are
	Rules    map[string]string `json:"rules"`    // mode by rule: off, warn or enforce
}

// escapeMark replaces the ~ of subject tokens in keys of buckets, which cannot contain it.
const escapeMark = "="

// RuleKey is the key of a tenant's switches in the bucket of rules.
func RuleKey(tenant string) string {
	return strings.Replace(subject.Escape(tenant), "~", escapeMark, 1)
}

// RuleKeyTenant is the tenant of such a key, "" if the key is invalid or the name is hashed
// because it is long.
func RuleKeyTenant(key string) string {
	tenant, exact := subject.Unescape(strings.Replace(key, escapeMark, "~", 1))
	if !exact {
		return ""
	}
	return tenant
}
