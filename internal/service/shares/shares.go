// Package shares divides a capacity among the callers of a service. Begin with Shares.
package shares

import (
	"context"
	"slices"
	"sync"
)

// Caller is the tenant and the user of a request.
type Caller struct{ Tenant, User string }

// Shares divide a capacity among callers so that none can take all of it. A tenant can hold all
// but a fifth of what the other tenants leave; each of its users all but a fifth of that. The
// rest is for tenants and users that hold nothing yet: their request only needs enough free
// capacity.
type Shares struct {
	mu       sync.Mutex
	capacity int64
	used     int64
	tenants  map[string]int64
	callers  map[Caller]int64
}

// New divides a capacity.
func New(capacity int64) *Shares {
	return &Shares{capacity: capacity, tenants: map[string]int64{}, callers: map[Caller]int64{}}
}

// shareOf is how much of a capacity one holder may have.
func shareOf(capacity int64) int64 { return capacity - max(1, capacity/5) }

// Take takes n for a and reports whether that was possible.
func (s *Shares) Take(a Caller, n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.takeLocked(a, n)
}

func (s *Shares) takeLocked(a Caller, n int64) bool {
	tenant, own := s.tenants[a.Tenant], s.callers[a]
	forTenant := shareOf(s.capacity - (s.used - tenant))
	forCaller := shareOf(forTenant - (tenant - own))
	if s.used+n > s.capacity || tenant > 0 && tenant+n > forTenant || own > 0 && own+n > forCaller {
		return false
	}
	s.used, s.tenants[a.Tenant], s.callers[a] = s.used+n, tenant+n, own+n
	return true
}

// Release returns n.
func (s *Shares) Release(a Caller, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.releaseLocked(a, n)
}

func (s *Shares) releaseLocked(a Caller, n int64) {
	s.used -= n
	if s.tenants[a.Tenant] -= n; s.tenants[a.Tenant] <= 0 {
		delete(s.tenants, a.Tenant)
	}
	if s.callers[a] -= n; s.callers[a] <= 0 {
		delete(s.callers, a)
	}
}

// Capacity is what New was given.
func (s *Shares) Capacity() int64 { return s.capacity }

// Held is how much of the capacity is in use.
func (s *Shares) Held() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}

// Places are shares of one each that an asker can wait for. A free place goes to the tenant that
// holds the fewest, and within it to the user that holds the fewest; among equals to the one
// served least recently.
type Places struct {
	*Shares
	waiting map[Caller][]chan struct{} // in order of arrival; closed when the place is given
	turn    []Caller                   // the keys of waiting, the one served last at the end
}

// NewPlaces is n places.
func NewPlaces(n int64) *Places {
	return &Places{Shares: New(n), waiting: map[Caller][]chan struct{}{}}
}

// Acquire waits for a place until ctx ends. The caller returns it with Release.
func (p *Places) Acquire(ctx context.Context, a Caller) error {
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
	if !p.dropWaiting(a, ready) { // the place was given at the same time
		p.returnLocked(a)
	}
	return ctx.Err()
}

// Release returns a place and serves the next asker.
func (p *Places) Release(a Caller) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.returnLocked(a)
}

func (p *Places) returnLocked(a Caller) {
	p.releaseLocked(a, 1)
	for p.serveNext() {
	}
}

// serveNext gives a free place to the next asker, and reports whether one could have it.
func (p *Places) serveNext() bool {
	next := -1
	for i, a := range p.turn {
		if next < 0 || p.holdsLess(a, p.turn[next]) {
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
	p.dropWaiting(a, ready)
	return true
}

// holdsLess reports whether a holds less than b.
func (p *Places) holdsLess(a, b Caller) bool {
	if ta, tb := p.tenants[a.Tenant], p.tenants[b.Tenant]; ta != tb {
		return ta < tb
	}
	return p.callers[a] < p.callers[b]
}

// dropWaiting removes a waiting request of a, and moves a's other requests to the end of the
// turn. It reports whether the request was waiting.
func (p *Places) dropWaiting(a Caller, ready chan struct{}) bool {
	list := p.waiting[a]
	at := slices.Index(list, ready)
	if at < 0 {
		return false
	}
	p.turn = slices.DeleteFunc(p.turn, func(b Caller) bool { return a == b })
	if p.waiting[a] = slices.Delete(list, at, at+1); len(p.waiting[a]) == 0 {
		delete(p.waiting, a)
		return true
	}
	p.turn = append(p.turn, a)
	return true
}
