package evidence

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// sampleTexts are JSON values in canonical form and next to it.
var sampleTexts = []string{
	`null`, `true`, `false`, `0`, `-0`, `-1`, `00`, `01`, `-01`, `1.0`, `0.5`, `-0.25`, `1e3`, `1E3`, `1e-7`, `1e-6`, `0.000001`, `0.0000001`, `123456789012345`, `9007199254740992`,
	`9007199254740993`, `100000000000000000000`, `1e21`, `0.1`, `0.10`, `.5`, `5.`, `+1`, `0.30000000000000004`, `1.7976931348623157e+308`,
	`""`, `"a"`, `"\n"`, `"\u000a"`, `"\u0001"`, `"\u001f"`, `"\u001F"`, `"\u0041"`, `"\/"`, `"/"`, `"\""`, `"\\"`, `"é"`, `"\u00e9"`, `"😀"`, `"\ud83d\ude00"`, "\"\x7f\"", "\"\x01\"",
	"\"\xff\"", `"abcdefgh\"ijklmnop"`, `"abcdefg"`, `"abcdefgh"`, `"abcdefghi\`, `"unended`, `"\u2028"`, "\"\u2028\"", `"\x"`, `"\u00"`,
	`[]`, `[ ]`, `[1]`, `[1,2]`, `[1,]`, `[,1]`, `[1 ,2]`, `{}`, `{ }`, `{"a":1}`, `{"a":1,"b":2}`, `{"b":1,"a":2}`, `{"a":1,"a":2}`, `{"a":1,}`, `{"a" :1}`, `{"A":1,"a":2}`, `{"":1}`,
	`{"é":1,"z":2}`, `{"z":1,"é":2}`, `{"\n":1}`, `{"😀":1,"דּ":2}`, `{"דּ":1,"😀":2}`, `{"a":[{"b":[null,{"c":"d"}]}]}`, strings.Repeat("[", 90) + strings.Repeat("]", 90), `nul`, `truex`, ``,
}

// What the scanner takes is canonical, and what it ought to know it takes.
func TestScannerValues(t *testing.T) {
	for _, text := range sampleTexts {
		whole := `[` + text + `]` // numbers need something behind them
		s := &canonicalScanner{Text: []byte(whole)}
		got := utf8.ValidString(text) && s.value(0) && s.pos == len(whole)
		canonical, err := strictjson.CanonicalBytes([]byte(whole))
		want := err == nil && string(canonical) == whole
		if got && !want {
			t.Errorf("%q is taken, and is not canonical", text)
		}
		long := strings.ContainsAny(text, "eEדּ") || strings.HasPrefix(text, `{"\n"`) || len(text) > 150 || strings.HasPrefix(text, "9007") || strings.HasPrefix(text, "1000000")
		if want && !got && !long {
			t.Errorf("%q is left to the long way", text)
		}
	}
}

func TestFixedTime(t *testing.T) {
	from := time.Date(1969, 12, 30, 0, 0, 0, 0, time.UTC).Unix()
	to := time.Date(2405, 1, 2, 0, 0, 0, 0, time.UTC).Unix()
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		at := time.Unix(from+rng.Int64N(to-from), rng.Int64N(1e9)).UTC()
		sec, ns, ok := fixedTime([]byte(events.At(at).String()))
		if ok != (at.Year() >= 1970) || ok && (sec != at.Unix() || ns != int64(at.Nanosecond())) {
			t.Fatalf("%s: %d.%d %v", at, sec, ns, ok)
		}
	}
	for _, bad := range []string{"", "2026-02-29T00:00:00.000000000Z", "2026-13-01T00:00:00.000000000Z", "2026-00-01T00:00:00.000000000Z", "2026-01-00T00:00:00.000000000Z",
		"2026-01-32T00:00:00.000000000Z", "2026-04-31T00:00:00.000000000Z", "2026-01-01T24:00:00.000000000Z", "2026-01-01T00:60:00.000000000Z", "2026-01-01T00:00:60.000000000Z",
		"2026-01-01t00:00:00.000000000Z", "2026-01-01T00:00:00.00000000Z", "2026-01-01T00:00:00,000000000Z", "2100-02-29T00:00:00.000000000Z"} {
		if _, _, ok := fixedTime([]byte(bad)); ok {
			t.Errorf("%q is a time", bad)
		}
	}
}

