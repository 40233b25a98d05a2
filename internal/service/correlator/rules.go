package correlator

import (
	"context"
	"errors"
	"fmt"
	"time"

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
	next          time.Time // when to check next
	bucketVersion string    // its incarnation and last sequence, as last handled
	seq           uint64
	badDocuments  error // errors of documents that do not count
}

// The bucket of rules as a stream.
const (
	kvStream    = "KV_" + streams.BucketRules
	kvSubject   = "$KV." + streams.BucketRules + "."
	kvOperation = "KV-Operation" // header of a deleted key
)

// switchRules writes changed switches to the log. They apply once the core reads them there, so
// every replay computes the same findings. It is called when the core has read everything. A
// change written twice, by two correlators for example, counts once.
func (w *worker) switchRules(ctx context.Context, now time.Time) {
	if now.Before(w.rules.next) {
		return
	}
	w.rules.next = now.Add(rulesEvery)
	ctx, cancel := context.WithTimeout(ctx, rulesTimeout)
	defer cancel()
	bad, err := w.readRules(ctx, now)
	switch {
	case err != nil:
		w.rules.next = now.Add(rulesAgain)
		w.env.Log.Warn().Err(err).Msg("the switches of the rules cannot be read")
		w.env.Health.Set("rules", "the switches of the rules cannot be read; those on the log count: "+err.Error())
	case bad != nil:
		w.env.Health.Set("rules", bad.Error())
	default:
		w.env.Health.Set("rules", "")
	}
}

// readRules checks whether the bucket has changed, and writes what is new. bad names the
// documents that do not count.
func (w *worker) readRules(ctx context.Context, now time.Time) (bad, err error) {
	st, err := streams.StreamState(ctx, w.js, kvStream)
	if err != nil {
		return nil, err
	}
	store := streams.EpochName(kvStream, st.Created)
	if store == w.rules.bucketVersion && st.LastSeq == w.rules.seq {
		return w.rules.badDocuments, nil
	}
	keys, err := streams.KVKeys(ctx, w.js, streams.BucketRules)
	if err != nil {
		return nil, err
	}
	var msgs []streams.Msg
	for _, key := range keys {
		change, err := w.ruleChange(ctx, key)
		if err != nil && !errors.Is(err, errSwitches) {
			return nil, err
		}
		if bad = errors.Join(bad, err); err != nil {
			continue
		}
		change.Store = store
		if msg, news, err := w.ruleMessage(change, now); err != nil {
			return nil, err
		} else if news {
			msgs = append(msgs, msg)
		}
	}
	if len(msgs) > 0 {
		if err := streams.StoreAll(ctx, w.nc, msgs); err != nil {
			return nil, err
		}
	}
	w.rules.bucketVersion, w.rules.seq, w.rules.badDocuments = store, st.LastSeq, bad
	return bad, nil
}

var errSwitches = errors.New("not a document of switches")

// ruleChange reads one document. A deleted one switches nothing.
func (w *worker) ruleChange(ctx context.Context, key string) (events.RulesChange, error) {
	m, err := streams.LastBySubject(ctx, w.js, kvStream, kvSubject+key)
	if err != nil {
		return events.RulesChange{}, err
	}
	if m == nil {
		return events.RulesChange{}, fmt.Errorf("%w: %s has vanished", errSwitches, key)
	}
	change := events.RulesChange{Writer: w.writer, Revision: m.Seq, Tenant: events.RuleKeyTenant(key), Rules: map[string]string{}}
	if m.HeaderValue(kvOperation) == "" {
		doc, err := events.DecodeRecord[events.RuleSwitches](m.Body)
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
func (w *worker) ruleMessage(c events.RulesChange, now time.Time) (msg streams.Msg, news bool, err error) {
	store, revision := w.core.RuleModesRevision(c.Tenant)
	if store == c.Store && revision >= c.Revision || store == "" && len(c.Rules) == 0 {
		return streams.Msg{}, false, nil
	}
	body, err := events.Encode(c)
	if err != nil {
		return streams.Msg{}, false, err
	}
	subj := w.flags.Space().Control(w.flags.Stream, events.ControlRules)
	id := fmt.Sprintf("rules-%s-%d-%s", events.RuleKey(c.Tenant), c.Revision, w.writer)
	return controlMessage(subj, events.ControlRules, w.flags.Stream, id, body, now), true, nil
}
