package signing_test

import (
	"bytes"
	"errors"
	"fmt"
	"log"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
)

// A record is signed by the part that makes it, and checked by every reader.
func ExamplePrivateKey_SignDetached() {
	key, err := signing.NewPrivateKey(bytes.Repeat([]byte{1}, 32)) // 32 random bytes
	if err != nil {
		log.Fatal(err)
	}
	record := []byte(`{"verdict":"deny"}`)
	signature, err := key.SignDetached(signing.TypeRecord, record)
	if err != nil {
		log.Fatal(err)
	}

	published := signing.KeySet{key.ID: key.Public()}
	kid, err := published.VerifyDetached(signing.TypeRecord, signature, record)
	fmt.Println(kid == key.ID, err)

	_, err = published.VerifyDetached(signing.TypeRecord, signature, []byte(`{"verdict":"allow"}`))
	fmt.Println(errors.Is(err, signing.ErrBadSignature))
	// Output:
	// true <nil>
	// true
}

// The checkpoint key vouches for the keys that sign receipts and records. A reader
// trusts the checkpoint key and nothing else.
func ExampleSignKeyRecord() {
	secret, public, err := signing.NewCheckpointKey(bytes.NewReader(bytes.Repeat([]byte{2}, 32)))
	if err != nil {
		log.Fatal(err)
	}
	signer, err := signing.CheckpointSigner(secret)
	if err != nil {
		log.Fatal(err)
	}
	verifier, err := signing.CheckpointVerifier(public)
	if err != nil {
		log.Fatal(err)
	}
	key, err := signing.NewPrivateKey(bytes.Repeat([]byte{1}, 32))
	if err != nil {
		log.Fatal(err)
	}

	record := events.KeyRecord{
		KeyID: key.ID, Use: signing.UseReceipt, Algorithm: "EdDSA", PublicKey: signing.EncodePublic(key.Public()),
		CreatedAt: events.At(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)),
	}
	record.Vouch, err = signing.SignKeyRecord(signer, record)
	fmt.Println(err, signing.CheckKeyRecord(note.VerifierList(verifier), record))
	// Output: <nil> true
}