// agree checks that what scanRecord finds is what ParseRecord finds.
func agree(t *testing.T, raw []byte) (scanned bool) {
	t.Helper()
	v, ok := scanRecord(raw)
	if !ok {
		return false
	}
	rec, err := ParseRecord(raw)
	if err != nil {
		t.Fatalf("scanned, but: %v\n%s", err, raw)
	}
	prev := "null"
	if v.prev != nil {
		prev = string(v.prev)
	}
	index := "null"
	if v.indexed {
		index = fmt.Sprint(v.index)
	}
	for name, pair := range map[string][2]string{
		"body": {string(v.body), string(rec.Body)}, "shard": {string(v.shard), rec.Shard}, "tenant": {string(v.tenant), rec.Tenant},
		"session": {string(v.session), rec.Session}, "subject": {string(v.subject), rec.Subject}, "kind": {string(v.kind), rec.Kind},
		"digest": {string(v.bodyDigest), rec.BodyDigest}, "reason": {string(v.reason), rec.Reason}, "seq": {fmt.Sprint(v.seq), fmt.Sprint(rec.Seq)},
		"index": {index, orNull(rec.SessionIndex)}, "prev": {prev, orNull(rec.SessionPrev)},
		"time":      {time.Unix(v.brokerSeconds, v.brokerNanos).UTC().String(), rec.BrokerTime.Time.String()},
		"signature": {string(v.signature), headerValue(rec.Headers, events.HeaderSignature)}, "id": {string(v.decisionID), headerValue(rec.Headers, events.HeaderDecisionID)},
		"redactions": {fmt.Sprint(v.redactions), fmt.Sprint(rec.Redactions)}, "headless": {fmt.Sprint(v.noHeaders), fmt.Sprint(len(rec.Headers) == 0)},
	} {
		if pair[0] != pair[1] {
			t.Fatalf("%s: scanned %q, parsed %q\n%s", name, pair[0], pair[1], raw)
		}
	}
	return true
}

func orNull[T any](p *T) string {
	if p == nil {
		return "null"
	}
	return fmt.Sprint(*p)
}

// Every record of the sample session goes the short way, but for those with
// escapes where they are rare.
func TestScanRecordTakesWhatBuildersWrite(t *testing.T) {
	f := newFixture(t)
	f.session()
	for _, b := range f.built {
		if !agree(t, b.Canonical) {
			t.Errorf("%d goes the long way:\n%s", b.Record.Seq, b.Canonical)
		}
	}
	for _, d := range f.built {
		if d.Record.Kind == KindDecision {
			if _, ok := scanDecision(d.Record.Body); !ok {
				t.Errorf("%d: the decision goes the long way:\n%s", d.Record.Seq, d.Record.Body)
			}
		}
	}
}

func FuzzScanRecord(f *testing.F) {
	fx := newFixture(f)
	fx.session()
	for _, b := range fx.built {
		f.Add(b.Canonical, -1, byte(0))
	}
	for _, text := range sampleTexts {
		f.Add(bytes.Replace(fx.built[9].Canonical, fx.built[9].Record.Body, []byte(text), 1), 3, byte('0'))
	}
	f.Add(bytes.Replace(fx.built[9].Canonical, []byte(`"redactions":[]`), []byte(`"redactions":[{"action":"mask","commitment":"x","detector":"y","path":"/body","policy":"z"}]`), 1), 0, byte(0))
	f.Add(bytes.Replace(fx.built[9].Canonical, []byte(`"redactions":[]`), []byte(`"redactions":[{"action":"","commitment":"x","detector":"y","path":"/body","policy":""}]`), 1), 0, byte(0))
	f.Add(bytes.Replace(fx.built[9].Canonical, []byte(`,"redactions"`), []byte(`,"reason":"","redactions"`), 1), 0, byte(0))
	f.Fuzz(func(t *testing.T, text []byte, at int, with byte) {
		agree(t, text)
		if at >= 0 && at < len(text) {
			changed := bytes.Clone(text)
			changed[at] = with
			agree(t, changed)
		}
	})
}

