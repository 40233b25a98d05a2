package retention

import (
	"strings"

	"github.com/countersign-dev/countersign/events"
)

// Keys of the bucket: "state.<tenant>" holds a State, "policy.<tenant>" a policy.
const (
	statePrefix  = "state."
	policyPrefix = "policy."
)

// StateKey is the key of a tenant's holds and orders.
func StateKey(tenant string) string { return statePrefix + events.RuleKey(tenant) }

// PolicyKey is the key of a tenant's policy.
func PolicyKey(tenant string) string { return policyPrefix + events.RuleKey(tenant) }

// StateTenant is the tenant of a StateKey.
func StateTenant(key string) (tenant string, ok bool) { return tenantOf(key, statePrefix) }

// PolicyTenant is the tenant of a PolicyKey.
func PolicyTenant(key string) (tenant string, ok bool) { return tenantOf(key, policyPrefix) }

// tenantOf returns the tenant as records name it: a name that is too long for a subject is replaced
// by its hash.
func tenantOf(key, prefix string) (string, bool) {
	rest, ok := strings.CutPrefix(key, prefix)
	if !ok || rest == "" {
		return "", false
	}
	if tenant := events.RuleKeyTenant(rest); tenant != "" {
		return tenant, true
	}
	return strings.Replace(rest, "=", "~", 1), true
}
