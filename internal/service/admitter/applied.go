package admitter

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/internal/service/rollout"
)

// errNotInLog says that what decides has changed and the log does not have the
// record of that yet, or that a view may be older than the connection.
var errNotInLog = errors.New("what this admitter decides by is not in the log, or may be out of date")

// progress knows what decisions under way go by, and tells when a change has
// reached all of them.
type progress struct {
	mu        sync.Mutex
	round     *sync.WaitGroup   // decisions that began since the newest change
	ended     chan struct{}     // closed when those that began before it have ended
	changes   uint64            // so far
	newest    map[string]uint64 // by bucket: the number of its newest change
	revisions map[string]uint64 // by bucket: what every decision goes by
	signing   map[string]int    // how many reasons a key has to sign still, by id

	unrecorded atomic.Int32     // kinds of changes that wait for the log
	views      []*atomic.Uint64 // of each bucket, the connection that it was read over
	conn       *nats.Conn
}

func newProgress() *progress {
	ended := make(chan struct{})
	close(ended)
	return &progress{round: &sync.WaitGroup{}, ended: ended, newest: map[string]uint64{}, revisions: map[string]uint64{}, signing: map[string]int{}}
}

// follow makes a view one of those that must be as new as the connection.
func (p *progress) follow(view *atomic.Uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.views = append(slices.Clone(p.views), view)
}

// begin counts a decision until it is answered.
func (p *progress) begin() (end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	round := p.round
	round.Add(1)
	return round.Done
}

// after calls f when every decision that is under way now is answered.
func (p *progress) after(f func()) {
	p.mu.Lock()
	before, earlier, ended := p.round, p.ended, make(chan struct{})
	p.round, p.ended = &sync.WaitGroup{}, ended
	p.mu.Unlock()
	go func() {
		before.Wait()
		<-earlier
		close(ended)
		p.mu.Lock()
		defer p.mu.Unlock()
		f()
	}()
}

// changed says that new decisions go by a revision of a bucket.
func (p *progress) changed(bucket string, revision uint64) {
	p.mu.Lock()
	p.changes++
	n := p.changes
	p.newest[bucket] = n
	p.mu.Unlock()
	p.after(func() {
		if p.newest[bucket] == n {
			p.revisions[bucket] = revision
		}
	})
}

// signsWith says that new decisions are signed with another key.
func (p *progress) signsWith(old, next string) {
	p.mu.Lock()
	p.signing[next]++
	p.mu.Unlock()
	if old == "" {
		return
	}
	p.after(func() {
		if p.signing[old]--; p.signing[old] <= 0 {
			delete(p.signing, old)
		}
	})
}

// state is what a command may rely on.
func (p *progress) state() rollout.State {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := rollout.State{Revisions: map[string]uint64{}, SigningKeys: slices.Sorted(maps.Keys(p.signing))}
	if p.settled() {
		maps.Copy(s.Revisions, p.revisions)
	}
	return s
}

// settled reports whether decisions may be recorded: every change is in the log,
// and every view was read over the connection that is there now. A server that
// comes back may have changes that this process has not heard of.
func (p *progress) settled() bool {
	if p.unrecorded.Load() > 0 {
		return false
	}
	if p.conn == nil {
		return true
	}
	now := p.conn.Stats().Reconnects
	return !slices.ContainsFunc(p.views, func(v *atomic.Uint64) bool { return v.Load() != now })
}
