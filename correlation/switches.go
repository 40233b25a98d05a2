package correlation

import (
	"encoding/hex"
	"strings"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

// maxSwitches bounds the switches of one tenant: there are not as many rules.
const maxSwitches = 1024

// switches are the modes that a tenant's operator wants, as the log has them.
type switches struct {
	store    string
	revision uint64
	modes    map[string]Mode
}

var modes = map[string]Mode{events.RuleOff: ModeOff, events.RuleWarn: ModeWarn, events.RuleEnforce: ModeEnforce}

// rules takes a change of a tenant's switches. It concerns what is found from
// here on: what was put out stays.
func (c *Correlator) rules(m events.LogMessage, p subject.Parsed) {
	if c.shard != "" && tokenOf(p.Shard) != subject.Escape(c.shard) {
		return
	}
	change, err := events.DecodeRecord[events.RulesChange](m.Body)
	if err != nil || change.Tenant == "" || len(change.Rules) > maxSwitches {
		return
	}
	token := subject.Escape(change.Tenant)
	if old, known := c.m.switches[token]; known && old.store == change.Store && change.Revision <= old.revision {
		return
	}
	s := switches{store: change.Store, revision: change.Revision, modes: make(map[string]Mode, len(change.Rules))}
	for rule, mode := range change.Rules {
		m, known := modes[mode]
		if !known {
			return
		}
		if m != ModeWarn {
			s.modes[rule] = m
		}
	}
	c.m.switches[token] = s
}

// takesBack tells whether a finding takes back one that was put out: that is done
// however the rule is switched since.
func takesBack(emitted *window[sum, struct{}], v *violation) bool {
	id, err := hex.DecodeString(strings.TrimPrefix(v.withdraws, findingPrefix))
	if err != nil || len(id) != len(sum{}) {
		return false
	}
	key := sum(id)
	_, made := emitted.get(key)
	return made
}

// Switched tells which document of switches counts for a tenant, as the log says
// so far; the zero values if none ever did.
func (c *Correlator) Switched(tenant string) (store string, revision uint64) {
	s := c.m.switches[subject.Escape(tenant)]
	return s.store, s.revision
}

// mode says what becomes of the findings of a rule that are about a tenant.
func (m *machine) mode(who origin, r *Rule) Mode {
	if m.opts.Rules != nil {
		return m.opts.Rules(who.tenant, r.Name)
	}
	return m.switches[who.key.tenant].modes[r.Name]
}
