package events_test

import (
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events"
)

func TestRuleKeys(t *testing.T) {
	for tenant, key := range map[string]string{"acme": "acme", "ac me": "=YWMgbWU", "": "="} {
		if got := events.RuleKey(tenant); got != key || events.RuleKeyTenant(key) != tenant {
			t.Errorf("%q: %q, and back %q", tenant, got, events.RuleKeyTenant(key))
		}
	}
	if key := events.RuleKey(strings.Repeat("x", 100)); !strings.HasPrefix(key, "=h") || events.RuleKeyTenant(key) != "" || events.RuleKeyTenant("a b") != "" {
		t.Error(key)
	}
}

func TestRuleModes(t *testing.T) {
	for mode, valid := range map[string]bool{"off": true, "warn": true, "enforce": true, "": false, "Off": false, "loud": false} {
		if events.ValidRuleMode(mode) != valid {
			t.Errorf("%q", mode)
		}
	}
}
