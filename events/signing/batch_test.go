package signing_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/events/signing"
)

func records(n int) [][]byte {
	list := make([][]byte, n)
	for i := range list {
		list[i] = fmt.Appendf(nil, `{"n":%d}`, i)
	}
	return list
}

func TestSignRecords(t *testing.T) {
	k := key(t, 1)
	ks := set(k)
	for n := range 70 {
		list := records(n)
		values, err := k.SignRecords(list)
		if err != nil || len(values) != n {
			t.Fatal(n, len(values), err)
		}
		shared := signing.RecordVerifier{Keys: ks}
		for i, r := range list {
			if kid, err := ks.VerifyRecord(values[i], r); err != nil || kid != k.ID {
				t.Fatalf("%d of %d: %v", i, n, err)
			}
			if kid, err := shared.Verify(values[i], r); err != nil || kid != k.ID {
				t.Fatalf("%d of %d, one after the other: %v", i, n, err)
			}
			other := []byte(`{"n":-1}`)
			if n > 1 {
				other = list[(i+1)%n] // signed, but not here
			}
			for _, verify := range []func(string, []byte) (string, error){ks.VerifyRecord, shared.Verify} {
				if _, err := verify(values[i], other); !errors.Is(err, signing.ErrBadSignature) {
					t.Fatalf("%d of %d: another record: %v", i, n, err)
				}
			}
		}
	}
	if one, _ := k.SignRecords(records(1)); strings.Contains(one[0], "~") {
		t.Error("one record has a proof")
	}
	if _, err := k.SignRecords(records(signing.MaxBatch + 1)); err == nil {
		t.Error("too many at once")
	}
	if _, err := k.SignRecords(records(signing.MaxBatch)); err != nil {
		t.Error(err)
	}
	if _, err := (signing.PrivateKey{}).SignRecords(records(2)); !errors.Is(err, signing.ErrNoKey) {
		t.Error(err)
	}
}

// The tree is the one of RFC 6962, as golang.org/x/mod computes it.
func TestBatchIsTheTreeOfRFC6962(t *testing.T) {
	for n := 2; n < 40; n++ {
		var hashes []tlog.Hash
		read := tlog.HashReaderFunc(func(at []int64) (out []tlog.Hash, err error) {
			for _, i := range at {
				out = append(out, hashes[i])
			}
			return out, nil
		})
		for i, r := range records(n) {
			h, err := tlog.StoredHashes(int64(i), r, read)
			if err != nil {
				t.Fatal(err)
			}
			hashes = append(hashes, h...)
		}
		root, err := tlog.TreeHash(int64(n), read)
		if err != nil {
			t.Fatal(err)
		}
		values, _ := key(t, 1).SignRecords(records(n))
		token, _, _ := strings.Cut(values[0], "~")
		text := fmt.Sprintf("countersign/batch/v1\n%d\n%s\n", n, root)
		if _, err := set(key(t, 1)).VerifyDetached(signing.TypeBatch, token, []byte(text)); err != nil {
			t.Errorf("%d records: %v", n, err)
		}
	}
}

// A share has one spelling, and nothing may be changed in it.
func TestBatchRefusals(t *testing.T) {
	k := key(t, 1)
	ks := set(k)
	list := records(5)
	values, _ := k.SignRecords(list)
	parts := strings.Split(values[3], "~")
	share := func(change func(p []string)) string {
		p := append([]string(nil), parts...)
		change(p)
		return strings.Join(p, "~")
	}
	record, _ := k.SignDetached(signing.TypeRecord, []byte("countersign/batch/v1\n"))
	for name, value := range map[string]string{
		"another index":     share(func(p []string) { p[1] = "2" }),
		"another size":      share(func(p []string) { p[2] = "6" }),
		"index not below":   share(func(p []string) { p[1] = "5" }),
		"leading zero":      share(func(p []string) { p[1] = "03" }),
		"signed index":      share(func(p []string) { p[1] = "+3" }),
		"negative index":    share(func(p []string) { p[1] = "-1" }),
		"size one":          share(func(p []string) { p[1], p[2], p[3] = "0", "1", "" }),
		"huge size":         share(func(p []string) { p[2] = "1000000" }),
		"no proof":          share(func(p []string) { p[3] = "" }),
		"half a hash":       share(func(p []string) { p[3] = p[3][:20] }),
		"one hash too many": share(func(p []string) { p[3] += strings.Repeat("A", 43) }),
		"line break":        share(func(p []string) { p[3] += "\n" }),
		"padded":            share(func(p []string) { p[3] += "=" }),
		"another type":      share(func(p []string) { p[0] = record }),
		"five parts":        values[3] + "~",
		"two parts":         parts[0] + "~3",
		"token alone":       parts[0],
		"nothing":           "",
	} {
		if _, err := ks.VerifyRecord(value, list[3]); err == nil {
			t.Errorf("%s verifies", name)
		}
		v := signing.RecordVerifier{Keys: ks}
		if _, err := v.Verify(values[2], list[2]); err != nil {
			t.Fatal(err)
		}
		if _, err := v.Verify(value, list[3]); err == nil {
			t.Errorf("%s verifies after another of its batch", name)
		}
	}
	if _, err := ks.VerifyRecord(values[3], nil); !errors.Is(err, signing.ErrMalformed) {
		t.Error("no record:", err)
	}
}

// A verifier that knows a batch forgets it when its key goes.
func TestRecordVerifierFollowsItsKeys(t *testing.T) {
	k := key(t, 1)
	list := records(3)
	values, _ := k.SignRecords(list)
	v := signing.RecordVerifier{Keys: set(k)}
	if _, err := v.Verify(values[0], list[0]); err != nil {
		t.Fatal(err)
	}
	delete(v.Keys, k.ID)
	if _, err := v.Verify(values[1], list[1]); !errors.Is(err, signing.ErrUnknownKey) {
		t.Errorf("its key is gone: %v", err)
	}
}

func FuzzVerifyRecord(f *testing.F) {
	k := key(f, 1)
	list := records(6)
	values, _ := k.SignRecords(list)
	for i, v := range values {
		f.Add(v, list[i])
	}
	single, _ := k.SignRecords(list[:1])
	f.Add(single[0], list[0])
	f.Add("a~0~2~", []byte{})
	signed := map[string]bool{}
	for _, r := range list {
		signed[string(r)] = true
	}
	f.Fuzz(func(t *testing.T, value string, record []byte) {
		if _, err := set(k).VerifyRecord(value, record); err == nil && !signed[string(record)] {
			t.Fatalf("%q verifies for %q, which nobody signed", value, record)
		}
	})
}

func BenchmarkSignRecords(b *testing.B) {
	k := key(b, 1)
	list := make([][]byte, 100)
	for i := range list {
		list[i] = large
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := k.SignRecords(list); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(list)), "ns/record")
}

func BenchmarkVerifyRecords(b *testing.B) {
	k := key(b, 1)
	list := make([][]byte, 100)
	for i := range list {
		list[i] = large
	}
	values, _ := k.SignRecords(list)
	v := signing.RecordVerifier{Keys: set(k)}
	b.ReportAllocs()
	for b.Loop() {
		for i, r := range list {
			if _, err := v.Verify(values[i], r); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(list)), "ns/record")
}
