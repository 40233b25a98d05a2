package cloudevents_test

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/events/cloudevents"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// binary are the headers of the smallest binary message; more are added.
func binary(more ...string) headers {
	m := h("ce-specversion", "1.0", "ce-id", "1", "ce-source", "s", "ce-type", "t")
	maps.Copy(m, h(more...))
	return m
}

func structured(members string) []byte {
	return []byte(`{"specversion":"1.0","id":"1","source":"s","type":"t"` + members + `}`)
}

func TestDecodeModes(t *testing.T) {
	const data = `{ "b" : 1.0,` + "\n\t" + `"a" : "\u0041" }` // no byte of it may change
	minimal := cloudevents.Attributes{ID: "1", Source: "s", Type: "t"}
	with := func(change func(*cloudevents.Attributes)) cloudevents.Attributes {
		a := minimal
		change(&a)
		return a
	}
	tests := []struct {
		name   string
		header headers
		body   string
		want   cloudevents.Event
	}{
		{"plain", nil, data, cloudevents.Event{Mode: cloudevents.ModePlain, Data: []byte(data)}},
		{"plain with other headers", h("Content-Type", "application/json", "traceparent", "x", "traceparent", "y", "cex", "1"), data,
			cloudevents.Event{Mode: cloudevents.ModePlain, Data: []byte(data)}},
		{"plain, not JSON", nil, "\x00\xff", cloudevents.Event{Mode: cloudevents.ModePlain, Data: []byte("\x00\xff")}},

		{"binary", binary(), data, cloudevents.Event{Mode: cloudevents.ModeBinary, Attributes: minimal, Data: []byte(data)}},
		{"binary, other case", h("CE-SpecVersion", "1.0", "Ce-Id", "1", "cE-source", "s", "Ce-Type", "t", "Ce-TraceParent", "x"), data,
			cloudevents.Event{Mode: cloudevents.ModeBinary, Data: []byte(data),
				Attributes: with(func(a *cloudevents.Attributes) { a.Extra = map[string]string{"traceparent": "x"} })}},
		{"binary, everything", binary("ce-subject", "su", "ce-time", "2026-11-20T06:41:50.12Z", "ce-dataschema", "ds", "ce-datacontenttype", "a/b", "Content-Type", "c/d", "ce-x1", "v"), data,
			cloudevents.Event{Mode: cloudevents.ModeBinary, Data: []byte(data), Attributes: cloudevents.Attributes{ID: "1", Source: "s", Type: "t", Subject: "su",
				Time: instant, DataSchema: "ds", DataContentType: "a/b", Extra: map[string]string{"x1": "v"}}}},
		{"binary, type of the data as HTTP has it", binary("Content-Type", "application/json"), data,
			cloudevents.Event{Mode: cloudevents.ModeBinary, Data: []byte(data),
				Attributes: with(func(a *cloudevents.Attributes) { a.DataContentType = "application/json" })}},
		{"binary without data", binary(), "", cloudevents.Event{Mode: cloudevents.ModeBinary, Attributes: minimal, Data: []byte{}}},

		{"structured", h("content-type", "application/cloudevents+json"), string(structured(`, "data" : ` + data + ` ,"x1":true`)),
			cloudevents.Event{Mode: cloudevents.ModeStructured, Data: []byte(data),
				Attributes: with(func(a *cloudevents.Attributes) { a.Extra = map[string]string{"x1": "true"} })}},
		{"structured, as the NATS binding names it", h("Content-Type", "Application/CloudEvents ; charset=\"UTF-8\""), string(structured(`,"data":[1 , 2]`)),
			cloudevents.Event{Mode: cloudevents.ModeStructured, Attributes: minimal, Data: []byte("[1 , 2]")}},
		{"structured, everything", h("CONTENT-TYPE", "application/cloudevents+json;charset=utf-8"),
			string(structured(`,"subject":"\u00e9","time":"2026-11-20T07:41:50.12+01:00","dataschema":"ds","datacontenttype":"a/b","n":-7,"f":false,"s":"","nothing":null,"data":null`)),
			cloudevents.Event{Mode: cloudevents.ModeStructured, Data: []byte("null"), Attributes: cloudevents.Attributes{ID: "1", Source: "s", Type: "t", Subject: "é",
				Time: instant, DataSchema: "ds", DataContentType: "a/b", Extra: map[string]string{"n": "-7", "f": "false", "s": ""}}}},
		{"structured, base64", h("content-type", "application/cloudevents+json"), string(structured(`,"data_base64":"eyJhIjoxfQ=="`)),
			cloudevents.Event{Mode: cloudevents.ModeStructured, Attributes: minimal, Data: []byte(`{"a":1}`)}},
		{"structured without data", h("content-type", "application/cloudevents+json"), string(structured(``)),
			cloudevents.Event{Mode: cloudevents.ModeStructured, Attributes: minimal}},
		{"structured, data that another reader must judge", h("content-type", "application/cloudevents+json"), string(structured(`,"data":{"a":1,"A":9007199254740993}`)),
			cloudevents.Event{Mode: cloudevents.ModeStructured, Attributes: minimal, Data: []byte(`{"a":1,"A":9007199254740993}`)}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := cloudevents.Decode(tt.header, []byte(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	ct := func(v string) headers { return h("content-type", v) }
	json := ct("application/cloudevents+json")
	tests := []struct {
		name   string
		header headers
		body   []byte
		want   error
	}{
		{"batch", ct("application/cloudevents-batch+json"), []byte(`[]`), cloudevents.ErrBatched},
		{"batch, other case", ct("Application/CloudEvents-Batch+JSON; charset=utf-8"), []byte(`[]`), cloudevents.ErrBatched},
		{"another format", ct("application/cloudevents+xml"), nil, cloudevents.ErrFormat},
		{"another charset", ct("application/cloudevents+json; charset=utf-16"), structured(""), cloudevents.ErrFormat},
		{"no format at all", ct("application/cloudeventsjson"), nil, cloudevents.ErrFormat},
		{"two modes in one", binary("content-type", "application/cloudevents+json"), structured(""), cloudevents.ErrAmbiguous},

		{"old version", binary("ce-specversion", "0.3"), nil, cloudevents.ErrSpecVersion},
		{"version from the future", binary("ce-specversion", "1.0.1"), nil, cloudevents.ErrSpecVersion},
		{"empty version", binary("ce-specversion", ""), nil, cloudevents.ErrSpecVersion},
		{"no version", h("ce-id", "1", "ce-source", "s", "ce-type", "t"), nil, cloudevents.ErrMissing},
		{"empty id", binary("ce-id", ""), nil, cloudevents.ErrMissing},
		{"no source", h("ce-specversion", "1.0", "ce-id", "1", "ce-type", "t"), nil, cloudevents.ErrMissing},
		{"no type", h("ce-specversion", "1.0", "ce-id", "1", "ce-source", "s"), nil, cloudevents.ErrMissing},

		{"header with two values", headers{"ce-specversion": {"1.0"}, "ce-id": {"1", "2"}, "ce-source": {"s"}, "ce-type": {"t"}}, nil, cloudevents.ErrDuplicate},
		{"header with the same value twice", headers{"ce-specversion": {"1.0", "1.0"}}, nil, cloudevents.ErrDuplicate},
		{"header without a value", binary0(), nil, cloudevents.ErrDuplicate},
		{"header in two cases", binary("Ce-Id", "1"), nil, cloudevents.ErrDuplicate},
		{"extension in two cases", binary("ce-x", "1", "CE-X", "2"), nil, cloudevents.ErrDuplicate},
		{"content-type in two cases", h("content-type", "application/json", "Content-Type", "application/cloudevents+json"), structured(""), cloudevents.ErrDuplicate},
		{"content-type twice", headers{"Content-Type": {"application/cloudevents+json", "application/json"}}, structured(""), cloudevents.ErrDuplicate},

		{"half an escape", binary("ce-subject", "a%2"), nil, cloudevents.ErrValue},
		{"no escape", binary("ce-subject", "100%"), nil, cloudevents.ErrValue},
		{"not hexadecimal", binary("ce-subject", "%zz"), nil, cloudevents.ErrValue},
		{"overlong space", binary("ce-subject", "%C0%A0"), nil, cloudevents.ErrValue},
		{"encoded surrogate", binary("ce-subject", "%ED%A0%80"), nil, cloudevents.ErrValue},
		{"line break", binary("ce-subject", "a%0d%0ab"), nil, cloudevents.ErrValue},
		{"NUL", binary("ce-subject", "%00"), nil, cloudevents.ErrValue},
		{"C1 control", binary("ce-subject", "%C2%85"), nil, cloudevents.ErrValue},
		{"noncharacter", binary("ce-subject", "%EF%BF%BF"), nil, cloudevents.ErrValue},
		{"raw byte", binary("ce-subject", "\xef"), nil, cloudevents.ErrValue},
		{"open quote", binary("ce-subject", `"abc`), nil, cloudevents.ErrValue},
		{"only a quote", binary("ce-subject", `"`), nil, cloudevents.ErrValue},
		{"quote inside", binary("ce-subject", `a"b`), nil, cloudevents.ErrValue},
		{"quote inside quotes", binary("ce-subject", `"a"b"`), nil, cloudevents.ErrValue},
		{"backslash at the end", binary("ce-subject", `"a\"`), nil, cloudevents.ErrValue},
		{"no time", binary("ce-time", "yesterday"), nil, cloudevents.ErrValue},
		{"attribute with a dash", binary("ce-a-b", "x"), nil, cloudevents.ErrName},
		{"attribute without a name", binary("ce-", "x"), nil, cloudevents.ErrName},
		{"attribute named data", binary("ce-data", "x"), nil, cloudevents.ErrName},
		{"attribute with a long s", binary("ce-ſource", "x"), nil, cloudevents.ErrName},

		{"envelope without version", json, []byte(`{"id":"1","source":"s","type":"t"}`), cloudevents.ErrSpecVersion},
		{"envelope with old version", json, []byte(`{"specversion":"0.3","id":"1","source":"s","type":"t"}`), cloudevents.ErrSpecVersion},
		{"version as number", json, []byte(`{"specversion":1.0,"id":"1","source":"s","type":"t"}`), cloudevents.ErrValue},
		{"envelope without id", json, []byte(`{"specversion":"1.0","source":"s","type":"t"}`), cloudevents.ErrMissing},
		{"id as number", json, []byte(`{"specversion":"1.0","id":1,"source":"s","type":"t"}`), cloudevents.ErrValue},
		{"id null", json, []byte(`{"specversion":"1.0","id":null,"source":"s","type":"t"}`), cloudevents.ErrMissing},
		{"time as number", json, structured(`,"time":1700000000`), cloudevents.ErrValue},
		{"line break in an attribute", json, structured(`,"subject":"a\nb"`), cloudevents.ErrValue},
		{"extension is an object", json, structured(`,"x":{}`), cloudevents.ErrValue},
		{"extension is a list", json, structured(`,"x":[]`), cloudevents.ErrValue},
		{"extension is a fraction", json, structured(`,"x":1.5`), cloudevents.ErrValue},
		{"extension beyond 32 bits", json, structured(`,"x":2147483648`), cloudevents.ErrValue},
		{"member in upper case", json, structured(`,"Data":{}`), cloudevents.ErrName},
		{"attribute in upper case", json, structured(`,"ID":"2"`), cloudevents.ErrName},
		{"member without a name", json, structured(`,"":1`), cloudevents.ErrName},
		{"two kinds of data", json, structured(`,"data":1,"data_base64":"MQ=="`), cloudevents.ErrAmbiguous},
		{"base64 of another alphabet", json, structured(`,"data_base64":"_w=="`), cloudevents.ErrValue},
		{"base64 without padding", json, structured(`,"data_base64":"MQ"`), cloudevents.ErrValue},
		{"base64 with spare bits", json, structured(`,"data_base64":"MR=="`), cloudevents.ErrValue},
		{"base64 with a line break", json, structured(`,"data_base64":"MQ=\n="`), cloudevents.ErrValue},
		{"base64 as number", json, structured(`,"data_base64":1`), cloudevents.ErrValue},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := cloudevents.Decode(tt.header, tt.body)
			if !errors.Is(err, tt.want) {
				t.Errorf("%+v, %v, want %v", got, err, tt.want)
			}
			if got.Data != nil || got.Mode != "" {
				t.Error("an event beside an error")
			}
		})
	}
}

func binary0() headers {
	m := binary()
	m["ce-subject"] = []string{}
	return m
}

func TestEnvelopeMustBeStrictJSON(t *testing.T) {
	tests := []struct {
		body string
		code strictjson.Code
	}{
		{``, strictjson.NotJSON}, {`[]`, strictjson.NotObject}, {`"x"`, strictjson.NotObject}, {`{`, strictjson.NotJSON},
		{string(structured("")) + "x", strictjson.TrailingData}, {string(structured("")) + "{}", strictjson.TrailingData},
		{string(structured(`,"id":"2"`)), strictjson.DuplicateKey}, {string(structured(`,"data":{"a":1,"a":2}`)), strictjson.DuplicateKey},
		{string(structured(`,"x":"\ud800"`)), strictjson.InvalidUTF8}, {string(structured(`,"data":tru`)), strictjson.NotJSON},
		{"\xef\xbb\xbf" + string(structured("")), strictjson.NotJSON},
	}
	for _, tt := range tests {
		_, err := cloudevents.Decode(h("content-type", "application/cloudevents+json"), []byte(tt.body))
		var e *strictjson.Error
		if !errors.As(err, &e) || e.Code != tt.code {
			t.Errorf("%q: %v, want %s", tt.body, err, tt.code)
		}
	}
}

func TestDecodeHeaderValues(t *testing.T) {
	for in, want := range map[string]string{
		"Euro%20%E2%82%AC%20%F0%9F%98%80": "Euro € 😀", // the binding's own example
		"%e2%82%ac":                       "€",
		"%41%42c":                         "ABc", // needlessly encoded
		"%2541":                           "%41", // decoded once
		`"Euro \"\\ x"`:                   `Euro "\ x`,
		`"%20"`:                           " ",
		`""`:                              "",
		"  trimmed\t":                     "trimmed",
		"not encoded é":                   "not encoded é",
	} {
		e, err := cloudevents.Decode(binary("ce-subject", in), nil)
		if err != nil || e.Subject != want {
			t.Errorf("%s: %q, %v, want %q", in, e.Subject, err, want)
		}
	}
}

// The same message always fails for the same reason, whatever order Go walks
// its maps in.
func TestErrorsAreDeterministic(t *testing.T) {
	header := binary("ce-a-b", "x", "ce-c-d", "y", "ce-time", "no", "ce-e", "%zz", "ce-f", "%zz", "Ce-G", "%")
	_, first := cloudevents.Decode(header, nil)
	body := structured(`,"x":{},"Y":1,"Z":2,"time":"no"`)
	_, firstStructured := cloudevents.Decode(h("content-type", "application/cloudevents+json"), body)
	for range 50 {
		if _, err := cloudevents.Decode(header, nil); err.Error() != first.Error() {
			t.Fatalf("%v, then %v", first, err)
		}
		if _, err := cloudevents.Decode(h("content-type", "application/cloudevents+json"), body); err.Error() != firstStructured.Error() {
			t.Fatalf("%v, then %v", firstStructured, err)
		}
	}
}

func TestErrorsQuoteNoValue(t *testing.T) {
	const secret = "hunter2"
	for _, header := range []headers{
		binary("ce-time", secret), binary("ce-subject", secret+"%zz"), binary("ce-specversion", secret),
		{"ce-id": {secret, secret}}, h("content-type", "application/cloudevents+"+secret), h("content-type", "application/cloudevents; charset="+secret),
	} {
		if _, err := cloudevents.Decode(header, nil); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%v: %v", header, err)
		}
	}
	for _, members := range []string{`,"time":"hunter2"`, `,"x":["hunter2"]`, `,"data_base64":"hunter2"`, `,"x":hunter2`, `,"id":"hunter2"`} {
		if _, err := cloudevents.Decode(h("content-type", "application/cloudevents+json"), structured(members)); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", members, err)
		}
	}
}

func TestStructuredDataIsNotShared(t *testing.T) {
	body := structured(`,"data":{"a":1}`)
	e, err := cloudevents.Decode(h("content-type", "application/cloudevents+json"), body)
	if err != nil {
		t.Fatal(err)
	}
	clear(body)
	if string(e.Data) != `{"a":1}` {
		t.Errorf("%q", e.Data)
	}
}
