package signing_test

import (
	"bytes"
	"testing"

	"github.com/countersign-dev/countersign/events/signing"
)

// A decision record has about this size.
var large = bytes.Repeat([]byte(`{"k":"v"}`), 100)

func BenchmarkSign(b *testing.B) {
	k := key(b, 1)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := k.Sign(signing.TypeReceipt, large); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSignDetached(b *testing.B) {
	k := key(b, 1)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := k.SignDetached(signing.TypeRecord, large); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkVerify(b *testing.B) {
	k := key(b, 1)
	ks := set(k)
	token, _ := k.Sign(signing.TypeReceipt, large)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := ks.Verify(signing.TypeReceipt, token); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkVerifyDetached(b *testing.B) {
	k := key(b, 1)
	ks := set(k)
	token, _ := k.SignDetached(signing.TypeRecord, large)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ks.VerifyDetached(signing.TypeRecord, token, large); err != nil {
			b.Fatal(err)
		}
	}
}
