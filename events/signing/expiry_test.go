package signing_test

import (
	"testing"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
)

// Every word of an expiry record is signed, and only what is well-formed.
func TestExpiry(t *testing.T) {
	signer, known := noteKey(t, 1, "countersign.dev/checkpoint")
	_, strangers := noteKey(t, 2, "countersign.dev/checkpoint")
	e := events.Expiry{
		ExpiryID: "expiry-1", Shard: "GOV@x", State: events.ErasureBegun, Part: 1, Parts: 1, Tenant: "acme", Policy: "acme@0011223344556677", Records: 4,
		Sessions: []events.ExpiredSession{{Session: "s1", Index: 1, Sequences: []events.Span{{3, 5}, {9, 9}}}},
		At:       events.At(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)), Writer: "auditor-1",
	}
	var err error
	if e.Vouch, err = signing.SignExpiry(signer, e); err != nil {
		t.Fatal(err)
	}
	body, err := events.Encode(e)
	if err != nil {
		t.Fatal(err)
	}
	back, err := events.DecodeRecord[events.Expiry](body)
	if err != nil || !signing.CheckExpiry(known, back) || signing.CheckExpiry(strangers, back) || back.LastSequence() != 9 {
		t.Fatalf("%v: as it is, it must hold, for those who know the key", err)
	}
	session := func(s events.ExpiredSession) func(*events.Expiry) {
		return func(e *events.Expiry) { e.Sessions = []events.ExpiredSession{s} }
	}
	for name, change := range map[string]func(*events.Expiry){
		"more sequences":   session(events.ExpiredSession{Session: "s1", Index: 1, Sequences: []events.Span{{1, 4}}}),
		"another session":  session(events.ExpiredSession{Session: "s2", Index: 1, Sequences: []events.Span{{3, 5}, {9, 9}}}),
		"another index":    session(events.ExpiredSession{Session: "s1", Index: 2, Sequences: []events.Span{{3, 5}, {9, 9}}}),
		"no index":         session(events.ExpiredSession{Session: "s1", Sequences: []events.Span{{3, 5}, {9, 9}}}),
		"overlaps":         session(events.ExpiredSession{Session: "s1", Index: 1, Sequences: []events.Span{{3, 5}, {5, 5}}}),
		"another count":    func(e *events.Expiry) { e.Records++ },
		"another log":      func(e *events.Expiry) { e.Shard = "GOV@y" },
		"another tenant":   func(e *events.Expiry) { e.Tenant = "beta" },
		"another policy":   func(e *events.Expiry) { e.Policy = "acme@0000000000000000" },
		"done already":     func(e *events.Expiry) { e.State = events.ErasureDone },
		"no vouch":         func(e *events.Expiry) { e.Vouch = "" },
		"an erasure's":     func(e *events.Expiry) { e.Vouch = "countersign/erasure/v1\n" },
		"another time":     func(e *events.Expiry) { e.At = events.At(e.At.Add(time.Hour)) },
		"a part of others": func(e *events.Expiry) { e.Parts = 2 },
	} {
		bad := e
		if change(&bad); signing.CheckExpiry(known, bad) {
			t.Errorf("%s: it still holds", name)
		}
	}
	e.Records = 7
	if _, err := signing.SignExpiry(signer, e); err == nil {
		t.Error("what is not well-formed is signed")
	}
}
