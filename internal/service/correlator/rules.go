package correlator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/correlation"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/streams"
)

const (
	rulesEvery   = time.Second      // how often the switches are checked
	rulesAgain   = 30 * time.Second // pause after they could not be read
	rulesTimeout = 2 * time.Second
)

// ruleSource is the worker's knowledge of the bucket of rules.
type ruleSource struct {
	log          *shardLog
	next         time.Time             // when to check next
	version      streams.BucketVersion // as last handled
	badDocuments error                 // errors of documents that do not count
}

// switchRules writes changed switches to the log. They apply once the core reads them there, so
// every replay computes the same findings. It is called when the core has read everything. A
// change written twice, by two correlators for example, counts once.
func (r *ruleSource) switchRules(ctx context.Context, core *correlation.Correlator, now time.Time) {
	if now.Before(r.next) {
		return
	}
	r.next = now.Truncate(rulesEvery).Add(rulesEvery)
	ctx, cancel := context.WithTimeout(ctx, rulesTimeout)
	defer cancel()
	bad, err := r.readRules(ctx, core, now)
	switch {
	case err != nil:
		r.next = now.Add(rulesAgain)
		r.log.env.Log.Warn().Err(err).Msg("the switches of the rules cannot be read")
		r.log.env.Health.Set("rules", "the switches of the rules cannot be read; those on the log count: "+err.Error())
	case bad != nil:
		r.log.env.Health.Set("rules", bad.Error())
	default:
		r.log.env.Health.Set("rules", "")
	}
}

// readRules checks whether the bucket has changed, and writes what is new. bad names the
// documents that do not count.
func (r *ruleSource) readRules(ctx context.Context, core *correlation.Correlator, now time.Time) (bad, err error) {
	version, err := streams.VersionOf(ctx, r.log.js, streams.BucketRules)
	if err != nil {
		return nil, err
	}
	if version == r.version {
		return r.badDocuments, nil
	}
	keys, err := streams.KVKeys(ctx, r.log.js, streams.BucketRules)
	if err != nil {
		return nil, err
	}
	var msgs []streams.Msg
	for _, key := range keys {
		change, err := r.ruleChange(ctx, key)
		if err != nil && !errors.Is(err, errSwitches) {
			return nil, err
		}
		if bad = errors.Join(bad, err); err != nil {
			continue
		}
		change.Store = version.Store
		if msg, news, err := r.ruleMessage(core, change, now); err != nil {
			return nil, err
		} else if news {
			msgs = append(msgs, msg)
		}
	}
	if len(msgs) > 0 {
		if err := streams.StoreAll(ctx, r.log.nc, msgs); err != nil {
			return nil, err
		}
	}
	r.version, r.badDocuments = version, bad
	return bad, nil
}

var errSwitches = errors.New("not a document of switches")

// ruleChange reads one document. A deleted one switches nothing.
func (r *ruleSource) ruleChange(ctx context.Context, key string) (events.RulesChange, error) {
	e, err := streams.KVLast(ctx, r.log.js, streams.BucketRules, key)
	if err != nil {
		return events.RulesChange{}, err
	}
	if e == nil {
		return events.RulesChange{}, fmt.Errorf("%w: %s has vanished", errSwitches, key)
	}
	change := events.RulesChange{Writer: r.log.writer, Revision: e.Revision, Tenant: events.RuleKeyTenant(key), Rules: map[string]string{}}
	if !e.Deleted {
		doc, err := events.DecodeRecord[events.RuleSwitches](e.Value)
		if err != nil || events.RuleKey(doc.Tenant) != key {
			return change, fmt.Errorf("%w: %s in the bucket of rules (use: countersign rules set)", errSwitches, key)
		}
		change.Tenant, change.Rules = doc.Tenant, doc.Rules
	}
	if change.Tenant == "" {
		return change, fmt.Errorf("%w: %s names no tenant", errSwitches, key)
	}
	for rule, mode := range change.Rules {
		if !events.ValidRuleMode(mode) {
			return change, fmt.Errorf("%w: %s: %.40q is no mode of rule %.60s", errSwitches, key, mode, rule)
		}
	}
	return change, nil
}

// ruleMessage returns the control record of a change; news reports whether the core lacks it.
func (r *ruleSource) ruleMessage(core *correlation.Correlator, c events.RulesChange, now time.Time) (msg streams.Msg, news bool, err error) {
	store, revision := core.RuleModesRevision(c.Tenant)
	if store == c.Store && revision >= c.Revision || store == "" && len(c.Rules) == 0 {
		return streams.Msg{}, false, nil
	}
	body, err := events.Encode(c)
	if err != nil {
		return streams.Msg{}, false, err
	}
	subj := r.log.flags.Space().Control(r.log.flags.Stream, events.ControlRules)
	id := fmt.Sprintf("rules-%s-%d-%s", events.RuleKey(c.Tenant), c.Revision, r.log.writer)
	return controlMessage(subj, events.ControlRules, r.log.flags.Stream, id, body, now), true, nil
}
