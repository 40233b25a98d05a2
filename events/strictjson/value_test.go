package strictjson

import (
	"encoding/json"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

func parseValue(t *testing.T, text string) Value {
	t.Helper()
	v, err := Read([]byte(text), DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

const nestedText = `{"a/b":[{"c~":"x"},[1,"y"]],"s":"t\n","z":null}`

func TestPathIn(t *testing.T) {
	root := parseValue(t, nestedText)
	paths := map[string]bool{}
	var walk func(Value)
	walk = func(v Value) {
		paths[v.PathIn(root)] = true
		for c := range v.All() {
			walk(c)
		}
	}
	walk(root)
	want := map[string]bool{"": true, "/a~1b": true, "/a~1b/0": true, "/a~1b/0/c~0": true, "/a~1b/1": true, "/a~1b/1/0": true, "/a~1b/1/1": true, "/s": true, "/z": true}
	if !reflect.DeepEqual(paths, want) {
		t.Errorf("%v", paths)
	}
	for _, v := range []Value{{}, FromTree("x")} {
		if path := v.PathIn(root); path != "" {
			t.Errorf("%s of another value", path)
		}
	}
}

// TestPathInCopiesNoOtherNames counts what the search for a path allocates: a long name beside the value must not be
// copied for each value below it.
func TestPathInCopiesNoOtherNames(t *testing.T) {
	name := strings.Repeat("n", 64<<10-1)
	root := parseValue(t, `{"`+name+`":[`+strings.Repeat("1,", 1024)+`1],"a":{"b":2}}`)
	v := root.Get("a").Get("b")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	path := v.PathIn(root)
	runtime.ReadMemStats(&after)
	if path != "/a/b" {
		t.Error(path)
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<20 {
		t.Errorf("a document of 66 KiB makes %d MiB of garbage", grown>>20)
	}
}

func TestWithText(t *testing.T) {
	v := parseValue(t, `{"id":"A","metadata":{"id":"B","web":{"id":"C"}}}`)
	for want, keys := range map[string][]string{
		`{"id":"n\n","metadata":{"id":"B","web":{"id":"C"}}}`: {"id"},
		`{"id":"A","metadata":{"id":"B","web":{"id":"n\n"}}}`: {"metadata", "web", "id"},
		`{"id":"A","metadata":{"id":"B","web":{"id":"C"}}}`:   {"metadata", "web"},
	} {
		if got := string(v.WithText("n\n", keys...).AppendCanonical(nil)); got != want {
			t.Errorf("%v: %s", keys, got)
		}
	}
	if v.Get("id").Text() != "A" {
		t.Error("the object was changed")
	}
}

// TestReplace: values at any depth get other values, with any number of values of their own, or go.
func TestReplace(t *testing.T) {
	v := parseValue(t, `{"b":{"x":[1,{"y":2}],"w":"\n"},"é\n":3,"c":[4],"a":null}`)
	inner := v.Get("b")
	for _, tt := range []struct {
		want string
		list []Replacement
	}{
		{`{"a":null,"b":{"w":"\n","x":[1,{"y":2}]},"c":[4],"é\n":3}`, nil},
		{`{"a":null,"b":{"w":"q\"","x":"short"},"c":[4],"é\n":{"n":[5,6]}}`, []Replacement{{Member: inner.Get("x"), Tree: "short"}, {Member: inner.Get("w"), Tree: `q"`},
			{Member: v.Get("é\n"), Tree: map[string]any{"n": []any{json.Number("5"), json.Number("6")}}}}},
		{`{"b":{"w":"\n"},"c":[4],"é\n":3}`, []Replacement{{Member: inner.Get("x"), Drop: true}, {Member: v.Get("a"), Drop: true}}},
		{`{"a":{},"b":null,"é\n":3}`, []Replacement{{Member: inner}, {Member: v.Get("c"), Drop: true}, {Member: v.Get("a"), Tree: map[string]any{}}}},
	} {
		got := v.Replace(tt.list)
		if text := string(got.AppendCanonical(nil)); text != tt.want {
			t.Errorf("%s, want %s", text, tt.want)
		}
		if want := parseValue(t, tt.want); !reflect.DeepEqual(got.Tree(), want.Tree()) || got.Len() != want.Len() || got.Get("b").Len() != want.Get("b").Len() {
			t.Errorf("%s reads differently", tt.want)
		}
	}
	if text := string(v.AppendCanonical(nil)); text != `{"a":null,"b":{"w":"\n","x":[1,{"y":2}]},"c":[4],"é\n":3}` {
		t.Errorf("the value was changed: %s", text)
	}
}

func TestMemberText(t *testing.T) {
	v := FromTree(map[string]any{"s": "x", "n": nil, "o": map[string]any{}})
	if v.MemberText("s") != "x" || v.MemberText("n") != "" || v.MemberText("o") != "" || v.MemberText("none") != "" {
		t.Error("a text is read of what is none")
	}
	if n := parseValue(t, `{"n":12}`); n.MemberText("n") != "" || n.Get("n").Text() != "12" {
		t.Error("a number is no text")
	}
	if (Value{}).MemberText("s") != "" || (Value{}).Text() != "" || (Value{}).ObjectTree() != nil || FromTree("x").ObjectTree() != nil {
		t.Error("something is read of no value")
	}
}
