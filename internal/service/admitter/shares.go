package admitter

import (
	"context"
	"slices"
	"sync"
)

// asker is the tenant and the user of a request.
type asker struct{ tenant, user string }

// shares divide a capacity among callers so that none can take all of it. A tenant can hold all
// but a fifth of what the other tenants leave; each of its users all but a fifth of that. The
// rest is for tenants and users that hold nothing yet: their request only needs enough free
// capacity.
type shares struct {
	mu       sync.Mutex
	capacity int64
	used     int64
	tenants  map[string]int64
	askers   map[asker]int64
}

func newShares(capacity int64) *shares {
	return &shares{capacity: capacity, tenants: map[string]int64{}, askers: map[asker]int64{}}
}

// shareOf is how much of a capacity one holder may have.
func shareOf(capacity int64) int64 { return capacity - max(1, capacity/5) }

// take takes n for a and reports whether that was possible.
func (s *shares) take(a asker, n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.takeLocked(a, n)
}

func (s *shares) takeLocked(a asker, n int64) bool {
	tenant, own := s.tenants[a.tenant], s.askers[a]
	forTenant := shareOf(s.capacity - (s.used - tenant))
	forAsker := shareOf(forTenant - (tenant - own))
	if s.used+n > s.capacity || tenant > 0 && tenant+n > forTenant || own > 0 && own+n > forAsker {
		return false
	}
	s.used, s.tenants[a.tenant], s.askers[a] = s.used+n, tenant+n, own+n
	return true
}

// release returns n.
func (s *shares) release(a asker, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.releaseLocked(a, n)
}

func (s *shares) releaseLocked(a asker, n int64) {
	s.used -= n
	if s.tenants[a.tenant] -= n; s.tenants[a.tenant] <= 0 {
		delete(s.tenants, a.tenant)
	}
	if s.askers[a] -= n; s.askers[a] <= 0 {
		delete(s.askers, a)
	}
}

// held is how much of the capacity is in use.
func (s *shares) held() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}

// places are shares of one each that an asker can wait for. A free place goes to the tenant that
// holds the fewest, and within it to the user that holds the fewest; among equals to the one
// served least recently.
type places struct {
	*shares
	waiting map[asker][]chan struct{} // in order of arrival; closed when the place is given
	turn    []asker                   // the keys of waiting, the one served last at the end
}

func newPlaces(n int64) *places {
	return &places{shares: newShares(n), waiting: map[asker][]chan struct{}{}}
}

// acquire waits for a place until ctx ends. The caller returns it with leave.
func (p *places) acquire(ctx context.Context, a asker) error {
	p.mu.Lock()
	if len(p.waiting[a]) == 0 && p.takeLocked(a, 1) {
		p.mu.Unlock()
		return nil
	}
	if len(p.waiting[a]) == 0 {
		p.turn = append(p.turn, a)
	}
	ready := make(chan struct{})
	p.waiting[a] = append(p.waiting[a], ready)
	p.mu.Unlock()
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.forget(a, ready) { // the place was given at the same time
		p.leaveLocked(a)
	}
	return ctx.Err()
}

// leave returns a place and serves the next asker.
func (p *places) leave(a asker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leaveLocked(a)
}

func (p *places) leaveLocked(a asker) {
	p.releaseLocked(a, 1)
	for p.serveNext() {
	}
}

// serveNext gives a free place to the next asker, and reports whether one could have it.
func (p *places) serveNext() bool {
	next := -1
	for i, a := range p.turn {
		if next < 0 || p.behind(a, p.turn[next]) {
			next = i
		}
	}
	if next < 0 {
		return false
	}
	a := p.turn[next]
	if !p.takeLocked(a, 1) {
		return false // it would exceed its share
	}
	ready := p.waiting[a][0]
	close(ready)
	p.forget(a, ready)
	return true
}

// behind reports whether a holds less than b.
func (p *places) behind(a, b asker) bool {
	if ta, tb := p.tenants[a.tenant], p.tenants[b.tenant]; ta != tb {
		return ta < tb
	}
	return p.askers[a] < p.askers[b]
}

// forget removes a waiting request of a, and moves a's other requests to the end of the
// turn. It reports whether the request was waiting.
func (p *places) forget(a asker, ready chan struct{}) bool {
	list := p.waiting[a]
	at := slices.Index(list, ready)
	if at < 0 {
		return false
	}
	p.turn = slices.DeleteFunc(p.turn, func(b asker) bool { return a == b })
	if p.waiting[a] = slices.Delete(list, at, at+1); len(p.waiting[a]) == 0 {
		delete(p.waiting, a)
		return true
	}
	p.turn = append(p.turn, a)
	return true
}
