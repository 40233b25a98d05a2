package canonical

import (
	"bytes"
	"testing"

	"github.com/countersign-dev/countersign/events"
)

type shaped struct {
	Text    string      `json:"text"`
	Trusted string      `json:"trusted"`
	Yes     bool        `json:"yes"`
	Int     int         `json:"int"`
	Count   uint64      `json:"count"`
	List    []string    `json:"list"`
	Inner   *inner      `json:"inner"`
	At      events.Time `json:"at"`
}

type inner struct {
	A string `json:"a"`
}

// A value of a shape is consumed whole if it is in the one form that a canonical writer gives it, with
// clean texts and no member that the type does not have.
func TestScanShape(t *testing.T) {
	shape := ShapeFor[shaped](map[string]bool{"trusted": true})
	for text, want := range map[string]bool{
		`{}`: true, `{"text":"x"}`: true, `{"text":"dirty"}`: false, `{"trusted":"dirty"}`: true, `{"text":"\n"}`: false, `{"text":1}`: false,
		`{"yes":true}`: true, `{"yes":false}`: true, `{"yes":null}`: false, `{"int":-5}`: true, `{"int":5}`: true, `{"int":-0}`: false, `{"int":05}`: false, `{"int":1.5}`: false, `{"int":"1"}`: false,
		`{"count":7}`: true, `{"count":-7}`: false, `{"list":[]}`: true, `{"list":["a","b"]}`: true, `{"list":["dirty"]}`: false, `{"list":[1]}`: false, `{"list":["a",]}`: false, `{"list":null}`: false,
		`{"inner":null}`: true, `{"inner":{"a":"x"}}`: true, `{"inner":{"b":"x"}}`: false, `{"inner":[]}`: false, `{"other":1}`: false,
		`{"at":"2026-11-20T06:41:50.123456789Z"}`: true, `{"at":"2026-11-20T06:41:50Z"}`: false, `{"at":""}`: true, `{"at":5}`: false,
		`{"count":1,"text":"x"}`: true, `{"text":"x","count":1}`: false, `{"text":"x" }`: false, `[]`: false, ``: false,
	} {
		s := Scanner{Text: []byte(text), IsTextClean: func(b []byte) bool { return !bytes.Equal(b, []byte("dirty")) }}
		if got := s.ScanShape(shape) && s.AtEnd(); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
	type embedded struct{ inner }
	if s := (Scanner{Text: []byte(`{}`)}); s.ScanShape(ShapeFor[embedded](nil)) {
		t.Error("a type that encoding/json flattens is scanned")
	}
}

func TestScanMembers(t *testing.T) {
	scan := func(text string) (value []byte, ok bool) {
		s := Scanner{Text: []byte(text)}
		ok = s.ScanOptionalMember(`,"a":`, &value) && s.AtEnd()
		return value, ok
	}
	for text, want := range map[string]string{``: "", `,"a":"x"`: "x"} {
		if got, ok := scan(text); !ok || string(got) != want {
			t.Errorf("%q: %q %v", text, got, ok)
		}
	}
	for _, text := range []string{`,"a":""`, `,"a":1`, `,"a":"\n"`, `,"b":"x"`} {
		if got, ok := scan(text); ok {
			t.Errorf("%q: %q", text, got)
		}
	}
	var n uint64
	for text, want := range map[string]bool{"0": true, "12": true, "012": false, "": false, "x": false, "99999999999999999999": false} {
		s := Scanner{Text: []byte(text)}
		if got := s.ScanCount(&n) && s.AtEnd(); got != want {
			t.Errorf("count %q: %v", text, got)
		}
	}
}

func TestFirstDifference(t *testing.T) {
	for pair, want := range map[[2]string]int{{"", ""}: 0, {"a", "a"}: 1, {"ab", "ac"}: 1, {"a", "ab"}: 1, {"x", "y"}: 0} {
		if got := FirstDifference([]byte(pair[0]), []byte(pair[1])); got != want {
			t.Errorf("%q: %d", pair, got)
		}
	}
}
