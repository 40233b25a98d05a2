package streams

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/events/subject"
)

const (
	// DefaultQuarantineAge is how long bytes that cannot be parsed are kept.
	DefaultQuarantineAge = 30 * 24 * time.Hour

	// duplicateWindow is the smallest value that the server allows. Nothing relies on
	// Nats-Msg-Id, because a tenant could use an id first.
	duplicateWindow = 100 * time.Millisecond

	kvHistory = 64

	// decidedAge is how long approval workflows and used confirmations are kept. None matters for more than a
	// day and an hour; the rest is for a shard without an admitter, which records their end later. Each
	// is a key of its own, and an admitter reads all keys of the workflows at its start.
	decidedAge = 4 * 24 * time.Hour
)

// Shard says what Provision creates. A zero field means its default; an existing stream or bucket
// is not compared in optional fields that are zero.
type Shard struct {
	Name          string // default DefaultShard
	Space         subject.Space
	Replicas      int           // default: as the log has it, 1 if there is none yet
	MaxBytes      int64         // of the log; default unlimited. A full log refuses messages (fails closed).
	QuarantineAge time.Duration // default DefaultQuarantineAge
}

// ProvisionReport says what Provision found and did.
type ProvisionReport struct {
	Created  []string // streams, KV buckets as "KV_<bucket>"
	Existing []string
}

// Provision creates the shard's log, the quarantine and checkpoint streams and the KV buckets that
// are missing. It changes nothing that exists: differences are returned in a *ConflictError. It may
// be run repeatedly and concurrently.
func Provision(ctx context.Context, js jetstream.JetStream, s Shard) (ProvisionReport, error) {
	var report ProvisionReport
	var conflict ConflictError
	configs := s.streamConfigs()
	for i, want := range configs {
		have, created, err := ensureStream(ctx, js, want)
		if err != nil {
			return report, fmt.Errorf("provisioning stream %s: %w", want.Name, err)
		}
		if i == 0 && s.Replicas == 0 { // the log, first of the list
			for j := range configs {
				configs[j].Replicas = max(1, have.Replicas)
			}
		}
		if created {
			report.Created = append(report.Created, want.Name)
		} else {
			report.Existing = append(report.Existing, want.Name)
		}
		conflict.Differences = append(conflict.Differences, s.compareConfig(have, want)...)
	}
	if len(conflict.Differences) > 0 {
		return report, &conflict
	}
	return report, nil
}

// Differences lists the differences that Provision would find for s. A missing stream or bucket
// is a difference in the field "exists". It changes nothing.
func Differences(ctx context.Context, js jetstream.JetStream, s Shard) (list []Difference, err error) {
	for _, want := range s.streamConfigs() {
		st, err := js.Stream(ctx, want.Name)
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound):
			list = append(list, Difference{Object: want.Name, Field: "exists", Have: "false", Want: "true"})
			continue
		case err != nil:
			return list, fmt.Errorf("reading the settings of %s: %w", want.Name, err)
		}
		list = append(list, s.compareConfig(st.CachedInfo().Config, want)...)
	}
	return list, nil
}

func ensureStream(ctx context.Context, js jetstream.JetStream, want jetstream.StreamConfig) (jetstream.StreamConfig, bool, error) {
	st, err := js.Stream(ctx, want.Name)
	if err == nil {
		return st.CachedInfo().Config, false, nil
	}
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return jetstream.StreamConfig{}, false, err
	}
	st, err = js.CreateStream(ctx, want)
	switch {
	case err == nil:
		return st.CachedInfo().Config, true, nil
	case errors.Is(err, jetstream.ErrStreamNameAlreadyInUse): // created concurrently
		if st, err = js.Stream(ctx, want.Name); err == nil {
			return st.CachedInfo().Config, false, nil
		}
	}
	return jetstream.StreamConfig{}, false, err
}

