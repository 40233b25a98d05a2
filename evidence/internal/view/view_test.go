package view_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/evidencetest"
	"github.com/countersign-dev/countersign/evidence/internal/view"
)

// agree checks that what ScanRecord finds is what ParseRecord finds.
func agree(t *testing.T, raw []byte) (scanned bool) {
	t.Helper()
	v, ok := view.ScanRecord(raw)
	if !ok {
		return false
	}
	rec, err := evidence.ParseRecord(raw)
	if err != nil {
		t.Fatalf("scanned, but: %v\n%s", err, raw)
	}
	prev := "null"
	if v.Prev != nil {
		prev = string(v.Prev)
	}
	index := "null"
	if v.Indexed {
		index = fmt.Sprint(v.Index)
	}
	for name, pair := range map[string][2]string{
		"body": {string(v.Body), string(rec.Body)}, "shard": {string(v.Shard), rec.Shard}, "tenant": {string(v.Tenant), rec.Tenant},
		"session": {string(v.Session), rec.Session}, "subject": {string(v.Subject), rec.Subject}, "kind": {string(v.Kind), rec.Kind},
		"digest": {string(v.BodyDigest), rec.BodyDigest}, "reason": {string(v.Reason), rec.Reason}, "seq": {fmt.Sprint(v.Seq), fmt.Sprint(rec.Seq)},
		"index": {index, orNull(rec.SessionIndex)}, "prev": {prev, orNull(rec.SessionPrev)},
		"time":      {v.BrokerTime.UTC().String(), rec.BrokerTime.Time.String()},
		"signature": {string(v.Signature), view.HeaderValue(rec.Headers, events.HeaderSignature)}, "id": {string(v.DecisionID), view.HeaderValue(rec.Headers, events.HeaderDecisionID)},
		"redactions": {fmt.Sprint(v.Redactions), fmt.Sprint(rec.Redactions)}, "headless": {fmt.Sprint(v.NoHeaders), fmt.Sprint(len(rec.Headers) == 0)},
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

// Every record of the sample session is scanned.
func TestScanRecordTakesWhatBuildersWrite(t *testing.T) {
	f := evidencetest.New(t)
	f.Session()
	for _, b := range f.Built {
		if !agree(t, b.Canonical) {
			t.Errorf("%d is left to ParseRecord:\n%s", b.Record.Seq, b.Canonical)
		}
	}
}

// The view of a decoded record is the one that the scanner finds.
func TestOfRecordIsWhatTheScannerFinds(t *testing.T) {
	f := evidencetest.New(t)
	f.Session()
	indexed, first := 0, 0
	for _, b := range f.Built {
		scanned, ok := view.ScanRecord(b.Canonical)
		if !ok {
			continue
		}
		rec, err := evidence.ParseRecord(b.Canonical)
		if err != nil {
			t.Fatal(err)
		}
		decoded := view.OfRecord(rec)
		if scanned.Indexed {
			if indexed++; scanned.Prev == nil {
				first++
			}
		}
		if got, want := fmt.Sprintf("%q", fields(decoded)), fmt.Sprintf("%q", fields(scanned)); got != want {
			t.Errorf("%d: decoded\n%s\nscanned\n%s", rec.Seq, got, want)
		}
	}
	if indexed < 2 || first == 0 || first == indexed {
		t.Errorf("%d records of sessions, %d of them the first: the test needs both", indexed, first)
	}
}

// fields are the members of a view that do not tell nil from empty.
func fields(v view.Record) []string {
	return []string{string(v.Body), string(v.Shard), string(v.Tenant), string(v.Session), string(v.Subject), string(v.Kind), string(v.BodyDigest), string(v.Reason),
		string(v.Signature), string(v.DecisionID), string(v.Prev), fmt.Sprint(v.Seq, v.Indexed, v.Index, v.NoHeaders, v.BrokerTime, v.Redactions)}
}

// What the scanner accepts is canonical, and it accepts the common forms.
func TestScannerValues(t *testing.T) {
	for _, text := range evidencetest.SampleTexts {
		whole := `[` + text + `]` // numbers need something behind them
		got := utf8.ValidString(text) && view.ScansValue([]byte(whole))
		form, err := strictjson.CanonicalBytes([]byte(whole))
		want := err == nil && string(form) == whole
		if got && !want {
			t.Errorf("%q is accepted, and is not canonical", text)
		}
		long := strings.ContainsAny(text, "eEדּ") || strings.HasPrefix(text, `{"\n"`) || len(text) > 150 || strings.HasPrefix(text, "9007") || strings.HasPrefix(text, "1000000")
		if want && !got && !long {
			t.Errorf("%q is left to ParseRecord", text)
		}
	}
}

func FuzzScanRecord(f *testing.F) {
	fx := evidencetest.New(f)
	fx.Session()
	for _, b := range fx.Built {
		f.Add(b.Canonical, -1, byte(0))
	}
	for _, text := range evidencetest.SampleTexts {
		f.Add(bytes.Replace(fx.Built[9].Canonical, fx.Built[9].Record.Body, []byte(text), 1), 3, byte('0'))
	}
	f.Add(bytes.Replace(fx.Built[9].Canonical, []byte(`"redactions":[]`), []byte(`"redactions":[{"action":"mask","commitment":"x","detector":"y","path":"/body","policy":"z"}]`), 1), 0, byte(0))
	f.Add(bytes.Replace(fx.Built[9].Canonical, []byte(`"redactions":[]`), []byte(`"redactions":[{"action":"","commitment":"x","detector":"y","path":"/body","policy":""}]`), 1), 0, byte(0))
	f.Add(bytes.Replace(fx.Built[9].Canonical, []byte(`,"redactions"`), []byte(`,"reason":"","redactions"`), 1), 0, byte(0))
	f.Fuzz(func(t *testing.T, text []byte, at int, with byte) {
		agree(t, text)
		if at >= 0 && at < len(text) {
			changed := bytes.Clone(text)
			changed[at] = with
			agree(t, changed)
		}
	})
}

func BenchmarkScanRecord(b *testing.B) {
	f := evidencetest.New(b)
	one := f.Log(evidencetest.EventSubject, nil, evidencetest.Sized(evidencetest.PlainEvent, evidencetest.CleanText, 600))
	b.Run("scan", func(b *testing.B) {
		b.SetBytes(int64(len(one.Canonical)))
		b.ReportAllocs()
		for b.Loop() {
			if _, ok := view.ScanRecord(one.Canonical); !ok {
				b.Fatal(hex.EncodeToString(one.Hash[:]))
			}
		}
	})
	b.Run("parse", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := evidence.ParseRecord(one.Canonical); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("hash", func(b *testing.B) {
		for b.Loop() {
			evidence.HashRecord(one.Canonical)
		}
	})
}
