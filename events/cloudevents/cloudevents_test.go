package cloudevents_test

import (
	"bytes"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/cloudevents"
)

var instant = time.Date(2026, 11, 20, 6, 41, 50, 120_000_000, time.UTC)

type headers = map[string][]string

// h makes headers out of name, value, name, value …
func h(pairs ...string) headers {
	m := headers{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = append(m[pairs[i]], pairs[i+1])
	}
	return m
}

func TestBinaryGolden(t *testing.T) {
	a := cloudevents.Attributes{
		ID: "01939c1e-0000-7000-8000-000000000001", Source: "countersign/admitter", Type: events.TypeDecision,
		Subject: "sess é 100%", Time: instant, Extra: map[string]string{"tenant": "a\r\nce-id: forged", "empty": ""},
	}
	want := h(
		"ce-specversion", "1.0", "ce-id", "01939c1e-0000-7000-8000-000000000001", "ce-source", "countersign/admitter",
		"ce-type", "dev.countersign.decision.v1", "ce-subject", "sess%20%C3%A9%20100%25", "ce-time", "2026-11-20T06:41:50.120000000Z",
		"ce-tenant", "a%0D%0Ace-id:%20forged", "ce-datacontenttype", "application/json",
	)
	got := cloudevents.Binary(a)
	if d := cmp.Diff(want, got); d != "" {
		t.Fatal(d)
	}
	for range 20 {
		if d := cmp.Diff(got, cloudevents.Binary(a)); d != "" {
			t.Fatal(d)
		}
	}
	// On the wire, in the order in which NATS clients write headers.
	var wire bytes.Buffer
	if err := http.Header(got).Write(&wire); err != nil {
		t.Fatal(err)
	}
	const lines = "ce-datacontenttype: application/json\r\nce-id: 01939c1e-0000-7000-8000-000000000001\r\nce-source: countersign/admitter\r\n" +
		"ce-specversion: 1.0\r\nce-subject: sess%20%C3%A9%20100%25\r\nce-tenant: a%0D%0Ace-id:%20forged\r\n" +
		"ce-time: 2026-11-20T06:41:50.120000000Z\r\nce-type: dev.countersign.decision.v1\r\n"
	if wire.String() != lines {
		t.Errorf("on the wire:\n%s", wire.String())
	}
}

func TestBinaryRoundTrip(t *testing.T) {
	body := []byte(`{"a":1}`)
	for _, a := range []cloudevents.Attributes{
		{ID: "1", Source: "s", Type: "t"},
		{ID: "i d", Source: "/s", Type: "t", Subject: `"quoted" \ %41`, Time: instant, DataContentType: "text/plain; charset=utf-8",
			DataSchema: "https://x/y", Extra: map[string]string{"x1": "😀", "traceparent": "00-ab-cd-01"}},
	} {
		got, err := cloudevents.Decode(cloudevents.Binary(a), body)
		if err != nil {
			t.Fatal(err)
		}
		if a.DataContentType == "" {
			a.DataContentType = "application/json"
		}
		if d := cmp.Diff(cloudevents.Event{Mode: cloudevents.ModeBinary, Attributes: a, Data: body}, got); d != "" {
			t.Error(d)
		}
	}
}

// The type of the data is an attribute like any other: content-type would say that
// the event is structured.
func TestBinaryDataContentType(t *testing.T) {
	header := cloudevents.Binary(cloudevents.Attributes{ID: "1", Source: "s", Type: "t", DataContentType: "application/cloudevents+json\r\nce-id: forged"})
	if len(header) != 5 || header["ce-datacontenttype"][0] != "application/cloudevents+json%0D%0Ace-id:%20forged" {
		t.Errorf("%q", header)
	}
}

func TestBinaryRefusesBadNames(t *testing.T) {
	for _, name := range []string{"", "Tenant", "a-b", "a b", "a\r\nb", "é", "id", "specversion", "data", "datacontenttype"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%q was taken for an extension name", name)
				}
			}()
			cloudevents.Binary(cloudevents.Attributes{ID: "1", Source: "s", Type: "t", Extra: map[string]string{name: "v"}})
		}()
	}
}