// streamConfigs lists all streams and buckets of a shard.
func (s Shard) streamConfigs() []jetstream.StreamConfig {
	name := s.Name
	if name == "" {
		name = DefaultShard
	}
	age := s.QuarantineAge
	if age == 0 {
		age = DefaultQuarantineAge
	}
	logSubjects := make([]string, len(subject.LogClasses))
	for i, c := range subject.LogClasses {
		logSubjects[i] = s.Space.All(c)
	}
	log := s.baseStream(name, "Countersign: requests, events and all records of a shard, in one order", logSubjects...)
	log.AllowAtomicPublish = true
	if s.MaxBytes > 0 {
		log.MaxBytes = s.MaxBytes
	}
	quarantine := s.baseStream(StreamQuarantine, "Countersign: bytes that could not be parsed", s.Space.All(subject.Quarantine))
	quarantine.MaxAge = age
	checkpoints := s.baseStream(StreamCheckpoints, "Countersign: signed checkpoints of the evidence log", s.Space.All(subject.Checkpoints))
	out := []jetstream.StreamConfig{log, quarantine, checkpoints}
	for _, b := range allBuckets {
		out = append(out, s.bucketConfig(b))
	}
	for i := range out {
		// Where deletion is allowed, only the permission table prevents a user from deleting a
		// message: one role may (TestRoleTable), and a message that is missing without a signed
		// erasure record is detected.
		out[i].DenyDelete = out[i].Name != name && !slices.Contains(erasableStreams, out[i].Name)
	}
	return out
}

// baseStream is a stream that loses nothing: no purge, no rollup, no TTL, no schedules; when it is
// full it refuses. Deletion is denied; streamConfigs allows it for the erasable streams, where
// only the custodian may delete single messages. Direct get is off, because the server appends
// its Nats-Sequence headers after headers of the publisher with the same name, so a publisher
// could deceive a reader of direct gets.
func (s Shard) baseStream(name, about string, subjects ...string) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: name, Description: about, Subjects: subjects,
		Retention: jetstream.LimitsPolicy, Storage: jetstream.FileStorage, Discard: jetstream.DiscardNew,
		Replicas: max(1, s.Replicas), MaxMsgs: -1, MaxBytes: -1, MaxMsgSize: -1, MaxMsgsPerSubject: -1, MaxConsumers: -1,
		Duplicates: duplicateWindow, DenyDelete: true, DenyPurge: true,
	}
}

// allBuckets lists the KV buckets.
var allBuckets = []bucketSpec{
	{BucketPolicies, kvHistory, 0}, {BucketMandates, kvHistory, 0}, {BucketPublishers, kvHistory, 0}, {BucketApprovals, kvHistory, decidedAge},
	{BucketKeys, kvHistory, 0}, {BucketRules, kvHistory, 0}, {BucketRedaction, kvHistory, 0}, {BucketRetention, kvHistory, 0}, {BucketWitnesses, kvHistory, 0},
	{BucketTokens, kvHistory, 0}, {BucketSessionSecrets, 1, 0}, {BucketConfirmed, 1, decidedAge}, {BucketSpend, 1, 0}, {BucketLeases, 1, 0},
}

type bucketSpec struct {
	name    string
	history int64         // how many revisions of a key it keeps
	age     time.Duration // how long it keeps a revision; 0: for ever
}

// bucketStream is the name of the stream that holds a KV bucket.
func bucketStream(bucket string) string { return "KV_" + bucket }

// bucketConfig is a KV bucket as the jetstream package reads it, except that its history cannot be
// purged (no rollups) and that only the stream's leader answers reads: any replica answers a
// direct get, and a lagging one does not know a key that was just written.
func (s Shard) bucketConfig(b bucketSpec) jetstream.StreamConfig {
	c := s.baseStream(bucketStream(b.name), "Countersign: "+strings.ReplaceAll(b.name, "_", " "), "$KV."+b.name+".>")
	c.MaxMsgsPerSubject, c.MaxAge = b.history, b.age
	return c
}

