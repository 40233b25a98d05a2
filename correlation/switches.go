package correlation

import (
	"encoding/hex"
	"strings"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

// maxRuleModes bounds the switches of one tenant: there are not as many rules.
const maxRuleModes = 1024

// ruleModes are the modes that a tenant's operator wants, as the log has them.
type ruleModes struct {
	store    string
	revision uint64
	modes    map[string]Mode
}

var modesByName = map[string]Mode{events.RuleOff: ModeOff, events.RuleWarn: ModeWarn, events.RuleEnforce: ModeEnforce}

// applyRulesChange takes a change of a tenant's switches. It concerns what is found from
// here on: what was put out stays.
func (c *Correlator) applyRulesChange(m events.LogMessage, p subject.Parsed) {
	if c.shard != "" && tokenOf(p.Shard) != subject.Escape(c.shard) {
		return
	}
	change, err := events.DecodeRecord[events.RulesChange](m.Body)
	if err != nil || change.Tenant == "" || len(change.Rules) > maxRuleModes {
		return
	}
	token := subject.Escape(change.Tenant)
	if old, known := c.engine.findings.modesOf(token); known && old.store == change.Store && change.Revision <= old.revision {
		return
	}
	s := ruleModes{store: change.Store, revision: change.Revision, modes: make(map[string]Mode, len(change.Rules))}
	for rule, mode := range change.Rules {
		m, known := modesByName[mode]
		if !known {
			return
		}
		if m != ModeWarn {
			s.modes[rule] = m
		}
	}
	c.engine.findings.setModes(token, s)
}

// retractsEmitted tells whether a finding takes back one that was put out: that is done
// however the rule is switched since.
func retractsEmitted(emitted *fifoMap[sum, struct{}], v *findingSpec) bool {
	id, err := hex.DecodeString(strings.TrimPrefix(v.retracts, findingPrefix))
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
	s, _ := c.engine.findings.modesOf(subject.Escape(tenant))
	return s.store, s.revision
}

// modesOf are the modes that the log has for a tenant, by its token.
func (fs *findings) modesOf(tenant string) (ruleModes, bool) {
	s, known := fs.ruleModes[tenant]
	return s, known
}

func (fs *findings) setModes(tenant string, s ruleModes) { fs.ruleModes[tenant] = s }

// findingMode says what becomes of the findings of a rule that are about a tenant.
func (fs *findings) findingMode(who origin, r *Rule) Mode {
	if fs.opts.Rules != nil {
		return fs.opts.Rules(who.tenant, r.Name)
	}
	return fs.ruleModes[who.key.tenant].modes[r.Name]
}
