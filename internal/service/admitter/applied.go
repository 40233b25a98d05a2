package admitter

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/internal/service/rollout"
)

// errNotInLog reports that a change of policies, keys or state has no record in the log yet, or
// that a view may be older than the connection.
var errNotInLog = errors.New("what this admitter decides by is not in the log, or may be out of date")

// changeProgress tracks the revisions that decisions under way use, and reports when a change has
// reached all of them.
type changeProgress struct {
	mu        sync.Mutex
	round     *sync.WaitGroup   // decisions that began after the newest change
	ended     chan struct{}     // closed when all earlier decisions have ended, and afterCurrent has told so
	changes   uint64            // number of changes so far
	newest    map[string]uint64 // by bucket: number of its newest change
	revisions map[string]uint64 // by bucket: the revision that every decision uses
	signing   map[string]int    // by key id: reasons for which the key may still sign

	unrecorded atomic.Int32     // kinds of changes that wait for the log
	views      []*atomic.Uint64 // by bucket: bucketFollower.reconnects
	conn       *nats.Conn
}

func newProgress() *changeProgress {
	ended := make(chan struct{})
	close(ended)
	return &changeProgress{round: &sync.WaitGroup{}, ended: ended, newest: map[string]uint64{}, revisions: map[string]uint64{}, signing: map[string]int{}}
}

// suspendRecords forbids decisions to be recorded until resumeRecords.
func (p *changeProgress) suspendRecords() { p.unrecorded.Add(1) }

func (p *changeProgress) resumeRecords() { p.unrecorded.Add(-1) }

// trackView adds a view to those that must have been read over the current connection.
func (p *changeProgress) trackView(view *atomic.Uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.views = append(slices.Clone(p.views), view)
}

// beginDecision counts a decision as under way until end is called.
func (p *changeProgress) beginDecision() (end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	round := p.round
	round.Add(1)
	return round.Done
}

// afterCurrent calls f once every decision that is under way now is answered.
func (p *changeProgress) afterCurrent(f func()) {
	p.mu.Lock()
	before, earlier, ended := p.round, p.ended, make(chan struct{})
	p.round, p.ended = &sync.WaitGroup{}, ended
	p.mu.Unlock()
	go func() {
		before.Wait()
		<-earlier
		p.mu.Lock()
		f()
		p.mu.Unlock()
		close(ended)
	}()
}

// noteChange records that new decisions use a revision of a bucket.
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

// noteSigner records that new decisions are signed with key next instead of old.
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

// awaitUnused waits until no decision under way is signed with a key that signs no new ones.
func (p *changeProgress) awaitUnused(ctx context.Context, kid string) error {
	p.mu.Lock()
	signs, ended := p.signing[kid] > 0, p.ended
	p.mu.Unlock()
	if !signs {
		return nil
	}
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the decisions that key %s signs: %w", kid, ctx.Err())
	}
}

// rolloutState returns the state that it is safe for a command to rely on.
func (p *changeProgress) rolloutState() rollout.State {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := rollout.State{Revisions: map[string]uint64{}, SigningKeys: slices.Sorted(maps.Keys(p.signing))}
	if p.canRecord() {
		maps.Copy(s.Revisions, p.revisions)
	}
	return s
}

// canRecord reports whether decisions may be recorded: every change is in the log, and every view
// was read over the current connection and is not known to be old. A server that comes back may hold
// changes that this process has not seen.
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