// comparedSettings lists the settings that are compared. Optional ones are compared only if the
// Shard sets them.
var comparedSettings = []struct {
	field    string
	value    func(jetstream.StreamConfig) any
	optional func(Shard) bool
}{
	{"subjects", func(c jetstream.StreamConfig) any { return strings.Join(c.Subjects, " ") }, nil},
	{"retention", func(c jetstream.StreamConfig) any { return c.Retention }, nil},
	{"storage", func(c jetstream.StreamConfig) any { return c.Storage }, nil},
	{"discard", func(c jetstream.StreamConfig) any { return c.Discard }, nil},
	{"discard_new_per_subject", func(c jetstream.StreamConfig) any { return c.DiscardNewPerSubject }, nil},
	{"num_replicas", func(c jetstream.StreamConfig) any { return max(1, c.Replicas) }, func(s Shard) bool { return s.Replicas == 0 }},
	{"max_age", func(c jetstream.StreamConfig) any { return c.MaxAge }, nil},
	{"max_bytes", func(c jetstream.StreamConfig) any { return limitText(c.MaxBytes) }, func(s Shard) bool { return s.MaxBytes == 0 }},
	{"max_msgs", func(c jetstream.StreamConfig) any { return limitText(c.MaxMsgs) }, nil},
	{"max_msg_size", func(c jetstream.StreamConfig) any { return limitText(int64(c.MaxMsgSize)) }, nil},
	{"max_msgs_per_subject", func(c jetstream.StreamConfig) any { return limitText(c.MaxMsgsPerSubject) }, nil},
	{"duplicate_window", func(c jetstream.StreamConfig) any { return c.Duplicates }, nil},
	{"deny_delete", func(c jetstream.StreamConfig) any { return c.DenyDelete }, nil},
	{"deny_purge", func(c jetstream.StreamConfig) any { return c.DenyPurge }, nil},
	{"allow_rollup_hdrs", func(c jetstream.StreamConfig) any { return c.AllowRollup }, nil},
	{"allow_direct", func(c jetstream.StreamConfig) any { return c.AllowDirect }, nil},
	{"allow_atomic", func(c jetstream.StreamConfig) any { return c.AllowAtomicPublish }, nil},
	{"allow_batched", func(c jetstream.StreamConfig) any { return c.AllowBatchPublish }, nil},
	{"allow_msg_ttl", func(c jetstream.StreamConfig) any { return c.AllowMsgTTL }, nil},
	{"allow_msg_counter", func(c jetstream.StreamConfig) any { return c.AllowMsgCounter }, nil},
	{"allow_msg_schedules", func(c jetstream.StreamConfig) any { return c.AllowMsgSchedules }, nil},
	{"no_ack", func(c jetstream.StreamConfig) any { return c.NoAck }, nil},
	{"sealed", func(c jetstream.StreamConfig) any { return c.Sealed }, nil},
	{"persist_mode", func(c jetstream.StreamConfig) any { return c.PersistMode }, nil},
	{"mirror", func(c jetstream.StreamConfig) any { return c.Mirror != nil }, nil},
	{"sources", func(c jetstream.StreamConfig) any { return len(c.Sources) }, nil},
	{"republish", func(c jetstream.StreamConfig) any { return c.RePublish != nil }, nil},
	{"subject_transform", func(c jetstream.StreamConfig) any { return c.SubjectTransform != nil }, nil},
}

// keepsLonger reports whether a bucket keeps for ever what one that is made now forgets. It serves as well, until its
// keys are many; and no role may change its settings.
func keepsLonger(have, want jetstream.StreamConfig) bool {
	return have.MaxAge == 0 && strings.HasPrefix(want.Name, bucketStream(""))
}

func limitText(n int64) string {
	if n <= 0 {
		return "unlimited"
	}
	return strconv.FormatInt(n, 10)
}

func (s Shard) compareConfig(have, want jetstream.StreamConfig) (out []Difference) {
	for _, f := range comparedSettings {
		if f.optional != nil && f.optional(s) || f.field == "max_age" && keepsLonger(have, want) {
			continue
		}
		if h, w := fmt.Sprint(f.value(have)), fmt.Sprint(f.value(want)); h != w {
			out = append(out, Difference{Object: want.Name, Field: f.field, Have: h, Want: w})
		}
	}
	return out
}
