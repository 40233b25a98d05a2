package cloudevents_test

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/binding/spec"
	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/events/cloudevents"
)

func sdkEvent(t *testing.T) event.Event {
	t.Helper()
	e := event.New()
	e.SetID("id 1")
	e.SetSource("/runtime/a")
	e.SetType("com.example.call")
	e.SetSubject(`100% "sure"`)
	e.SetTime(instant)
	e.SetDataSchema("https://example.test/schema")
	e.SetExtension("tenant", "acme 😀")
	e.SetExtension("n", 7)
	e.SetExtension("flag", true)
	if err := e.SetData("application/json", []byte(`{ "b":1.0, "a":2 }`)); err != nil {
		t.Fatal(err)
	}
	return e
}

func want(t *testing.T, mode cloudevents.Mode, data string) cloudevents.Event {
	t.Helper()
	return cloudevents.Event{Mode: mode, Data: []byte(data), Attributes: cloudevents.Attributes{
		ID: "id 1", Source: "/runtime/a", Type: "com.example.call", Subject: `100% "sure"`, Time: instant,
		DataContentType: "application/json", DataSchema: "https://example.test/schema",
		Extra: map[string]string{"tenant": "acme 😀", "n": "7", "flag": "true"},
	}}
}

// An SDK event goes through our writer, our reader and back into the SDK.
func TestSDKRoundTrip(t *testing.T) {
	tests := []struct {
		name string
		ctx  context.Context
		mode cloudevents.Mode
		enc  binding.Encoding
	}{
		{"default", t.Context(), cloudevents.ModeBinary, binding.EncodingBinary},
		{"binary", binding.WithForceBinary(t.Context()), cloudevents.ModeBinary, binding.EncodingBinary},
		{"structured", binding.WithForceStructured(t.Context()), cloudevents.ModeStructured, binding.EncodingStructured},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := sdkEvent(t)
			header, body, err := cloudevents.Write(tt.ctx, binding.ToMessage(&e))
			if err != nil {
				t.Fatal(err)
			}
			got, err := cloudevents.Decode(header, body)
			if err != nil {
				t.Fatal(err)
			}
			const data = `{ "b":1.0, "a":2 }`
			if d := cmp.Diff(want(t, tt.mode, data), got); d != "" {
				t.Error(d)
			}
			m, err := cloudevents.NewMessage(header, body)
			if err != nil {
				t.Fatal(err)
			}
			if m.ReadEncoding() != tt.enc {
				t.Errorf("encoding %s", m.ReadEncoding())
			}
			for range 2 { // messages can be read again
				back, err := binding.ToEvent(t.Context(), m)
				if err != nil {
					t.Fatal(err)
				}
				if err := back.Validate(); err != nil {
					t.Error(err)
				}
				if back.ID() != "id 1" || back.Source() != "/runtime/a" || back.Subject() != `100% "sure"` || !back.Time().Equal(instant) ||
					back.Extensions()["tenant"] != "acme 😀" || string(back.Data()) != data {
					t.Errorf("back in the SDK: %s", back)
				}
			}
			if err := m.Finish(nil); err != nil {
				t.Error(err)
			}
		})
	}
}

// What our own headers say, the SDK understands.
func TestSDKReadsOurRecords(t *testing.T) {
	a := cloudevents.Attributes{ID: "1", Source: "s", Type: "t", Subject: "sub é", Time: instant, Extra: map[string]string{"tenant": "acme"}}
	m, err := cloudevents.NewMessage(cloudevents.Binary(a), []byte(`{"x":1}`))
	if err != nil {
		t.Fatal(err)
	}
	e, err := binding.ToEvent(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	if e.ID() != "1" || e.Subject() != "sub é" || e.DataContentType() != "application/json" || e.Extensions()["tenant"] != "acme" || string(e.Data()) != `{"x":1}` {
		t.Error(e)
	}
	if a, v := m.GetAttribute(spec.Subject); a == nil || v != "sub é" {
		t.Errorf("subject %v, %v", a, v)
	}
	if a, v := m.GetAttribute(spec.DataSchema); a == nil || v != nil {
		t.Errorf("data schema %v, %v", a, v)
	}
	if m.GetExtension("tenant") != "acme" || m.GetExtension("other") != nil {
		t.Error("extensions are wrong")
	}
}

// Messages pass through us unchanged in either mode.
func TestForwarding(t *testing.T) {
	for _, ctx := range []context.Context{binding.WithForceBinary(t.Context()), binding.WithForceStructured(t.Context())} {
		e := sdkEvent(t)
		e.SetTime(instant.Add(3456789)) // nine digits, in which both sides write times alike
		header, body, err := cloudevents.Write(ctx, binding.ToMessage(&e))
		if err != nil {
			t.Fatal(err)
		}
		m, err := cloudevents.NewMessage(header, body)
		if err != nil {
			t.Fatal(err)
		}
		header2, body2, err := cloudevents.Write(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(header, header2); d != "" || !bytes.Equal(body, body2) {
			t.Errorf("forwarded headers differ: %s\n%s", d, body2)
		}
	}
}

func TestPlainIsNoSDKMessage(t *testing.T) {
	m, err := cloudevents.NewMessage(nil, []byte(`{}`))
	if err != nil || m.ReadEncoding() != binding.EncodingUnknown {
		t.Fatalf("%v, %v", m, err)
	}
	if _, err := binding.ToEvent(t.Context(), m); !errors.Is(err, binding.ErrUnknownEncoding) {
		t.Errorf("%v", err)
	}
	if _, _, err := cloudevents.Write(t.Context(), m); err == nil {
		t.Error("a plain message was written")
	}
	if _, err := cloudevents.NewMessage(h("ce-specversion", "9"), nil); !errors.Is(err, cloudevents.ErrSpecVersion) {
		t.Errorf("%v", err)
	}
}

func TestWriteRefuses(t *testing.T) {
	old := event.New("0.3")
	old.SetID("1")
	old.SetSource("s")
	old.SetType("t")
	if _, _, err := cloudevents.Write(t.Context(), binding.ToMessage(&old)); !errors.Is(err, cloudevents.ErrSpecVersion) {
		t.Errorf("version 0.3: %v", err)
	}
	incomplete := event.New()
	incomplete.SetID("1")
	if _, _, err := cloudevents.Write(t.Context(), binding.ToMessage(&incomplete)); !errors.Is(err, cloudevents.ErrMissing) {
		t.Errorf("no source: %v", err)
	}
	evil := sdkEvent(t)
	evil.SetDataContentType("text/plain\r\nce-id: forged")
	if header, _, err := cloudevents.Write(t.Context(), binding.ToMessage(&evil)); err == nil {
		t.Errorf("a header with a line break was written: %q", header)
	}
}

// An event whose data is another event is one in binary mode all the same: only
// content-type says that a message is structured.
func TestWriteEventInEvent(t *testing.T) {
	outer := sdkEvent(t)
	outer.SetDataContentType(cloudevents.ContentTypeStructured)
	header, body, err := cloudevents.Write(t.Context(), binding.ToMessage(&outer))
	if err != nil {
		t.Fatal(err)
	}
	if e, err := cloudevents.Decode(header, body); err != nil || e.Mode != cloudevents.ModeBinary || e.DataContentType != cloudevents.ContentTypeStructured {
		t.Errorf("%+v, %v", e, err)
	}
}
