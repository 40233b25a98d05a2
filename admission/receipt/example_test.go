package receipt_test

import (
	"bytes"
	"fmt"
	"log"
	"time"

	"github.com/countersign-dev/countersign/admission/receipt"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// The admitter issues a receipt for an allow. It binds the call and its arguments.
func ExampleIssue() {
	key, err := signing.NewPrivateKey(bytes.Repeat([]byte{1}, 32)) // 32 random bytes
	if err != nil {
		log.Fatal(err)
	}
	claims := receipt.Claims{
		DecisionID: "d1", Tenant: "acme", Source: "rt1", Session: "s1", ToolCallID: "c1", Tool: "send_email", Verdict: events.Allow,
		IssuedAt: events.At(noon), ExpiresAt: events.At(noon.Add(receipt.DefaultLifetime)), Nonce: "n1",
	}
	salt := bytes.Repeat([]byte{7}, receipt.SaltSize) // random
	if err := claims.BindArguments(salt, []byte(`{"amount":10}`)); err != nil {
		log.Fatal(err)
	}
	token, hash, err := receipt.Issue(key, claims)
	fmt.Println(hash == receipt.Hash(token), err)
	// Output: true <nil>
}

// The executor verifies a receipt against the call that is about to run.
func ExampleVerify() {
	token, keys := issued(`{"amount":10}`)

	aboutToRun := receipt.Expectation{
		Tenant: "acme", Source: "rt1", Session: "s1", ToolCallID: "c1", Tool: "send_email", ArgsCanonical: []byte(`{"amount":10}`),
	}
	_, err := receipt.Verify(keys, token, aboutToRun, noon.Add(time.Second))
	fmt.Println("the call that was asked:", err)

	_, err = receipt.Verify(keys, token, aboutToRun, noon.Add(receipt.DefaultLifetime))
	fmt.Println("a minute later:", receipt.Code(err))

	aboutToRun.ArgsCanonical = []byte(`{"amount":1000}`)
	_, err = receipt.Verify(keys, token, aboutToRun, noon.Add(time.Second))
	fmt.Println("another amount:", receipt.Code(err))
	// Output:
	// the call that was asked: <nil>
	// a minute later: receipt_expired
	// another amount: receipt_other_arguments
}

// issued gives a receipt for arguments in canonical form, and the published keys.
func issued(arguments string) (token string, keys signing.KeySet) {
	key, err := signing.NewPrivateKey(bytes.Repeat([]byte{1}, 32))
	if err != nil {
		log.Fatal(err)
	}
	claims := receipt.Claims{
		DecisionID: "d1", Tenant: "acme", Source: "rt1", Session: "s1", ToolCallID: "c1", Tool: "send_email", Verdict: events.Allow,
		IssuedAt: events.At(noon), ExpiresAt: events.At(noon.Add(receipt.DefaultLifetime)), Nonce: "n1",
	}
	if err := claims.BindArguments(bytes.Repeat([]byte{7}, receipt.SaltSize), []byte(arguments)); err != nil {
		log.Fatal(err)
	}
	if token, _, err = receipt.Issue(key, claims); err != nil {
		log.Fatal(err)
	}
	return token, signing.KeySet{key.ID: key.Public()}
}
