package events

import (
	"encoding/json"
	"math"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// hostile are strings in which the two ways of encoding could differ.
var hostile = []string{"", "a", `"\/`, "\x00\x1f\b\t\n\f\r\x7f", "<&>\u2028\u2029", "é😀\uFFFD", "\xff\xfe", "a\xc3", "\xed\xa0\x80", "\U0010FFFF"}

// fill gives every field of a value something drawn.
func fill(t *rapid.T, v reflect.Value) {
	if v.Type() == timeType {
		if rapid.Bool().Draw(t, "has time") {
			v.Set(reflect.ValueOf(At(time.Unix(rapid.Int64Range(-1e9, 4e9).Draw(t, "s"), rapid.Int64Range(0, 1e9-1).Draw(t, "ns")))))
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fill(t, v.Field(i))
			}
		}
	case reflect.Pointer:
		if rapid.Bool().Draw(t, "there") {
			v.Set(reflect.New(v.Type().Elem()))
			fill(t, v.Elem())
		}
	case reflect.Slice:
		n := rapid.IntRange(-1, 3).Draw(t, "length")
		if n >= 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
		}
		for i := range max(n, 0) {
			fill(t, v.Index(i))
		}
	case reflect.String:
		v.SetString(rapid.OneOf(rapid.SampledFrom(hostile), rapid.String()).Draw(t, "text"))
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, "bool"))
	case reflect.Int, reflect.Int64:
		v.SetInt(rapid.OneOf(rapid.Int64Range(-3, 3), rapid.SampledFrom([]int64{maxExact, -maxExact, maxExact + 1, math.MaxInt64})).Draw(t, "int"))
	case reflect.Uint64:
		v.SetUint(rapid.OneOf(rapid.Uint64Range(0, 3), rapid.SampledFrom([]uint64{maxExact, maxExact + 1, math.MaxUint64})).Draw(t, "uint"))
	}
}

// Every record has the same bytes whichever way it is encoded.
func TestEncodeAgreesWithEncodingJSON(t *testing.T) {
	for _, record := range []any{
		Decision{}, Call{}, Finding{}, Approval{}, Tick{}, Cursor{}, PolicyChange{}, KeyRecord{}, Reason{}, MandateRef{}, &Decision{}, []Reason{}, hostile[0],
	} {
		typ := reflect.TypeOf(record)
		t.Run(typ.String(), func(t *testing.T) {
			if writerOf(typ) == nil {
				t.Errorf("%v is encoded the slow way", typ)
			}
			rapid.Check(t, func(t *rapid.T) {
				v := reflect.New(typ).Elem()
				fill(t, v)
				want, wantErr := encodeAny(v.Interface())
				got, err := Encode(v.Interface())
				if string(got) != string(want) || (err == nil) != (wantErr == nil) {
					t.Fatalf("%s, %v\nwant %s, %v", got, err, want, wantErr)
				}
			})
		})
	}
}

// Types that the direct way does not know are encoded nonetheless.
func TestEncodeFallsBack(t *testing.T) {
	type odd struct {
		B json.RawMessage `json:"b"`
		A map[string]any  `json:"a"`
	}
	for _, c := range []struct {
		in   any
		want string
	}{
		{odd{B: json.RawMessage(`{"z": 1.0, "y":2}`), A: map[string]any{"x": 1}}, `{"a":{"x":1},"b":{"y":2,"z":1}}`},
		{map[string]any{"b": 1, "a": []byte("x")}, `{"a":"eA==","b":1}`},
		{struct{ A int }{1}, `{"A":1}`},
		{struct {
			A []byte `json:"a"`
		}{[]byte("x")}, `{"a":"eA=="}`},
		{1.5, `1.5`}, {nil, `null`},
	} {
		if got, err := Encode(c.in); err != nil || string(got) != c.want {
			t.Errorf("%#v: %s, %v; want %s", c.in, got, err, c.want)
		}
	}
	if _, err := Encode(func() {}); err == nil {
		t.Error("a function was encoded")
	}
}

func BenchmarkEncode(b *testing.B) {
	d := Decision{DecisionID: "0198c5f2-7d3a-7c11-9b57-000000000001", Tenant: "acme", Protocol: "agenthook", Source: "acme-runtime", Agent: "agent-1",
		Session: "session-1", ToolCallID: "call_1", Occurrence: 1, Tool: "send_email", Action: "create", RequestDigest: "hmac-sha256:00", Verdict: Allow,
		NativeVerdict: "allow", Reasons: []Reason{{Evaluator: "tool_policy", Code: "internal_recipient", Policy: "mail/internal"}},
		Policy: &PolicyRef{Name: "mail", Revision: 7, Digest: "sha256:00"}, ReceivedAt: At(time.Unix(1, 2)), DecidedAt: At(time.Unix(1, 3)), ExpiresAt: At(time.Unix(61, 3))}
	for name, encode := range map[string]func(any) ([]byte, error){"direct": Encode, "encoding-json": encodeAny} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := encode(d); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
