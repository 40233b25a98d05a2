package cloudevents_test

import (
	"context"
	"errors"
	"testing"

	"github.com/cloudevents/sdk-go/v2/binding"
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

// An SDK event goes through our writer and our reader.
func TestSDKRoundTrip(t *testing.T) {
	tests := []struct {
		name string
		ctx  context.Context
		mode cloudevents.Mode
	}{
		{"default", t.Context(), cloudevents.ModeBinary},
		{"binary", binding.WithForceBinary(t.Context()), cloudevents.ModeBinary},
		{"structured", binding.WithForceStructured(t.Context()), cloudevents.ModeStructured},
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
		})
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
