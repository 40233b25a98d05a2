package evidence

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/countersign-dev/countersign/events"
)

// sharedKeys is for several goroutines.
type sharedKeys struct{}

func (sharedKeys) TenantKey(tenant string) []byte { return derived("tenant/" + tenant) }
func (sharedKeys) SessionSecret(tenant, session string) ([]byte, error) {
	return derived("session/" + tenant + "/" + session), nil
}

// Records do not depend on how a batch is split up, nor on which part runs when.
func TestPartsMakeTheSameRecords(t *testing.T) {
	f := newFixture(t)
	f.session()
	for i := range 40 {
		f.log(fmt.Sprintf("gov.events.acme.rt1.agenthook.s%d.note", i%7), nil, []byte(fmt.Sprintf(`{"to":"dana@acme.example","n":%d}`, i)))
	}
	for name, run := range map[string]func([]func()){
		"backwards": func(parts []func()) {
			for _, p := range slices.Backward(parts) {
				p()
			}
		},
		"together": func(parts []func()) {
			var all sync.WaitGroup
			for _, p := range parts {
				all.Go(p)
			}
			all.Wait()
		},
	} {
		for _, n := range []int{1, 2, 5, 100} {
			c := NewChain(func(SessionID) (Head, error) { return Head{}, nil }, 0)
			for _, cut := range [][2]int{{0, 20}, {20, len(f.msgs)}} {
				built, err := f.builder.BuildParts(c, f.msgs[cut[0]:cut[1]], sharedKeys{}, n, run)
				must(t, err)
				for i, b := range built {
					if b.Hash != f.built[cut[0]+i].Hash {
						t.Fatalf("%s, %d parts: record %d differs", name, n, b.Record.Seq)
					}
				}
				c.Commit()
			}
		}
	}
}

func TestAPartThatFails(t *testing.T) {
	f := newFixture(t)
	f.session()
	c := NewChain(func(SessionID) (Head, error) { return Head{}, nil }, 0)
	run := func(parts []func()) {
		for _, p := range parts {
			p()
		}
	}
	secret := events.LogMessage{Seq: 1, Subject: "gov.events.acme.rt1.agenthook.s1.note", Time: testStart, Body: []byte(`{"to":"dana@acme.example"}`)}
	if _, err := f.builder.BuildParts(c, []events.LogMessage{secret}, noKeys{}, 3, run); err == nil || errors.Is(err, ErrOrder) || len(c.staged) != 0 {
		t.Errorf("error %v, %d staged", err, len(c.staged))
	}
}
