package correlator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/correlation"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/streams"
)

const (
	rulesEvery   = time.Second      // how often the switches are checked
	rulesAgain   = 30 * time.Second // pause after they could not be read
	rulesTimeout = 2 * time.Second
)

// ruleSource copies changed switches from the bucket of rules to the log, where they begin to
// apply: so every replay computes the same findings. It works beside the core, which may be busy
// for ever. A change written twice, by two correlators for example, counts once.
type ruleSource struct {
	log     *shardLog
	begin   chan struct{}     // closed when this instance is active and has read the log to its end
	changes chan ruleQuestion // for the goroutine of the core

	// Of the goroutine of run.
	version      streams.BucketVersion // as last handled
	badDocuments error                 // errors of documents that do not count
}

// ruleQuestion asks which changes the core does not know from the log.
type ruleQuestion struct {
	changes []events.RulesChange
	unknown chan<- []events.RulesChange // takes the answer at once
}

func newRuleSource(l *shardLog) ruleSource {
	return ruleSource{log: l, begin: make(chan struct{}), changes: make(chan ruleQuestion)}
}

// run checks the bucket until ctx ends.
func (r *ruleSource) run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-r.begin:
	}
	for {
		wait := retry.UntilTick(rulesEvery)
		bad, err := r.copyChanges(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			wait = rulesAgain
			r.log.env.Log.Warn().Err(err).Msg("the switches of the rules cannot be read")
			r.log.env.Health.Set("rules", "the switches of the rules cannot be read; those on the log count: "+err.Error())
		case bad != nil:
			r.log.env.Health.Set("rules", bad.Error())
		default:
			r.log.env.Health.Set("rules", "")
		}
		if err := retry.Sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// copyChanges checks whether the bucket has changed, and writes what is new. bad names the
// documents that do not count.
func (r *ruleSource) copyChanges(ctx context.Context) (bad, err error) {
	version, changes, bad, err := r.readChanges(ctx)
	if err != nil || version == r.version {
		return r.badDocuments, err
	}
	unknown, err := r.unknownChanges(ctx, changes)
	if err != nil {
		return nil, err
	}
	if err := r.writeChanges(ctx, unknown); err != nil {
		return nil, err
	}
	r.version, r.badDocuments = version, bad
	return bad, nil
}

// readChanges reads all documents of the bucket, if it has changed.
func (r *ruleSource) readChanges(ctx context.Context) (version streams.BucketVersion, changes []events.RulesChange, bad, err error) {
	ctx, cancel := context.WithTimeout(ctx, rulesTimeout)
	defer cancel()
	version, err = streams.VersionOf(ctx, r.log.js, streams.BucketRules)
	if err != nil || version == r.version {
		return version, nil, nil, err
	}
	entries, err := streams.KVNewest(ctx, r.log.js, streams.BucketRules, nil)
	if err != nil {
		return version, nil, nil, err
	}
	for _, e := range entries {
		change, unusable := r.ruleChange(e)
		if unusable != nil {
			bad = errors.Join(bad, unusable)
			continue
		}
		change.Store = version.Store
		changes = append(changes, change)
	}
	return version, changes, bad, nil
}

// unknownChanges asks the core which of the changes are new.
func (r *ruleSource) unknownChanges(ctx context.Context, changes []events.RulesChange) ([]events.RulesChange, error) {
	answer := make(chan []events.RulesChange, 1)
	select {
	case r.changes <- ruleQuestion{changes, answer}:
		return <-answer, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// answer says which changes the core lacks.
func (q ruleQuestion) answer(core *correlation.Correlator) {
	var unknown []events.RulesChange
	for _, c := range q.changes {
		store, revision := core.RuleModesRevision(c.Tenant)
		known := store == c.Store && revision >= c.Revision || store == "" && len(c.Rules) == 0
		if !known {
			unknown = append(unknown, c)
		}
	}
	q.unknown <- unknown
}

// writeChanges writes the control records of changes.
func (r *ruleSource) writeChanges(ctx context.Context, changes []events.RulesChange) error {
	if len(changes) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, rulesTimeout)
	defer cancel()
	subj := r.log.flags.Space().Control(r.log.flags.Stream, events.ControlRules)
	msgs := make([]streams.Msg, 0, len(changes))
	for _, c := range changes {
		body, err := events.Encode(c)
		if err != nil {
			return err
		}
		id := fmt.Sprintf("rules-%s-%d-%s", events.RuleKey(c.Tenant), c.Revision, r.log.writer)
		msgs = append(msgs, controlMessage(subj, events.ControlRules, r.log.flags.Stream, id, body, time.Now()))
	}
	return streams.StoreLinked(ctx, r.log.js, r.log.flags.Stream, msgs...)
}

var errSwitches = errors.New("not a document of switches")

// ruleChange reads one document. A deleted one switches nothing.
func (r *ruleSource) ruleChange(e streams.KVEntry) (events.RulesChange, error) {
	change := events.RulesChange{Writer: r.log.writer, Revision: e.Revision, Tenant: events.RuleKeyTenant(e.Key), Rules: map[string]string{}}
	if !e.Deleted {
		doc, err := events.DecodeRecord[events.RuleSwitches](e.Value)
		if err != nil || events.RuleKey(doc.Tenant) != e.Key {
			return change, fmt.Errorf("%w: %s in the bucket of rules (use: countersign rules set)", errSwitches, e.Key)
		}
		change.Tenant, change.Rules = doc.Tenant, doc.Rules
	}
	if change.Tenant == "" {
		return change, fmt.Errorf("%w: %s names no tenant", errSwitches, e.Key)
	}
	for rule, mode := range change.Rules {
		if !events.ValidRuleMode(mode) {
			return change, fmt.Errorf("%w: %s: %.40q is no mode of rule %.60s", errSwitches, e.Key, mode, rule)
		}
	}
	return change, nil
}
