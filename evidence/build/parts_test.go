package build_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/build"
	"github.com/countersign-dev/countersign/evidence/evidencetest"
)

// sharedKeys is for several goroutines.
type sharedKeys struct{}

func (sharedKeys) TenantKey(tenant string) []byte { return evidencetest.Derived("tenant/" + tenant) }
func (sharedKeys) SessionSecret(tenant, session string) ([]byte, error) {
	return evidencetest.Derived("session/" + tenant + "/" + session), nil
}

// Records do not depend on how a batch is split up, nor on which part runs when.
func TestPartsMakeTheSameRecords(t *testing.T) {
	f := evidencetest.New(t)
	f.Session()
	for i := range 40 {
		f.Log(fmt.Sprintf("gov.events.acme.rt1.agenthook.s%d.note", i%7), nil, []byte(fmt.Sprintf(`{"to":"dana@acme.example","n":%d}`, i)))
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
			c := build.NewChain(func(events.SessionID) (evidence.Head, error) { return evidence.Head{}, nil }, 0)
			for _, cut := range [][2]int{{0, 20}, {20, len(f.Messages)}} {
				built, err := f.Builder.BuildParts(c, f.Messages[cut[0]:cut[1]], sharedKeys{}, n, run)
				evidencetest.Must(t, err)
				for i, b := range built {
					if b.Hash != f.Built[cut[0]+i].Hash {
						t.Fatalf("%s, %d parts: record %d differs", name, n, b.Record.Seq)
					}
				}
				c.Commit()
			}
		}
	}
}

func TestAPartThatFails(t *testing.T) {
	f := evidencetest.New(t)
	f.Session()
	c := build.NewChain(func(events.SessionID) (evidence.Head, error) { return evidence.Head{}, nil }, 0)
	run := func(parts []func()) {
		for _, p := range parts {
			p()
		}
	}
	secret := events.LogMessage{Seq: 1, Subject: "gov.events.acme.rt1.agenthook.s1.note", Time: evidencetest.Start, Body: []byte(`{"to":"dana@acme.example"}`)}
	if _, err := f.Builder.BuildParts(c, []events.LogMessage{secret}, evidencetest.NoKeys{}, 3, run); err == nil || errors.Is(err, build.ErrOrder) || c.Staged() != 0 {
		t.Errorf("error %v, %d staged", err, c.Staged())
	}
}
