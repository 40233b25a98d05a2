package gateway

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/gateway/token"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/internal/testkit"
	"github.com/countersign-dev/countersign/streams"
)

// countedView is a view whose reads are counted; each begins at its number's time.
func countedView(t *testing.T, fails *atomic.Bool) (v *view, reads *atomic.Int64) {
	reads = &atomic.Int64{}
	v = &view{name: "test", wanted: make(chan struct{}, 1), apply: func(map[string][]byte) {}, read: func(context.Context, string) (map[string][]byte, string, error) {
		if fails.Load() {
			return nil, "", errors.New("away")
		}
		return nil, strconv.FormatInt(reads.Add(1), 10), nil
	}}
	var following sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	following.Go(func() { v.follow(ctx, daemon.Env{Health: daemon.NewHealth()}, "away") })
	t.Cleanup(func() { stop(); following.Wait() })
	return v, reads
}

// Callers whom the view does not know wait for a look that cannot miss what was stored before they came. However many
// guess, the admitter is asked at most once within token.ViewAge.
func TestGuessersCauseFewLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, reads := countedView(t, &atomic.Bool{})
		const length = 3 * time.Second
		var guessers sync.WaitGroup
		for i := range 300 {
			guessers.Go(func() {
				time.Sleep(time.Duration(i) * length / 300)
				came := time.Now()
				if !v.awaitLook(t.Context()) {
					t.Error("no look within the limit")
				}
				v.mu.Lock()
				defer v.mu.Unlock()
				if v.confirmed.Sub(came) < token.ViewAge {
					t.Errorf("the look began %v after the caller came: its answer may be older", v.confirmed.Sub(came))
				}
			})
		}
		guessers.Wait()
		if most := int64(length/token.ViewAge) + 2; reads.Load() > most {
			t.Errorf("%d looks, at most %d", reads.Load(), most)
		}
	})
}

// A caller does not wait for ever when the tokens cannot be read, and one that has gone does not wait.
func TestNoLookWithinTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		away.Store(true)
		v, _ := countedView(t, &away)
		begun := time.Now()
		if v.awaitLook(t.Context()) || time.Since(begun) != lookLimit {
			t.Errorf("waited for %v", time.Since(begun))
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if begun = time.Now(); v.awaitLook(gone) || time.Since(begun) != 0 {
			t.Errorf("waited for %v", time.Since(begun))
		}
		away.Store(false)
		if !v.awaitLook(t.Context()) {
			t.Error("the tokens can be read again")
		}
	})
}

// A gateway leaves a server over which the admitter cannot be asked.
func TestAViewThatCannotBeReadMovesTheConnection(t *testing.T) {
	t.Parallel()
	nc, err := nats.Connect("nats://192.0.2.1,nats://192.0.2.2", nats.SetCustomDialer(testkit.DeafNATS{}), nats.DontRandomize(), nats.ReconnectWait(time.Millisecond))
	testkit.OK(t, err)
	defer nc.Close()
	read := make(chan struct{})
	v := &view{name: "test", nc: nc, apply: func(map[string][]byte) { close(read) }, read: func(context.Context, string) (map[string][]byte, string, error) {
		if strings.Contains(nc.ConnectedUrl(), "192.0.2.2") {
			return nil, "1", nil
		}
		return nil, "", fmt.Errorf("%w: %w", errTokens, nats.ErrNoResponders)
	}}
	ctx, stop := context.WithTimeout(t.Context(), testkit.Guard)
	var following sync.WaitGroup
	defer following.Wait()
	defer stop()
	following.Go(func() { v.follow(ctx, daemon.Env{Log: zerolog.Nop(), Health: daemon.NewHealth()}, "away") })
	select {
	case <-read:
	case <-ctx.Done():
		t.Error("the records are not read over the other server")
	}
}

// A bucket that was made anew counts from one again: its records are read also at the revision that was known.
func TestABucketMadeAnewIsRead(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	js := n.JS("operator")
	read, known := readBucket(n.JS("admitter"), streams.BucketPolicies), ""
	for _, key := range []string{"old", "new"} {
		kv, err := js.KeyValue(t.Context(), streams.BucketPolicies)
		testkit.OK(t, err)
		_, err = kv.Put(t.Context(), key, []byte("{}"))
		testkit.OK(t, err)
		records, version, err := read(t.Context(), known)
		if testkit.OK(t, err); records[key] == nil {
			t.Errorf("the record %s is not read: %v", key, records)
		}
		if records, _, err = read(t.Context(), version); err != nil || records != nil {
			t.Errorf("nothing has changed: %v, %v", records, err)
		}
		known = version
		n.DeleteStream("KV_" + streams.BucketPolicies)
		n.Provision()
	}
}
