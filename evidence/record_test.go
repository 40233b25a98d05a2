package evidence

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/gowebpki/jcs"

	"github.com/countersign-dev/countersign/events/strictjson"
)

func TestCanonicalAgreesWithOthers(t *testing.T) {
	for _, text := range []string{
		`null`, `true`, `-0`, `0.50`, `1e3`, `1E-7`, `123456789.125`, `9007199254740992`, `-1`, `[]`, `{}`, `[1,"a",null,{"b":[false]}]`,
		`"\u0000\u001f\u007f\u0080\u2028<>&\/\"\\\b\f\n\r\t€😀"`, `{"€":1,"\r":2,"דּ":3,"1":4,"😀":5,"\u0080":6,"ö":7,"":8}`,
		plainEvent, secretEvent,
	} {
		tree, err := strictjson.Parse([]byte(text), strictjson.DefaultLimits)
		must(t, err)
		got, err := appendCanonical(nil, tree)
		must(t, err)
		want, err := strictjson.CanonicalBytes([]byte(text))
		must(t, err)
		if !bytes.Equal(got, want) {
			t.Errorf("%s: %s, strictjson says %s", text, got, want)
		}
		if strings.ContainsAny(text[:1], "[{") { // the oracle takes objects and arrays only
			oracle, err := jcs.Transform([]byte(text))
			must(t, err)
			if !bytes.Equal(got, oracle) {
				t.Errorf("%s: %s, jcs says %s", text, got, oracle)
			}
		}
	}
	if _, err := appendCanonical(nil, struct{}{}); err == nil {
		t.Error("a struct passed")
	}
}

func TestRecordTextIsCanonicalAndParses(t *testing.T) {
	f := newFixture(t)
	f.session()
	for _, b := range f.built {
		oracle, err := jcs.Transform(b.Canonical)
		must(t, err)
		if !bytes.Equal(oracle, b.Canonical) {
			t.Errorf("%d: not RFC 8785:\n%s\n%s", b.Record.Seq, b.Canonical, oracle)
		}
		rec, err := ParseRecord(b.Canonical)
		must(t, err)
		again, err := rec.Canonical()
		must(t, err)
		if !bytes.Equal(again, b.Canonical) {
			t.Errorf("%d: changed by parsing", b.Record.Seq)
		}
	}
}

func TestParseRecordRefuses(t *testing.T) {
	f := newFixture(t)
	good := string(f.log("gov.events.acme.r.aaep.s.x", map[string][]string{"a": {"1", "2"}, "A": {"3"}}, []byte(`{"a":1}`)).Canonical)
	if _, err := ParseRecord([]byte(good)); err != nil {
		t.Fatalf("headers that differ in case: %v", err)
	}
	change := func(old, new string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("%s has no %s", good, old)
		}
		return strings.Replace(good, old, new, 1)
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
		if _, err := ParseRecord([]byte(text)); !errors.Is(err, ErrRecord) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzParseRecord(f *testing.F) {
	x := newFixture(f)
	x.session()
	for _, b := range x.built {
		f.Add(b.Canonical)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		rec, err := ParseRecord(text)
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
