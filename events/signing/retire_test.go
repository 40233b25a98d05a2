package signing_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
)

func noteKey(t *testing.T, seed byte, name string) (note.Signer, note.Verifiers) {
	t.Helper()
	private, public, err := note.GenerateKey(bytes.NewReader(bytes.Repeat([]byte{seed}, 32)), name)
	if err != nil {
		t.Fatal(err)
	}
	s, err := note.NewSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	v, err := note.NewVerifier(public)
	if err != nil {
		t.Fatal(err)
	}
	return s, note.VerifierList(v)
}

func TestRetirement(t *testing.T) {
	signer, known := noteKey(t, 1, "countersign.dev/checkpoint")
	_, strangers := noteKey(t, 2, "countersign.dev/checkpoint")
	k := events.KeyRetirement{KeyID: key(t, 1).ID, Use: "receipt", RetiredAt: events.At(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))}
	if want := "countersign/key-retired/v1\nreceipt 34750f98bd59fcfc 2026-11-20T12:00:00.000000000Z\n"; k.VouchText() != want {
		t.Errorf("text %q", k.VouchText())
	}
	var err error
	if k.Vouch, err = signing.SignRetirement(signer, k); err != nil || !signing.CheckRetirement(known, k) {
		t.Fatalf("%v", err)
	}
	if signing.CheckRetirement(strangers, k) {
		t.Error("another checkpoint key retires it")
	}
	for name, change := range map[string]func(*events.KeyRetirement){
		"another key":      func(k *events.KeyRetirement) { k.KeyID = key(t, 2).ID },
		"another time":     func(k *events.KeyRetirement) { k.RetiredAt = events.At(k.RetiredAt.Add(1)) },
		"no time":          func(k *events.KeyRetirement) { k.RetiredAt = events.Time{} },
		"another use":      func(k *events.KeyRetirement) { k.Use = "checkpoint" },
		"no vouch":         func(k *events.KeyRetirement) { k.Vouch = "" },
		"a huge vouch":     func(k *events.KeyRetirement) { k.Vouch += strings.Repeat("x", 1<<17) },
		"a key of no form": func(k *events.KeyRetirement) { k.KeyID = "x y" },
		"vouch for a key": func(k *events.KeyRetirement) {
			n, _ := note.Sign(&note.Note{Text: events.KeyRecord{KeyID: k.KeyID, Use: k.Use, Algorithm: "EdDSA"}.VouchText()}, signer)
			k.Vouch = string(n)
		},
	} {
		changed := k
		change(&changed)
		if signing.CheckRetirement(known, changed) {
			t.Errorf("%s: accepted", name)
		}
	}
	for _, bad := range []events.KeyRetirement{{}, {Use: "receipt", KeyID: "x", RetiredAt: k.RetiredAt}, {Use: "receipt", KeyID: k.KeyID}} {
		if _, err := signing.SignRetirement(signer, bad); !errors.Is(err, signing.ErrRetirement) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
