package sessionsecrets

import (
	"fmt"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/service/erasureplan"
)

func named(i int) events.SessionID {
	return events.SessionID{Tenant: "t", Session: fmt.Sprint(i)}
}

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// Whoever is silent for as long as an erasure asks for by default is in no memory,
// and has not been for a while.
func TestIdleIsWellBelowQuiet(t *testing.T) {
	if Idle*2 > erasureplan.DefaultIdle {
		t.Errorf("keys stay for %v of idleness, sessions may be erased after %v", Idle, erasureplan.DefaultIdle)
	}
}

func TestCacheForgetsWhatIsIdle(t *testing.T) {
	c := newCache(10)
	c.put(named(1), Secret{Raw: []byte{1}}, 0, noon)
	at := noon
	for range 10 { // asked for again and again, it stays
		at = at.Add(Idle * 9 / 10)
		if _, ok := c.get(named(1), at); !ok {
			t.Fatal("a key that is used is forgotten")
		}
	}
	if _, ok := c.get(named(1), at.Add(Idle)); ok {
		t.Error("an idle key stays")
	}
	if len(c.entries) != 0 {
		t.Error("it is still in memory")
	}
}

func TestCacheIsBounded(t *testing.T) {
	c := newCache(100)
	for i := range 1000 {
		c.put(named(i), Secret{}, 0, noon)
		if len(c.entries) > 100 {
			t.Fatalf("%d keys", len(c.entries))
		}
		if _, ok := c.get(named(i), noon); !ok {
			t.Fatal("the newest is not there")
		}
	}
}

// What was asked for before a key was dropped may be that key.
func TestCacheRefusesWhatMayBeDestroyed(t *testing.T) {
	c := newCache(10)
	for _, drop := range []func(){func() { c.drop(named(2)) }, c.dropAll} {
		before := c.dropCount()
		drop()
		c.put(named(1), Secret{}, before, noon)
		if _, ok := c.get(named(1), noon); ok {
			t.Error("it is kept")
		}
	}
	c.put(named(1), Secret{}, c.dropCount(), noon)
	if _, ok := c.get(named(1), noon); !ok {
		t.Error("nothing is kept any more")
	}
	c.drop(named(1))
	if _, ok := c.get(named(1), noon); ok {
		t.Error("a key that was destroyed is kept")
	}
}
