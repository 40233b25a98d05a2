package strictjson

import (
	"reflect"
	"testing"
	"unsafe"
)

func parseValue(t *testing.T, d *Document, text string) Value {
	t.Helper()
	v, err := d.Parse([]byte(text), DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

const nestedText = `{"a/b":[{"c~":"x"},[1,"y"]],"s":"t\n","z":null}`

// A clone outlives its document and shares no text with it.
func TestClone(t *testing.T) {
	var d Document
	v := parseValue(t, &d, nestedText)
	text, clone, want := d.text, v.Clone(), v.Tree()
	first, last := uintptr(unsafe.Pointer(unsafe.StringData(text))), len(text)
	for i := range clone.nodes {
		for _, s := range []string{clone.nodes[i].key, clone.nodes[i].text} {
			if at := uintptr(unsafe.Pointer(unsafe.StringData(s))); s != "" && at >= first && at < first+uintptr(last) {
				t.Errorf("%q is a part of the document", s)
			}
		}
	}
	parseValue(t, &d, `[7,7,7,7,7,7,7,7,7,7]`)
	if got := clone.Tree(); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if (Value{}).Clone().Exists() {
		t.Error("the clone of no value exists")
	}
}

// ReadObject gives a value that the next document does not change.
func TestReadObject(t *testing.T) {
	first, err := ReadObject([]byte(nestedText), DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		if v, err := ReadObject([]byte(`[1]`), DefaultLimits); err == nil || v.Exists() {
			t.Fatal("an array is no object")
		}
		if _, err := ReadObject([]byte(`{"a":{"b":{"c":1}}}`), DefaultLimits); err != nil {
			t.Fatal(err)
		}
	}
	if got := string(first.AppendCanonical(nil)); got != nestedText {
		t.Error(got)
	}
}

func TestPathIn(t *testing.T) {
	var d Document
	root := parseValue(t, &d, nestedText)
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

func TestWithText(t *testing.T) {
	var d Document
	v := parseValue(t, &d, `{"id":"A","metadata":{"id":"B","web":{"id":"C"}}}`)
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

func TestMemberText(t *testing.T) {
	v := FromTree(map[string]any{"s": "x", "n": nil, "o": map[string]any{}})
	if v.MemberText("s") != "x" || v.MemberText("n") != "" || v.MemberText("o") != "" || v.MemberText("none") != "" {
		t.Error("a text is read of what is none")
	}
	var d Document
	if n := parseValue(t, &d, `{"n":12}`); n.MemberText("n") != "" || n.Get("n").OwnText() != "12" {
		t.Error("a number is no text")
	}
	if (Value{}).MemberText("s") != "" || (Value{}).OwnText() != "" || (Value{}).ObjectTree() != nil || FromTree("x").ObjectTree() != nil {
		t.Error("something is read of no value")
	}
}
