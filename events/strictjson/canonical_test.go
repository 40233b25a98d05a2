package strictjson

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
	"unicode/utf16"
)

// The canonical form of a document, and that of its tree, is what the library makes of it.
func FuzzCanonical(f *testing.F) {
	for _, s := range []string{
		`{}`, `[]`, `null`, `{"b":[1,-1,0,true,false,null,"x"],"a":{"z":1,"y":{}}}`, `-0`, `0.0`, `1e3`, `123456789012345`, `1234567890123456`,
		`[0.5,-0.25,120.50,0.000001,0.0000001,12.000000000000001,-0.0,1.5,0.30,99999999999999.5]`,
		`{"é":1,"z":2,"\ud83d\ude00":3,"\ue000":4}`, `"\u0000\u001f\b\t\n\f\r\"\\\/<&>\u2028é😀\ufffd"`, `{"\u0000":1,"":2}`, `[[[]],[{}]]`, `-12`, `"\u007f"`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		v, err := Read(raw, DefaultLimits)
		if err != nil {
			return
		}
		want, err := CanonicalBytes(raw)
		if err != nil {
			t.Fatal(err)
		}
		if got := v.AppendCanonical(nil); !bytes.Equal(got, want) {
			t.Fatalf("%q\ngot  %q\nwant %q", raw, got, want)
		}
		if got, err := Canonical(v.Tree()); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%q\ngot  %q, %v of the tree\nwant %q", raw, got, err, want)
		}
	})
}

// What Parse never makes is written as json.Marshal does, or refused.
func TestCanonicalOfOtherValues(t *testing.T) {
	for _, c := range []struct {
		in   any
		want string
	}{
		{map[string]any(nil), `null`}, {[]any(nil), `null`}, {map[string]any{"a": 1.5, "b": []string{"x"}}, `{"a":1.5,"b":["x"]}`},
		{"a\xffb", "\"a\uFFFDb\""}, {json.Number("1.0"), `1`}, {[]any{json.Number("-0")}, `[0]`}, {json.Number("007"), ``}, {json.Number(""), `0`}, {map[string]any{"a\xff": []any{}}, "{\"a\uFFFD\":[]}"},
	} {
		got, err := Canonical(c.in)
		if string(got) != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%#v: %q, %v; want %q", c.in, got, err, c.want)
		}
	}
}

func TestCompareKeys(t *testing.T) {
	keys := []string{"", "a", "aa", "b", "é", "éa", "z", "\u07ff", "\ud7ff", "\ue000", "\ufb33", "\uffff", "\U00010000", "\U0001F600", "\U0001F600a", "\U0010FFFF", "a\ue000", "a\U00010000"}
	for _, a := range keys {
		for _, b := range keys {
			if got, want := CompareKeys(a, b), slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b))); got != want {
				t.Errorf("%q and %q: %d, want %d", a, b, got, want)
			}
		}
	}
}
