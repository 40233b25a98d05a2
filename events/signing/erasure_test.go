package signing_test

import (
	"testing"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
)

// Every word of an erasure record is signed, and only what is well-formed.
func TestErasure(t *testing.T) {
	signer, known := noteKey(t, 1, "countersign.dev/checkpoint")
	_, strangers := noteKey(t, 2, "countersign.dev/checkpoint")
	now := events.At(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	e := events.Erasure{
		ErasureID: "erasure-1", Shard: "GOV@x", State: events.ErasureBegun, Part: 1, Parts: 1, Tenant: "acme", Sessions: []string{"s1"}, Cause: "order",
		Sequences: []events.Span{{3, 5}, {9, 9}}, Messages: 4, Reason: "request 17", OrderedBy: "dana", OrderedAt: now, At: now, Writer: "auditor-1",
	}
	var err error
	if e.Vouch, err = signing.SignErasure(signer, e); err != nil {
		t.Fatal(err)
	}
	body, err := events.Encode(e)
	if err != nil {
		t.Fatal(err)
	}
	back, err := events.DecodeRecord[events.Erasure](body)
	if err != nil || !signing.CheckErasure(known, back) || signing.CheckErasure(strangers, back) {
		t.Fatalf("%v: as it is, it must hold, for those who know the key", err)
	}
	for seq, want := range map[uint64]bool{2: false, 3: true, 4: true, 5: true, 6: false, 9: true, 10: false} {
		if e.Covers(seq) != want {
			t.Errorf("sequence %d: %v", seq, !want)
		}
	}
	for name, change := range map[string]func(*events.Erasure){
		"more sequences":  func(e *events.Erasure) { e.Sequences, e.Messages = []events.Span{{1, 4}}, 4 },
		"another count":   func(e *events.Erasure) { e.Messages++ },
		"overlaps":        func(e *events.Erasure) { e.Sequences = []events.Span{{3, 5}, {5, 5}} },
		"backwards":       func(e *events.Erasure) { e.Sequences = []events.Span{{5, 3}} },
		"another log":     func(e *events.Erasure) { e.Shard = "GOV@y" },
		"another session": func(e *events.Erasure) { e.Sessions = []string{"s2"} },
		"another person":  func(e *events.Erasure) { e.OrderedBy = "emil" },
		"done already":    func(e *events.Erasure) { e.State = events.ErasureDone },
		"no state":        func(e *events.Erasure) { e.State = "" },
		"no vouch":        func(e *events.Erasure) { e.Vouch = "" },
	} {
		bad := e
		if change(&bad); signing.CheckErasure(known, bad) {
			t.Errorf("%s: it still holds", name)
		}
	}
	e.Messages = 7
	if _, err := signing.SignErasure(signer, e); err == nil {
		t.Error("what is not well-formed is signed")
	}
}
