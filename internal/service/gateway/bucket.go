package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/gateway/token"
	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/streams"
)

const (
	viewEvery = time.Second      // between two looks
	viewStale = 15 * time.Second // a view that was not confirmed for so long counts no more
	lookLimit = 2 * time.Second  // how long a caller waits for a look
)

// view looks for changes of records, so that requests need not ask NATS. A change counts within viewEvery and
// one look.
type view struct {
	name   string // in the health report
	read   reader
	apply  func(records map[string][]byte) // never called at the same time as itself
	wanted chan struct{}                   // has room for one: a caller waits for a look; nil if none ever does
	nc     *nats.Conn                      // leaves a server over which the records cannot be read; may be nil

	mu        sync.Mutex
	version   string        // "" before the first
	confirmed time.Time     // when the last look began
	looked    chan struct{} // closed when the next look has ended; nil if no caller waits
}

// reader reads the records and their version. It may leave out the records of the version that is known.
type reader func(ctx context.Context, known string) (records map[string][]byte, version string, err error)

// isCurrent reports whether the view was confirmed lately.
func (v *view) isCurrent() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return time.Since(v.confirmed) <= viewStale
}

// follow keeps the view current until ctx ends. problem says in the health report what a failure means.
func (v *view) follow(ctx context.Context, env daemon.Env, problem string) {
	var reach daemon.Reach
	for v.awaitTurn(ctx) == nil {
		err := v.load(ctx)
		if v.nc != nil {
			reach.Note(v.nc, env.Log, err)
		}
		switch {
		case ctx.Err() != nil:
		case err != nil:
			env.Health.Set(v.name, problem)
		default:
			env.Health.Set(v.name, "")
		}
	}
}

// awaitTurn waits until the next look is due: at the next tick of viewEvery, or token.ViewAge after a caller has come
// that waits. So callers, however many, cause at most one look within token.ViewAge.
func (v *view) awaitTurn(ctx context.Context) error {
	regular := time.NewTimer(retry.UntilTick(viewEvery))
	defer regular.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-regular.C:
		return nil
	case <-v.wanted:
		return retry.Sleep(ctx, token.ViewAge)
	}
}

// awaitLook waits for a look that cannot miss what was stored before the call. It reports whether there was one
// within lookLimit.
func (v *view) awaitLook(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	due := time.Now().Add(token.ViewAge)
	select {
	case v.wanted <- struct{}{}:
	default: // another caller waits for the same look
	}
	for {
		v.mu.Lock()
		if !v.confirmed.Before(due) {
			v.mu.Unlock()
			return true
		}
		if v.looked == nil {
			v.looked = make(chan struct{})
		}
		looked := v.looked
		v.mu.Unlock()
		select {
		case <-looked:
		case <-ctx.Done():
			return false
		}
	}
}

// load reads the records if they have changed.
func (v *view) load(ctx context.Context) error {
	begun := time.Now()
	ctx, cancel := context.WithTimeout(ctx, viewStale)
	defer cancel()
	v.mu.Lock()
	known := v.version
	v.mu.Unlock()
	records, version, err := v.read(ctx, known)
	if err != nil {
		return err
	}
	if version != known {
		v.apply(records)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.version, v.confirmed = version, begun
	if v.looked != nil {
		close(v.looked)
		v.looked = nil
	}
	return nil
}

// readBucket reads a bucket. A bucket that was made anew has another version.
func readBucket(js jetstream.JetStream, bucket string) reader {
	return func(ctx context.Context, known string) (map[string][]byte, string, error) {
		v, err := streams.VersionOf(ctx, js, bucket)
		if err != nil {
			return nil, "", err
		}
		version := fmt.Sprint(v.Store, " ", v.Revision)
		if version == known {
			return nil, version, nil
		}
		records, err := streams.KVUnder(ctx, js, bucket, "")
		return records, version, err
	}
}

// errTokens reports that the tenant's tokens cannot be had.
var errTokens = errors.New("the admitter gives no tokens")

// readTokens asks the admitter for the tenant's tokens, page by page. Tokens that change meanwhile are read
// again from the first page.
func readTokens(nc *nats.Conn, subj string) reader {
	return func(ctx context.Context, known string) (map[string][]byte, string, error) {
		req, records, version := token.ViewRequest{Known: known}, map[string][]byte{}, ""
		for {
			page, err := askTokens(ctx, nc, subj, req)
			switch {
			case err != nil:
				return nil, "", err
			case version != "" && page.View != version:
				req, records, version = token.ViewRequest{}, map[string][]byte{}, ""
				continue
			}
			version = page.View
			for id, record := range page.Records {
				records[id] = record
			}
			if page.Next == "" {
				return records, version, nil
			}
			req.After = page.Next
		}
	}
}

func askTokens(ctx context.Context, nc *nats.Conn, subj string, req token.ViewRequest) (page token.ViewReply, err error) {
	body, err := json.Marshal(req)
	if err != nil {
		return page, err
	}
	m, err := nc.RequestWithContext(ctx, subj, body)
	switch {
	case err != nil:
		return page, fmt.Errorf("%w: %w", errTokens, err)
	case json.Unmarshal(m.Data, &page) != nil || page.View == "":
		return page, fmt.Errorf("%w: %.40q", errTokens, page.Error)
	}
	return page, nil
}
