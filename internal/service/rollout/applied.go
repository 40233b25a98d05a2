// Package rollout lets a command that changes policies or keys wait until every admitter uses the
// change. Each admitter registers in the leases bucket before it reads its state (Register), and
// answers on a subject of its own which revisions it uses. Commands wait with Await.
package rollout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

	revision uint64 // of its entry
}

const (
	entryPrefix = "admitter." // of keys in the leases bucket
	// askEvery is the pause between two requests to an admitter that is not at the wanted state
	// yet.
	askEvery = 20 * time.Millisecond
	// askTimeout bounds one request. An admitter answers at once.
	askTimeout = time.Second
	// enterEvery is the pause between two entries of a process.
	enterEvery = 10 * time.Second
)

// subjectOf is the subject on which an instance answers.
func subjectOf(id string) string { return "$SRV.APPLIED.admitter." + id }

// Register registers this process and answers with the result of state until stop is called. It
// removes the entries of processes that are gone. One that was only away for a moment, or whose bucket
// was made again, enters itself again.
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
	if list, err := listInstances(ctx, js); err == nil {
		forgetGone(ctx, nc, kv, list)
	}
	entering, cancel := context.WithCancel(ctx)
	var entries sync.WaitGroup
	entries.Go(func() { keepEntered(entering, nc, kv, entryPrefix+self.ID, body) })
	return func() {
		cancel()
		entries.Wait()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
		defer cancel()
		_ = sub.Unsubscribe()
		_ = kv.Delete(ctx, entryPrefix+self.ID) // the next admitter removes an entry that is left
	}, nil
}

// keepEntered writes the entry of this process again and again until ctx ends, and at once after a reconnect.
func keepEntered(ctx context.Context, nc *nats.Conn, kv jetstream.KeyValue, key string, body []byte) {
	back := nc.StatusChanged(nats.CONNECTED)
	defer nc.RemoveStatusListener(back)
	for {
		select {
		case <-ctx.Done():
			return
		case <-back:
		case <-time.After(retry.UntilTick(enterEvery)):
		}
		_, _ = kv.Put(ctx, key, body) // what fails is tried again
	}
}

// forgetGone removes those of a list on whose subject no process listens, unless they have entered
// themselves again since.
func forgetGone(ctx context.Context, nc *nats.Conn, kv jetstream.KeyValue, list []Instance) {
	for _, i := range list {
		if _, gone, _ := askInstance(ctx, nc, i); gone {
			_ = kv.Delete(ctx, entryPrefix+i.ID, jetstream.LastRevision(i.revision))
		}
	}
}

// listInstances lists the registered admitters.
func listInstances(ctx context.Context, js jetstream.JetStream) (list []Instance, err error) {
	entries, err := streams.KVLive(ctx, js, streams.BucketLeases, func(key string) bool { return strings.HasPrefix(key, entryPrefix) })
	if err != nil {
		return nil, fmt.Errorf("listing the admitters: %w", err)
	}
	for _, e := range entries {
		id := strings.TrimPrefix(e.Key, entryPrefix)
		i := Instance{ID: id, Name: id}
		var said Instance
		if json.Unmarshal(e.Value, &said) == nil && said.ID == id {
			i = said
		}
		i.revision = e.Revision
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