func FuzzScanDecision(f *testing.F) {
	fx := newFixture(f)
	fx.session()
	for _, b := range fx.built {
		if b.Record.Kind == KindDecision {
			f.Add([]byte(b.Record.Body))
		}
	}
	f.Add(fx.encode(events.Decision{DecisionID: "a", Occurrence: -3, Policy: &events.PolicyRef{Name: "x", Revision: 7}, Mandate: &events.MandateRef{}, Approval: &events.ApprovalRef{RequestedAt: events.At(testStart)},
		Reasons: []events.Reason{{Evaluator: "e", WouldVerdict: "deny"}}, Counts: []events.Count{{Key: "k", WindowMS: 1, Amount: -1, Total: -1}},
		Inputs: &events.DecisionInputs{Strict: true, Confirmation: &events.ConfirmationInput{Explicit: true}, Mandate: &events.MandateInput{Reserved: -5}}}))
	for _, bad := range []string{`{"verdict":1}`, `{"verdict":null}`, `{"reasons":null}`, `{"policy":null}`, `{"Verdict":"allow"}`, `{"occurrence":-0}`, `{"occurrence":1.5}`, `{"decided_at":"x"}`, `{"decided_at":""}`, `[]`, `{"policy":{"revision":-1}}`} {
		f.Add([]byte(bad))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		canonical, err := strictjson.CanonicalBytes(body)
		if err != nil || !bytes.Equal(canonical, body) {
			return
		}
		d, ok := scanDecision(body)
		if !ok {
			return
		}
		full, err := events.DecodeRecord[events.Decision](body)
		if err != nil {
			t.Fatalf("scanned, but: %v\n%s", err, body)
		}
		for name, pair := range map[string][2]string{"id": {string(d.id), full.DecisionID}, "tenant": {string(d.tenant), full.Tenant}, "session": {string(d.session), full.Session},
			"verdict": {string(d.verdict), string(full.Verdict)}, "request": {string(d.requestDigest), full.RequestDigest}, "receipt": {string(d.receiptHash), full.ReceiptHash}} {
			if pair[0] != pair[1] {
				t.Fatalf("%s: scanned %q, decoded %q", name, pair[0], pair[1])
			}
		}
	})
}

func BenchmarkScanRecord(b *testing.B) {
	f := newFixture(b)
	one := f.log(eventSubject, nil, sized(plainEvent, cleanText, 600))
	b.Run("scan", func(b *testing.B) {
		b.SetBytes(int64(len(one.Canonical)))
		b.ReportAllocs()
		for b.Loop() {
			if _, ok := scanRecord(one.Canonical); !ok {
				b.Fatal(hex.EncodeToString(one.Hash[:]))
			}
		}
	})
	b.Run("parse", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := ParseRecord(one.Canonical); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("hash", func(b *testing.B) {
		for b.Loop() {
			HashRecord(one.Canonical)
		}
	})
}

// Following a pointer through the text finds what following it through the tree
// does.
func TestLocateIsResolve(t *testing.T) {
	doc := []byte(`{"a":{"":1,"b/c":["x",null,{"d":"\"q\"\n"}],"~":"y","é":"z"},"n":null,"s":"","x":[[],{}]}`)
	var tree any
	must(t, json.Unmarshal(doc, &tree))
	for _, pointer := range []string{"", "/", "a", "/a", "/a/", "/a/b~1c", "/a/b~1c/0", "/a/b~1c/1", "/a/b~1c/2/d", "/a/b~1c/3", "/a/b~1c/-1", "/a/b~1c/00", "/a/~0", "/a/é", "/n", "/n/x", "/s", "/s/x",
		"/x/0", "/x/0/0", "/x/1/a", "/zz", "/a/zz"} {
		want, wantLast, wantOK := resolvePointer(tree, pointer)
		got, last, ok := locatePointer(doc, pointer)
		switch want.(type) {
		case string, nil:
		default:
			want = false
		}
		if !ok {
			got = want
		}
		if ok != wantOK || ok && (last != wantLast || got != want) {
			t.Errorf("%q: %v %q %v, want %v %q %v", pointer, got, last, ok, want, wantLast, wantOK)
		}
	}
}
