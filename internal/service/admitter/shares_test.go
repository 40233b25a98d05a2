package admitter

import (
	"context"
	"fmt"
	"testing"

	"github.com/countersign-dev/countersign/internal/service/servicetest"
)

// fill takes as much as it can get, one at a time.
func fill(s *shares, a asker) (n int64) {
	for s.take(a, 1) {
		n++
	}
	return n
}

// However much some take, there is something for another user of the same tenant, and
// for another tenant.
func TestSharesLeaveSomethingForOthers(t *testing.T) {
	for _, capacity := range []int64{3, 8, 64, 2048} {
		s := newShares(capacity)
		total := int64(0)
		for _, a := range []asker{{"globex", "mallory"}, {"globex", "gus"}, {"acme", "rt1"}} {
			n := fill(s, a)
			if n == 0 {
				t.Errorf("of %d: %v gets nothing while %d are taken", capacity, a, total)
			}
			if total += n; total != s.held() {
				t.Errorf("of %d: %d are held, %d were taken", capacity, s.held(), total)
			}
		}
	}
	s := newShares(2048)
	if n := fill(s, asker{"globex", "mallory"}); n < 2048/2 {
		t.Errorf("a user that is alone gets %d of 2048", n)
	}
	for i := range 100 { // many users of one tenant
		fill(s, asker{"globex", fmt.Sprint(i)})
	}
	if n := fill(s, asker{"acme", "rt1"}); n < 2048/10 {
		t.Errorf("another tenant gets %d of 2048", n)
	}
}

func TestSharesThatAreReleasedAreForgotten(t *testing.T) {
	s, a := newShares(100), asker{"acme", "rt1"}
	if !s.take(a, 100) || s.take(asker{"globex", "mallory"}, 1) {
		t.Error("one that holds nothing may take all that fits, and no more")
	}
	s.release(a, 100)
	if s.held() != 0 || len(s.tenants) != 0 || len(s.askers) != 0 {
		t.Errorf("%d held, %v, %v", s.held(), s.tenants, s.askers)
	}
}

// A free place goes to the tenant that holds the fewest, not to the request that came
// first, and in turn to its users. One is left for a tenant that holds none.
func TestPlacesAreGivenInTurn(t *testing.T) {
	p := newPlaces(2)
	none := asker{}
	attacker, sibling, other, early := asker{"globex", "mallory"}, asker{"globex", "gus"}, asker{"acme", "rt1"}, asker{"initech", "x"}
	servicetest.OK(t, p.acquire(t.Context(), attacker))
	servicetest.OK(t, p.acquire(t.Context(), early))
	got := make(chan asker)
	for _, a := range []asker{attacker, attacker, attacker, sibling, other} {
		before := p.waits(a)
		go func() {
			if p.acquire(context.Background(), a) == nil {
				got <- a
			}
		}()
		servicetest.Eventually(t, "it waits", func() bool { return p.waits(a) > before })
	}
	for _, c := range []struct{ leaves, next asker }{
		{early, other}, {other, none}, {attacker, attacker}, {attacker, sibling}, {sibling, attacker}, {attacker, attacker},
	} {
		held := p.held()
		p.leave(c.leaves)
		switch {
		case c.next == none && p.held() != held-1:
			t.Fatalf("%v leaves: %d places are taken, want %d", c.leaves, p.held(), held-1)
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
	p, a := newPlaces(1), asker{"acme", "rt1"}
	servicetest.OK(t, p.acquire(t.Context(), a))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.acquire(ctx, a); err == nil || p.waits(a) != 0 || len(p.turn) != 0 {
		t.Errorf("error %v, %d wait, the turn is %v", err, p.waits(a), p.turn)
	}
	p.leave(a)
	servicetest.OK(t, p.acquire(t.Context(), asker{"globex", "mallory"}))
}

// waits is how many requests of a wait.
func (p *places) waits(a asker) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.waiting[a])
}
