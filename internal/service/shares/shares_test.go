package shares

import (
	"context"
	"fmt"
	"testing"

	"github.com/countersign-dev/countersign/internal/service/servicetest"
)

// fill takes as much as it can get, one at a time.
func fill(s *Shares, a Caller) (n int64) {
	for s.Take(a, 1) {
		n++
	}
	return n
}

// However much some take, there is something for another user of the same tenant, and
// for another tenant.
func TestSharesLeaveSomethingForOthers(t *testing.T) {
	for _, capacity := range []int64{3, 8, 64, 2048} {
		s := New(capacity)
		total := int64(0)
		for _, a := range []Caller{{"globex", "mallory"}, {"globex", "gus"}, {"acme", "rt1"}} {
			n := fill(s, a)
			if n == 0 {
				t.Errorf("of %d: %v gets nothing while %d are taken", capacity, a, total)
			}
			if total += n; total != s.Held() {
				t.Errorf("of %d: %d are held, %d were taken", capacity, s.Held(), total)
			}
		}
	}
	s := New(2048)
	if n := fill(s, Caller{"globex", "mallory"}); n < 2048/2 {
		t.Errorf("a user that is alone gets %d of 2048", n)
	}
	for i := range 100 { // many users of one tenant
		fill(s, Caller{"globex", fmt.Sprint(i)})
	}
	if n := fill(s, Caller{"acme", "rt1"}); n < 2048/10 {
		t.Errorf("another tenant gets %d of 2048", n)
	}
}

func TestSharesThatAreReleasedAreForgotten(t *testing.T) {
	s, a := New(100), Caller{"acme", "rt1"}
	if !s.Take(a, 100) || s.Take(Caller{"globex", "mallory"}, 1) {
		t.Error("one that holds nothing may take all that fits, and no more")
	}
	s.Release(a, 100)
	if s.Held() != 0 || len(s.tenants) != 0 || len(s.callers) != 0 {
		t.Errorf("%d held, %v, %v", s.Held(), s.tenants, s.callers)
	}
}

// A free place goes to the tenant that holds the fewest, not to the request that came
// first, and in turn to its users. One is left for a tenant that holds none.
func TestPlacesAreGivenInTurn(t *testing.T) {
	p := NewPlaces(2)
	none := Caller{}
	attacker, sibling, other, early := Caller{"globex", "mallory"}, Caller{"globex", "gus"}, Caller{"acme", "rt1"}, Caller{"initech", "x"}
	servicetest.OK(t, p.Acquire(t.Context(), attacker))
	servicetest.OK(t, p.Acquire(t.Context(), early))
	got := make(chan Caller)
	for _, a := range []Caller{attacker, attacker, attacker, sibling, other} {
		before := p.waits(a)
		go func() {
			if p.Acquire(context.Background(), a) == nil {
				got <- a
			}
		}()
		servicetest.Eventually(t, "it waits", func() bool { return p.waits(a) > before })
	}
	for _, c := range []struct{ leaves, next Caller }{
		{early, other}, {other, none}, {attacker, attacker}, {attacker, sibling}, {sibling, attacker}, {attacker, attacker},
	} {
		held := p.Held()
		p.Release(c.leaves)
		switch {
		case c.next == none && p.Held() != held-1:
			t.Fatalf("%v leaves: %d places are taken, want %d", c.leaves, p.Held(), held-1)
		case c.next == none:
		default:
			if a := <-got; a != c.next {
				t.Fatalf("%v leaves: the place goes to %v, want %v", c.leaves, a, c.next)
			}
		}
	}
	if len(p.waiting) != 0 || len(p.turn) != 0 {
		t.Errorf("%v wait, the turn is %v", p.waiting, p.turn)
	}
}

func TestPlaceThatIsNotWaitedForAnyMore(t *testing.T) {
	p, a := NewPlaces(1), Caller{"acme", "rt1"}
	servicetest.OK(t, p.Acquire(t.Context(), a))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Acquire(ctx, a); err == nil || p.waits(a) != 0 || len(p.turn) != 0 {
		t.Errorf("error %v, %d wait, the turn is %v", err, p.waits(a), p.turn)
	}
	p.Release(a)
	servicetest.OK(t, p.Acquire(t.Context(), Caller{"globex", "mallory"}))
}

// waits is how many requests of a wait.
func (p *Places) waits(a Caller) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.waiting[a])
}
