package evidence_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/gowebpki/jcs"

	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/evidencetest"
)

func TestRecordTextIsCanonicalAndParses(t *testing.T) {
	f := evidencetest.New(t)
	f.Session()
	for _, b := range f.Built {
		oracle, err := jcs.Transform(b.Canonical)
		evidencetest.Must(t, err)
		if !bytes.Equal(oracle, b.Canonical) {
			t.Errorf("%d: not RFC 8785:\n%s\n%s", b.Record.Seq, b.Canonical, oracle)
		}
		rec, err := evidence.ParseRecord(b.Canonical)
		evidencetest.Must(t, err)
		again, err := rec.Canonical()
		evidencetest.Must(t, err)
		if !bytes.Equal(again, b.Canonical) {
			t.Errorf("%d: changed by parsing", b.Record.Seq)
		}
	}
}

func TestParseRecordRefuses(t *testing.T) {
	f := evidencetest.New(t)
	good := string(f.Log("gov.events.acme.r.aaep.s.x", map[string][]string{"a": {"1", "2"}, "A": {"3"}}, []byte(`{"a":1}`)).Canonical)
	if _, err := evidence.ParseRecord([]byte(good)); err != nil {
		t.Fatalf("headers that differ in case: %v", err)
	}
	change := func(old, changed string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("%s has no %s", good, old)
		}
		return strings.Replace(good, old, changed, 1)
	}
	for name, text := range map[string]string{
		"empty":            "",
		"not json":         good[:len(good)-1],
		"blank":            good + " ",
		"order":            change(`{"body":{"a":1},`, `{`)[:len(good)-len(`"body":{"a":1},`)-1] + `,"body":{"a":1}}`,
		"unknown member":   change(`"v":1}`, `"v":1,"w":1}`),
		"missing member":   change(`"session_prev":null,`, ``),
		"null headers":     change(`{"A":["3"],"a":["1","2"]}`, `null`),
		"null redactions":  change(`"redactions":[]`, `"redactions":null`),
		"case":             change(`"kind"`, `"Kind"`),
		"version":          change(`"v":1}`, `"v":2}`),
		"time":             change(`06:42:00.000000000Z`, `06:42:00Z`),
		"time zone":        change(`06:42:00.000000000Z`, `06:42:00.000000000+00:00`),
		"big sequence":     change(`"seq":1`, `"seq":9007199254740993`),
		"string sequence":  change(`"seq":1`, `"seq":"1"`),
		"duplicate member": change(`"v":1}`, `"v":1,"v":1}`),
		"empty reason":     change(`"redactions"`, `"reason":"","redactions"`),
	} {
		if _, err := evidence.ParseRecord([]byte(text)); !errors.Is(err, evidence.ErrRecord) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzParseRecord(f *testing.F) {
	x := evidencetest.New(f)
	x.Session()
	for _, b := range x.Built {
		f.Add(b.Canonical)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		rec, err := evidence.ParseRecord(text)
		if err != nil {
			return
		}
		if again, err := rec.Canonical(); err != nil || !bytes.Equal(again, text) {
			t.Errorf("accepted %q, writes %q (%v)", text, again, err)
		}
		if !json.Valid(text) {
			t.Error("accepted what is not JSON")
		}
	})
}
