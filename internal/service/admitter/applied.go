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

// changeProgress knows what decisions under way go by, and tells when a change has
// reached all of them.
type changeProgress struct {
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

func newProgress() *changeProgress {
	ended := make(chan struct{})
	close(ended)
	return &changeProgress{round: &sync.WaitGroup{}, ended: ended, newest: map[string]uint64{}, revisions: map[string]uint64{}, signing: map[string]int{}}
}

// trackView makes a view one of those that must be as new as the connection.
func (p *changeProgress) trackView(view *atomic.Uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.views = append(slices.Clone(p.views), view)
}

// beginDecision counts a decision until it is answered.
func (p *changeProgress) beginDecision() (end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	round := p.round
	round.Add(1)
	return round.Done
}

// afterCurrent calls f when every decision that is under way now is answered.
func (p *changeProgress) afterCurrent(f func()) {
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

// noteChange says that new decisions go by a revision of a bucket.
func (p *changeProgress) noteChange(bucket string, revision uint64) {
	p.mu.Lock()
	p.changes++
	n := p.changes
	p.newest[bucket] = n
	p.mu.Unlock()
	p.afterCurrent(func() {
		if p.newest[bucket] == n {
			p.revisions[bucket] = revision
		}
	})
}

// noteSigner says that new decisions are signed with another key.
func (p *changeProgress) noteSigner(old, next string) {
	p.mu.Lock()
	p.signing[next]++
	p.mu.Unlock()
	if old == "" {
		return
	}
	p.afterCurrent(func() {
		if p.signing[old]--; p.signing[old] <= 0 {
			delete(p.signing, old)
		}
	})
}

// rolloutState is what a command may rely on.
func (p *changeProgress) rolloutState() rollout.State {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := rollout.State{Revisions: map[string]uint64{}, SigningKeys: slices.Sorted(maps.Keys(p.signing))}
	if p.canRecord() {
		maps.Copy(s.Revisions, p.revisions)
	}
	return s
}

// canRecord reports whether decisions may be recorded: every change is in the log,
// and every view was read over the connection that is there now. A server that
// comes back may have changes that this process has not heard of.
func (p *changeProgress) canRecord() bool {
	if p.unrecorded.Load() > 0 {
		return false
	}
	if p.conn == nil {
		return true
	}
	now := p.conn.Stats().Reconnects
	return !slices.ContainsFunc(p.views, func(v *atomic.Uint64) bool { return v.Load() != now })
}
