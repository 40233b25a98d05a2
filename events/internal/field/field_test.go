package field

import (
	"testing"
	"time"

	"github.com/countersign-dev/countersign/events/strictjson"
)

func open(t *testing.T, doc string, first **Error) Object {
	t.Helper()
	v, err := strictjson.ReadObject([]byte(doc), strictjson.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	return Root(v, first)
}

// Every reader takes one JSON type and names the member if it has another.
func TestWrongTypes(t *testing.T) {
	readers := map[string]struct {
		read func(Object)
		want string
		ok   map[string]bool // JSON values it takes
	}{
		"Text":      {func(o Object) { o.Text("k") }, WantString, map[string]bool{`"x"`: true}},
		"TextPtr":   {func(o Object) { o.TextPtr("k") }, WantString, map[string]bool{`"x"`: true}},
		"Bool":      {func(o Object) { o.Bool("k") }, WantBool, map[string]bool{`true`: true}},
		"Int":       {func(o Object) { o.Int("k") }, WantInteger, map[string]bool{`1`: true}},
		"Number":    {func(o Object) { o.Number("k") }, WantNumber, map[string]bool{`1`: true, `1.5`: true}},
		"Map":       {func(o Object) { o.Map("k") }, WantObject, map[string]bool{`{}`: true}},
		"Child":     {func(o Object) { o.Child("k") }, WantObject, map[string]bool{`{}`: true}},
		"Texts":     {func(o Object) { o.Texts("k") }, WantStrings, map[string]bool{`[]`: true}},
		"Objects":   {func(o Object) { o.Objects("k") }, WantObjects, map[string]bool{`[]`: true}},
		"MapOfMaps": {func(o Object) { o.MapOfMaps("k") }, WantObject, map[string]bool{`{}`: true}},
	}
	for name, r := range readers {
		for _, value := range []string{`"x"`, `true`, `1`, `1.5`, `{}`, `[]`, `null`} {
			var first *Error
			r.read(open(t, `{"k":`+value+`}`, &first))
			switch {
			case r.ok[value] && first != nil:
				t.Errorf("%s refuses %s: %v", name, value, first)
			case !r.ok[value] && (first == nil || first.Path != "/k" || first.Want != r.want):
				t.Errorf("%s of %s: %v, want /k, %s", name, value, first, r.want)
			}
		}
		var first *Error
		if r.read(open(t, `{}`, &first)); first != nil {
			t.Errorf("%s of an absent member: %v", name, first)
		}
	}
}

func TestPaths(t *testing.T) {
	var first *Error
	o := open(t, `{"a/b":{"c~":[{"d":[1]}]}}`, &first)
	child, _ := o.Child("a/b")
	for _, el := range child.Objects("c~") {
		el.Texts("d")
	}
	if first == nil || first.Path != "/a~1b/c~0/0/d/0" {
		t.Errorf("%v", first)
	}
	o.Text("a/b")
	if first.Path != "/a~1b/c~0/0/d/0" {
		t.Errorf("a later error took the first one's place: %v", first)
	}
}

func TestIntegers(t *testing.T) {
	for lit, want := range map[string]int64{"0": 0, "-0": 0, "1.0": 1, "1e2": 100, "-9007199254740992": -1 << 53, "9.007199254740992e15": 1 << 53} {
		var first *Error
		if got := open(t, `{"k":`+lit+`}`, &first).Int("k"); got == nil || *got != want || first != nil {
			t.Errorf("%s: %v, %v", lit, got, first)
		}
	}
	for _, lit := range []string{"0.5", "-1.25", "5e-324"} {
		var first *Error
		if got := open(t, `{"k":`+lit+`}`, &first).Int("k"); got != nil || first == nil {
			t.Errorf("%s: %v, %v", lit, got, first)
		}
	}
}

func TestInstant(t *testing.T) {
	want := time.Date(2026, 11, 20, 6, 41, 50, 120_000_000, time.UTC)
	for _, text := range []string{"2026-11-20T06:41:50.12Z", "2026-11-20t07:41:50.120000+01:00", "2026-11-20T06:41:50.12z"} {
		if got := Instant(text); !got.Equal(want) {
			t.Errorf("%s: %s", text, got)
		}
	}
	for _, text := range []string{"", "yesterday", "2026-11-20T06:41:50", "2026-11-20T06:41:50,12Z", "2026-11-20 06:41:50Z", "2026-11-20T6:41:50Z", "2026-02-30T06:41:50Z"} {
		if got := Instant(text); !got.IsZero() {
			t.Errorf("%s: %s", text, got)
		}
	}
}

func TestKind(t *testing.T) {
	o := open(t, `{"s":"x","n":1,"t":true,"f":false,"o":{},"a":[],"z":null}`, nil)
	for key, want := range map[string]string{"s": KindString, "n": KindNumber, "t": KindBool, "f": KindBool, "o": KindObject, "a": KindArray, "z": KindNull, "absent": ""} {
		if got := o.Kind(key); got != want {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
}
