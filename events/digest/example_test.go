package digest_test

import (
	"bytes"
	"fmt"

	"github.com/countersign-dev/countersign/events/digest"
)

// Records hold keyed digests: the plain hash of a short secret is the secret.
func ExampleKeyed() {
	key := bytes.Repeat([]byte{1}, digest.KeySize) // a tenant's key, Master.Tenant
	recorded := digest.Keyed(key, []byte(`{"pin":"1234"}`))

	fmt.Println(recorded[:20], len(recorded))
	fmt.Println(digest.Equal(recorded, digest.Keyed(key, []byte(`{"pin":"1234"}`))))
	fmt.Println(digest.Equal(recorded, digest.Keyed(key, []byte(`{"pin":"4321"}`))))
	// Output:
	// hmac-sha256:fce4489f 76
	// true
	// false
}

// The digests of a session can be compared only while its key exists.
func ExampleInFormOf() {
	session := digest.NewSession(bytes.Repeat([]byte{2}, digest.KeySize))
	recorded := session.Digest([]byte("what was asked"))

	again, ok := digest.InFormOf(recorded, digest.Keys{Session: session}, []byte("what was asked"))
	fmt.Println(ok, digest.Equal(recorded, again))

	_, ok = digest.InFormOf(recorded, digest.Keys{}, []byte("what was asked"))
	fmt.Println("without the key:", ok)
	// Output:
	// true true
	// without the key: false
}

// A master key gives every tenant a key of its own, and never appears in a log.
func ExampleMaster() {
	master, err := digest.NewMaster(bytes.Repeat([]byte{3}, digest.KeySize))
	fmt.Println(err, bytes.Equal(master.Tenant("acme"), master.Tenant("globex")))
	fmt.Println(master)
	// Output:
	// <nil> false
	// digest.Master(secret)
}
