package strictjson

import (
	"encoding/json"
	"testing"
)

// Both ways of writing a tree agree, also on what only one of them can write.
func FuzzCanonical(f *testing.F) {
	for _, s := range []string{
		`{}`, `[]`, `null`, `{"b":[1,-1,0,true,false,null,"x"],"a":{"z":1,"y":{}}}`, `-0`, `0.0`, `1e3`, `123456789012345`, `1234567890123456`,
		`[0.5,-0.25,120.50,0.000001,0.0000001,12.000000000000001,-0.0,1.5,0.30,99999999999999.5]`,
		`{"é":1,"z":2,"\ud83d\ude00":3,"\ue000":4}`, `"\u0000\u001f\b\t\n\f\r\"\\\/<&>\u2028é😀\ufffd"`, `{"\u0000":1,"":2}`, `[[[]],[{}]]`, `-12`, `"\u007f"`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		v, err := Parse(raw, DefaultLimits)
		if err != nil {
			return
		}
		want, wantErr := canonicalAny(v)
		got, err := Canonical(v)
		if string(got) != string(want) || (err == nil) != (wantErr == nil) {
			t.Fatalf("%q\ngot  %q, %v\nwant %q, %v", raw, got, err, want, wantErr)
		}
	})
}

// What Parse never makes is written the long way, or refused by it.
func TestCanonicalOfOtherValues(t *testing.T) {
	for _, c := range []struct {
		in   any
		want string
	}{
		{map[string]any(nil), `null`}, {[]any(nil), `null`}, {map[string]any{"a": 1.5, "b": []string{"x"}}, `{"a":1.5,"b":["x"]}`},
		{"a\xffb", "\"a\uFFFDb\""}, {json.Number("1.0"), `1`}, {[]any{json.Number("-0")}, `[0]`}, {json.Number("007"), ``}, {json.Number(""), `0`},
	} {
		got, err := Canonical(c.in)
		if string(got) != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%#v: %q, %v; want %q", c.in, got, err, c.want)
		}
	}
}
