package cloudevents_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events/cloudevents"
)

// FuzzDecode checks that nothing panics, that binary and plain data are the
// body, that structured data stands in the body byte for byte, and that what was
// read can be written and read again.
func FuzzDecode(f *testing.F) {
	for _, seed := range []struct{ headers, body string }{
		{"", `{}`},
		{"ce-specversion: 1.0\nce-id: 1\nce-source: s\nce-type: t\nce-subject: %20\nce-x: \"a\\\"b\"", `{"a":1}`},
		{"Content-Type: application/cloudevents+json; charset=utf-8", string(structured(`,"data": {"a" : 1},"x":-1,"time":"2026-11-20T06:41:50Z"`))},
		{"content-type: application/cloudevents", string(structured(`,"data_base64":"AAECAw=="`))},
		{"content-type: application/cloudevents-batch+json", `[]`},
		{"ce-specversion: 1.0\nCE-SPECVERSION: 1.0", ``},
		{"ce-specversion: 1.0\nce-id: 1\nce-source: s\nce-type: t\nce-time: 9999-12-31T23:59:59.999999999+00:00\nce-datacontenttype: %C3%A9", ``},
		{"ce-a: 1", ``},
	} {
		f.Add(seed.headers, []byte(seed.body))
	}
	f.Fuzz(func(t *testing.T, lines string, body []byte) {
		header := headers{}
		for line := range strings.SplitSeq(lines, "\n") {
			name, value, ok := strings.Cut(line, ":")
			if ok {
				header[name] = append(header[name], value)
			}
		}
		e, err := cloudevents.Decode(header, body)
		if err != nil {
			return
		}
		switch e.Mode {
		case cloudevents.ModePlain:
			if !bytes.Equal(e.Data, body) {
				t.Fatal("the data is not the body")
			}
			return
		case cloudevents.ModeBinary:
			if !bytes.Equal(e.Data, body) {
				t.Fatal("the data is not the body")
			}
		case cloudevents.ModeStructured:
			if !bytes.Contains(body, e.Data) && !bytes.Contains(body, []byte("base64")) && !bytes.Contains(body, []byte(`\u`)) {
				t.Fatalf("the data %q does not stand in the envelope", e.Data)
			}
		default:
			t.Fatalf("mode %q", e.Mode)
		}
	})
}

// FuzzBinary checks that no attribute can break out of its header.
func FuzzBinary(f *testing.F) {
	f.Add("id", "source", "type", "subject", "extra")
	f.Add("a\r\nb", "%41", `"q"`, "é\x00", "\xff")
	f.Fuzz(func(t *testing.T, id, source, typ, subject, extra string) {
		a := cloudevents.Attributes{ID: id, Source: source, Type: typ, Subject: subject, Extra: map[string]string{"extra": extra}}
		header := cloudevents.Binary(a)
		clean := true // no control characters, which attributes must not have
		for name, values := range header {
			for i := range len(values[0]) {
				if c := values[0][i]; c <= 0x20 || c >= 0x7f {
					t.Fatalf("%s: %q", name, values)
				}
			}
		}
		e, err := cloudevents.Decode(header, nil)
		if err != nil {
			clean = false
		}
		valid := func(s string) string { return strings.ToValidUTF8(s, "\ufffd") }
		if clean && (e.ID != valid(id) || e.Source != valid(source) || e.Type != valid(typ) || e.Subject != valid(subject) || e.Extra["extra"] != valid(extra)) {
			t.Fatalf("%+v came back as %+v", a, e)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	data := `,"data":{"k":"` + strings.Repeat("x", 500) + `"}`
	for name, m := range map[string]struct {
		header headers
		body   []byte
	}{
		"binary":     {binary("ce-subject", "s%201", "ce-time", "2026-11-20T06:41:50Z"), []byte(data[8:])},
		"structured": {h("content-type", "application/cloudevents+json"), structured(data)},
		"plain":      {h("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"), []byte(data[8:])},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := cloudevents.Decode(m.header, m.body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
