package tree

import (
	"bytes"
	"testing"

	"golang.org/x/mod/sumdb/note"
)

func TestZeroWitnessDoesNotSign(t *testing.T) {
	if _, err := note.Sign(&note.Note{Text: "x\n"}, timedSigner{}); err == nil {
		t.Error("the zero witness signs")
	}
}

// The signer and the verifier of one key name it by the same hash.
func TestWitnessKeyHash(t *testing.T) {
	skey, vkey, err := NewWitnessKey(bytes.NewReader(bytes.Repeat([]byte{1}, 32)), "witness.example.com/w1")
	if err != nil {
		t.Fatal(err)
	}
	w, err := WitnessSigner(skey)
	if err != nil {
		t.Fatal(err)
	}
	v, err := NewWitness(vkey)
	if err != nil || v.KeyHash() != w.hash {
		t.Errorf("the verifier has hash %x, the signer %x: %v", v.KeyHash(), w.hash, err)
	}
}
