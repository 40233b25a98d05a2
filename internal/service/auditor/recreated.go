package auditor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/streams"
)

// ruleRecreated is the finding about a log that was created anew.
const (
	ruleRecreated   = "log_recreated"
	remedyRecreated = "Find out which user deleted or replaced the stream. The earlier evidence still verifies by itself."
)

// reportRecreated writes a finding if there is evidence of an earlier incarnation of this log, or a
// published checkpoint of one: a log that begins anew must not go unnoticed.
func (o *ownFindings) reportRecreated(ctx context.Context) error {
	earlier, err := o.earlierIncarnation(ctx)
	if earlier == "" || err != nil {
		return err
	}
	o.env.Log.Error().Str("shard", o.shard).Str("earlier", earlier).Msg("the log began anew: " + remedyRecreated)
	return o.report(ctx, events.Finding{
		FindingID: "log-recreated-" + o.shard, Rule: ruleRecreated, Severity: events.SeverityCritical, EventIDs: []string{},
		Explanation: fmt.Sprintf("The log began anew as %s; %s is there and its log is gone.", o.shard, earlier),
		Remedy:      remedyRecreated,
		DetectedAt:  events.At(time.Now()),
	})
}

// earlierIncarnation says what there is of an earlier incarnation: evidence, or else the newest
// published checkpoint, since a user of the database may have deleted the evidence; "" for nothing. The
// checkpoint's signature is not checked: a new log may have a new key.
func (o *ownFindings) earlierIncarnation(ctx context.Context) (string, error) {
	shards, err := o.db.Shards(ctx)
	if err != nil {
		return "", err
	}
	for _, earlier := range shards {
		if o.isOfStream(earlier) && earlier != o.shard {
			return "evidence of " + earlier, nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	m, err := streams.LastBySubject(ctx, o.js, streams.StreamCheckpoints, o.space.Checkpoints(o.stream))
	if m == nil || err != nil {
		return "", err
	}
	if cp, err := tree.PeekCheckpoint(string(m.Body)); err == nil && o.isOfStream(cp.Shard) && cp.Shard != o.shard {
		return "a published checkpoint of " + cp.Shard, nil
	}
	return "", nil
}

// report writes one of the auditor's own findings, unless an earlier attempt has written
// it.
func (o *ownFindings) report(ctx context.Context, f events.Finding) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	last, err := streams.LastBySubject(ctx, o.js, o.stream, o.subjectOf(f))
	if err != nil {
		return err
	}
	if last != nil {
		if before, err := events.DecodeRecord[events.Finding](last.Body); err == nil && before.FindingID == f.FindingID {
			return nil
		}
	}
	return o.store(ctx, f)
}

// Rule describes a kind of finding that the auditor itself makes. Rule switches do not apply to
// it.
type Rule struct {
	Name                string
	Severity            events.Severity
	Explanation, Remedy string
	Inputs, Ref         string // the data it is decided from; where it is documented
}

// Rules lists the rules of the auditor's own findings.
func Rules() []Rule {
	list := []Rule{{ruleRecreated, events.SeverityCritical, "The log began anew; evidence or a published checkpoint of an earlier one is there and its log is gone.", remedyRecreated,
		"the time at which the log was created, and the shards that there is evidence of", "docs/operating.md#the-log-was-recreated"}}
	for _, name := range slices.Sorted(maps.Keys(redactionFindings)) {
		a := redactionFindings[name]
		list = append(list, Rule{name, a.severity, a.explains, a.help, a.inputs, "docs/redaction.md#when-redaction-fails"})
	}
	return list
}
