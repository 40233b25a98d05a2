package streams

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/countersign-dev/countersign/events"
)

// OpenBucket opens a KV bucket to read and write single keys. It refuses a bucket that allows
// direct get (ErrDirectGet): a lagging replica could report an existing key as missing, or
// return a deleted one.
func OpenBucket(ctx context.Context, js jetstream.JetStream, bucket string) (jetstream.KeyValue, error) {
	kv, err := js.KeyValue(ctx, bucket)
	if err != nil {
		return nil, fmt.Errorf("opening the bucket %s (run `countersign provision --streams` first): %w", bucket, err)
	}
	status, err := kv.Status(ctx)
	if err != nil {
		return nil, fmt.Errorf("opening the bucket %s: %w", bucket, err)
	}
	s, ok := status.(*jetstream.KeyValueBucketStatus)
	if !ok || s.StreamInfo().Config.AllowDirect {
		return nil, fmt.Errorf("%w: %s (make it with `countersign provision --streams`)", ErrDirectGet, bucket)
	}
	return kv, nil
}

// BucketVersion names a state of a bucket: any change of a key gives another, and so does a bucket that was
// made again. The zero value is of no bucket.
type BucketVersion struct {
	Store    string // the bucket's incarnation (IncarnationName)
	Revision uint64
}

// VersionOf reads the version of a bucket.
func VersionOf(ctx context.Context, js jetstream.JetStream, bucket string) (BucketVersion, error) {
	st, err := StreamState(ctx, js, bucketStream(bucket))
	if err != nil {
		return BucketVersion{}, err
	}
	return BucketVersion{IncarnationName(bucketStream(bucket), st.Created), st.LastSeq}, nil
}

// KVPutUnless writes a key of a bucket on the condition that another key never existed. The server
// checks and writes in one step, so the answer does not depend on a replica. Errors: ErrFenced,
// the other key exists or existed, and nothing is written; ErrRefused; ErrAmbiguous.
func KVPutUnless(ctx context.Context, nc *nats.Conn, bucket, key string, value []byte, unless string) error {
	prefix := "$KV." + bucket + "."
	msg := nats.NewMsg(prefix + key)
	msg.Data = value
	msg.Header.Set(headerExpectLast, "0")
	msg.Header.Set(headerExpectOn, prefix+unless)
	answer, err := request(ctx, nc, msg, answerTimeout)
	if err != nil {
		return fmt.Errorf("writing %s into the bucket %s: %w: %w", key, bucket, ErrAmbiguous, err)
	}
	if _, err := readAck(answer, bucketStream(bucket)); err != nil {
		return fmt.Errorf("writing %s into the bucket %s: %w", key, bucket, err)
	}
	return nil
}

// IsKVConflict reports whether a conditional write of a key (Create, Update, Delete with a revision)
// failed because another write of the key came first. A replicated bucket refuses a write while
// another one of the key is under way, so the other one may be visible only later, or never.
func IsKVConflict(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && (api.ErrorCode == codeWrongLastSeq || api.ErrorCode == codeWrongLastSeqConstant)
}

// KVKeys lists the keys of a bucket, sorted, including deleted ones. Unlike the library's Keys it
// needs no consumer, so operators may use it: the delivery subject of a consumer could be set
// to a subject of the log.
func KVKeys(ctx context.Context, js jetstream.JetStream, bucket string) ([]string, error) {
	prefix := "$KV." + bucket + "."
	st, err := js.Stream(ctx, "KV_"+bucket)
	if err != nil {
		return nil, fmt.Errorf("listing bucket %s: %w", bucket, explainStream(err))
	}
	info, err := st.Info(ctx, jetstream.WithSubjectFilter(prefix+">"))
	if err != nil {
		return nil, fmt.Errorf("listing bucket %s: %w", bucket, err)
	}
	keys := make([]string, 0, len(info.State.Subjects))
	for s := range info.State.Subjects {
		keys = append(keys, strings.TrimPrefix(s, prefix))
	}
	slices.Sort(keys)
	return keys, nil
}

// KVEntry is one revision of a key.
type KVEntry struct {
	Key      string
	Revision uint64
	Created  time.Time
	Deleted  bool // the revision deleted the key; Value is empty
	Value    []byte
}

// KVLast reads the newest revision of a key, which may be a deletion. It returns nil if the key
// never existed.
func KVLast(ctx context.Context, js jetstream.JetStream, bucket, key string) (*KVEntry, error) {
	m, err := LastBySubject(ctx, js, "KV_"+bucket, "$KV."+bucket+"."+key)
	return kvEntry(bucket, m), err
}

