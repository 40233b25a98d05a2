// Package rollout lets a command that changes policies or keys wait until every admitter uses the
// change. Each admitter registers in the leases bucket before it reads its state (Announce), and
// answers on a subject of its own which revisions it uses. Commands wait with Await.
package rollout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/streams"
)

// State is what an admitter decides from. It has a revision once no decision under an earlier one
// is under way, and the record of the change is in the log.
type State struct {
	Revisions   map[string]uint64 `json:"revisions"`    // by bucket
	SigningKeys []string          `json:"signing_keys"` // ids of the keys that may still sign
}

// Instance is a registered admitter.
type Instance struct {
	ID   string `json:"id"`
	Name string `json:"name"` // host and process, for display
}

const (
	entryPrefix = "admitter." // of keys in the leases bucket
	// askEvery is the pause between two requests to an admitter that is not at the wanted state
	// yet.
	askEvery = 20 * time.Millisecond
	// askTimeout bounds one request. An admitter answers at once.
	askTimeout = time.Second
)

// subjectOf is the subject on which an instance answers.
func subjectOf(id string) string { return "$SRV.APPLIED.admitter." + id }

// Register registers this process and answers with the result of state until stop is called. It
// removes the entries of processes that are gone.
func Register(ctx context.Context, nc *nats.Conn, js jetstream.JetStream, state func() State) (stop func(), err error) {
	kv, err := js.KeyValue(ctx, streams.BucketLeases)
	if err != nil {
		return nil, fmt.Errorf("opening the leases bucket (run `countersign provision` first): %w", err)
	}
	host, _ := os.Hostname()
	self := Instance{ID: nuid.Next(), Name: fmt.Sprintf("%s, process %d", host, os.Getpid())}
	sub, err := nc.Subscribe(subjectOf(self.ID), func(m *nats.Msg) {
		if body, err := json.Marshal(state()); err == nil && m.Reply != "" {
			_ = m.Respond(body)
		}
	})
	if err == nil {
		err = nc.FlushTimeout(5 * time.Second) // a command that sees the entry can send its request
	}
	if err != nil {
		return nil, fmt.Errorf("answering what this admitter decides by: %w", err)
	}
	body, err := json.Marshal(self)
	if err == nil {
		_, err = kv.Put(ctx, entryPrefix+self.ID, body)
	}
	if err != nil {
		_ = sub.Unsubscribe()
		return nil, fmt.Errorf("entering this admitter into the leases bucket: %w", err)
	}
	forgetGone(ctx, nc, js, kv)
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
		defer cancel()
		_ = sub.Unsubscribe()
		_ = kv.Delete(ctx, entryPrefix+self.ID) // the next admitter removes an entry that is left
	}, nil
}

// forgetGone removes entries with a subject on which no process listens.
func forgetGone(ctx context.Context, nc *nats.Conn, js jetstream.JetStream, kv jetstream.KeyValue) {
	list, err := listInstances(ctx, js)
	if err != nil {
		return
	}
	for _, i := range list {
		if _, gone, _ := askInstance(ctx, nc, i); gone {
			_ = kv.Delete(ctx, entryPrefix+i.ID)
		}
	}
}

// listInstances lists the registered admitters.
func listInstances(ctx context.Context, js jetstream.JetStream) (list []Instance, err error) {
	entries, err := streams.KVUnder(ctx, js, streams.BucketLeases, entryPrefix)
	if err != nil {
		return nil, fmt.Errorf("listing the admitters: %w", err)
	}
	for _, id := range slices.Sorted(maps.Keys(entries)) {
		i := Instance{ID: id, Name: id}
		var said Instance
		if json.Unmarshal(entries[id], &said) == nil && said.ID == id {
			i = said
		}
		list = append(list, i)
	}
	return list, nil
}

// askInstance requests the state of one admitter. gone means that no process listens.
func askInstance(ctx context.Context, nc *nats.Conn, i Instance) (s State, gone bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	m, err := nc.RequestWithContext(ctx, subjectOf(i.ID), nil)
	if err != nil {
		return s, errors.Is(err, nats.ErrNoResponders), err
	}
	return s, false, json.Unmarshal(m.Data, &s)
}

// Await waits until every admitter satisfies done, or ctx ends, and returns those that do not,
// ordered by name. An admitter that has ended is not waited for.
func Await(ctx context.Context, nc *nats.Conn, js jetstream.JetStream, done func(State) bool) (late []Instance, err error) {
	list, err := listInstances(ctx, js)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, i := range list {
		all.Go(func() {
			if !awaitOne(ctx, nc, i, done) {
				mu.Lock()
				defer mu.Unlock()
				late = append(late, i)
			}
		})
	}
	all.Wait()
	slices.SortFunc(late, func(a, b Instance) int { return strings.Compare(a.Name+a.ID, b.Name+b.ID) })
	return late, nil
}

func awaitOne(ctx context.Context, nc *nats.Conn, i Instance, done func(State) bool) bool {
	for {
		s, gone, err := askInstance(ctx, nc, i)
		if gone || err == nil && done(s) {
			return true
		}
		if retry.Sleep(ctx, askEvery) != nil {
			return false
		}
	}
}

// AtRevision is satisfied by an admitter that uses a revision of a bucket, or a later one.
func AtRevision(bucket string, revision uint64) func(State) bool {
	return func(s State) bool { return s.Revisions[bucket] >= revision }
}
