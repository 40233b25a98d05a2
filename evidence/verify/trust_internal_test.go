package verify

import (
	"bytes"
	"fmt"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
)

// A publisher may invent requests; they must not fill the memory, nor push a
// real one out before its decision.
func TestRequestMemoryIsBounded(t *testing.T) {
	trust := newTrust(newReport(0), nil, nil, nil, nil)
	for i := range 3 * requestGeneration {
		trust.rememberRequest(decisionKey{"t", fmt.Sprint(i)}, requestState{})
	}
	if n := len(trust.requests[0]) + len(trust.requests[1]); n > 2*requestGeneration {
		t.Errorf("%d requests are held", n)
	}
	if _, ok := trust.requests[0][decisionKey{"t", fmt.Sprint(3*requestGeneration - 1)}]; !ok {
		t.Error("the last request is gone")
	}
}

// A signature that was checked under a key of the same id, but not the one that
// is vouched for, is none.
func TestClaimUnderAnotherKeyOfTheSameID(t *testing.T) {
	secret, public, err := signing.NewCheckpointKey(bytes.NewReader(make([]byte, 32)))
	require(t, err)
	signer, err := signing.CheckpointSigner(secret)
	require(t, err)
	verifier, err := signing.CheckpointVerifier(public)
	require(t, err)
	receipt, err := signing.NewPrivateKey(bytes.Repeat([]byte{1}, 32))
	require(t, err)
	stranger, err := signing.NewPrivateKey(bytes.Repeat([]byte{2}, 32))
	require(t, err)
	key := events.KeyRecord{KeyID: receipt.ID, Use: "receipt", Algorithm: "EdDSA", PublicKey: signing.EncodePublic(receipt.Public())}
	key.Vouch, err = signing.SignKeyRecord(signer, key)
	require(t, err)

	rep := newReport(0)
	trust := newTrust(rep, []note.Verifier{verifier}, []events.KeyRecord{key}, nil, nil)
	trust.verifySignature(signatureClaim{seq: 7, kind: factDecision, keyID: receipt.ID, pub: receipt.Public(), valid: true})
	if rep.Total != 0 {
		t.Fatal(rep.Findings)
	}
	trust.verifySignature(signatureClaim{seq: 8, kind: factDecision, keyID: receipt.ID, pub: stranger.Public(), valid: true})
	if rep.Total != 1 || rep.Findings[0].Code != CodeDecisionSignature || rep.Findings[0].Seq != 8 {
		t.Error(rep.Findings)
	}
}

func require(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