// KVLive is KVNewest without deleted keys.
func KVLive(ctx context.Context, js jetstream.JetStream, bucket string, wanted func(key string) bool) ([]KVEntry, error) {
	list, err := KVNewest(ctx, js, bucket, wanted)
	return slices.DeleteFunc(list, func(e KVEntry) bool { return e.Deleted }), err
}

// KVNewest reads the newest revisions of the keys that are wanted (nil: all keys), sorted by key, many
// at a time: a bucket has keys of every tenant, and one after the other would take a round trip each.
func KVNewest(ctx context.Context, js jetstream.JetStream, bucket string, wanted func(key string) bool) ([]KVEntry, error) {
	keys, err := KVKeys(ctx, js, bucket)
	if err != nil {
		return nil, err
	}
	if wanted != nil {
		keys = slices.DeleteFunc(keys, func(key string) bool { return !wanted(key) })
	}
	list := make([]KVEntry, len(keys))
	reads, ctx := errgroup.WithContext(ctx)
	reads.SetLimit(kvReadsAtOnce)
	for i, key := range keys {
		reads.Go(func() error {
			e, err := KVLast(ctx, js, bucket, key)
			if err != nil {
				return fmt.Errorf("reading key %s of the bucket %s: %w", key, bucket, err)
			}
			if e != nil {
				list[i] = *e
			}
			return nil
		})
	}
	if err := reads.Wait(); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list, func(e KVEntry) bool { return e.Key == "" }), nil
}

// kvReadsAtOnce bounds the requests under way at a time.
const kvReadsAtOnce = 64

// KVUnder reads the newest values of the keys that begin with a prefix, by the rest of the key. Deleted
// keys are left out.
func KVUnder(ctx context.Context, js jetstream.JetStream, bucket, prefix string) (map[string][]byte, error) {
	list, err := KVLive(ctx, js, bucket, func(key string) bool { return strings.HasPrefix(key, prefix) })
	if err != nil {
		return nil, err
	}
	values := map[string][]byte{}
	for _, e := range list {
		values[strings.TrimPrefix(e.Key, prefix)] = e.Value
	}
	return values, nil
}

// KVHistory lists the revisions of a key that the bucket still has, the oldest first. Unlike the
// library's History it needs no consumer.
func KVHistory(ctx context.Context, js jetstream.JetStream, bucket, key string) (list []KVEntry, err error) {
	for m, err := range EachBySubject(ctx, js, bucketStream(bucket), "$KV."+bucket+"."+key, 1) {
		if err != nil {
			return list, err
		}
		list = append(list, *kvEntry(bucket, m))
	}
	return list, nil
}

// Headers of a revision that deletes a key: set by the client, or by the server for a limit.
const (
	headerKVOperation  = "KV-Operation"
	headerMarkerReason = "Nats-Marker-Reason"
)

func kvEntry(bucket string, m *events.LogMessage) *KVEntry {
	if m == nil {
		return nil
	}
	op := m.HeaderValue(headerKVOperation)
	return &KVEntry{
		Key: strings.TrimPrefix(m.Subject, "$KV."+bucket+"."), Revision: m.Seq, Created: m.Time, Value: m.Body,
		Deleted: op == "DEL" || op == "PURGE" || m.HeaderValue(headerMarkerReason) != "",
	}
}

// KVNext reads the first revision of any key from a revision on, as far as the bucket still has it. It
// returns nil if there is none.
func KVNext(ctx context.Context, js jetstream.JetStream, bucket string, from uint64) (*KVEntry, error) {
	m, err := NextBySubject(ctx, js, bucketStream(bucket), "$KV."+bucket+".>", from)
	return kvEntry(bucket, m), err
}

// KVAsOf returns the keys of a bucket as of a revision, sorted, as far as the bucket's history
// goes back.
func KVAsOf(ctx context.Context, js jetstream.JetStream, bucket string, revision uint64) ([]KVEntry, error) {
	state := map[string]KVEntry{}
	for m, err := range EachBySubject(ctx, js, bucketStream(bucket), "$KV."+bucket+".>", 1) {
		if err != nil {
			return nil, err
		}
		if m.Seq > revision {
			break
		}
		if e := kvEntry(bucket, m); e.Deleted {
			delete(state, e.Key)
		} else {
			state[e.Key] = *e
		}
	}
	return slices.SortedFunc(maps.Values(state), func(a, b KVEntry) int { return strings.Compare(a.Key, b.Key) }), nil
}
