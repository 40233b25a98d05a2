package schematest

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Mutator makes wrong, and sometimes still right, documents of a document, in
// the places and with the values that a set of schemas speaks of: each member
// dropped, each value replaced by every value of interest, every known and one
// unknown member added, arrays shortened, doubled and filled.
//
// All of it is some millions of documents and takes many minutes. By default
// every member is dropped and an even share of the rest is visited, another
// share for each document; COUNTERSIGN_EXHAUSTIVE=1 visits everything.
type Mutator struct {
	keys   []string
	values []any
	share  int // one in so many is visited
	turn   *int
}

const usualShare = 997

// NewMutator learns property names, enumerated values, lengths and bounds from
// schema texts.
func NewMutator(schemas ...any) Mutator {
	keys, values := map[string]bool{"x_extra": true}, map[string]any{}
	add := func(v any) { b, _ := json.Marshal(v); values[string(b)] = v }
	for _, v := range PlainValues() {
		add(v)
	}
	for _, s := range schemas {
		learn(s, keys, add)
	}
	m := Mutator{keys: slices.Sorted(maps.Keys(keys)), share: usualShare, turn: new(int)}
	if os.Getenv("COUNTERSIGN_EXHAUSTIVE") != "" {
		m.share = 1
	}
	for _, k := range slices.Sorted(maps.Keys(values)) {
		m.values = append(m.values, values[k])
	}
	return m
}

// Within returns a mutator that visits at least one in share of what m would visit one in
// another share of.
func (m Mutator) Within(share int) Mutator {
	m.share = min(m.share, share)
	return m
}

// Replacing returns a mutator that puts each of values in the place of every value of a document,
// and visits everything.
func Replacing(values ...any) Mutator {
	return Mutator{values: values, share: 1, turn: new(int)}
}

// PlainValues are the values of interest for every schema.
func PlainValues() []any {
	vs := []any{nil, true, false, "", " ", "x", []any{}, []any{"x"}, []any{"x", "x"}, []any{json.Number("1"), json.Number("1.0")},
		map[string]any{}, map[string]any{"x": "y"}, map[string]any{"x": map[string]any{}}}
	for _, n := range []string{"0", "-0", "-1", "1", "1.0", "1e0", "1.5", "0.5", "1e-3", "9007199254740991"} {
		vs = append(vs, json.Number(n))
	}
	for _, s := range []string{"evt_a", "evt_", "evt_a\n", "EVT_a", "sess_a", "call_a", "call_a-b", "rpl_a", "sub_a", "out_a", "é", "a.b", "A.b", "Ab", "ab", "A_B",
		"en", "en-GB", "en_GB", "Latn", "latn", "1.0.0", "1.0", "1.0.0-draft", "text/plain", "a/", "urn:a:b", "https://a.example/b", "a b", "%",
		"2026-11-20T10:00:00Z", "2026-11-20T10:00:00.1+01:00", "2026-11-20t10:00:00z", "2026-11-20T23:59:60Z", "2026-11-20T24:00:00Z", "2026-11-31T10:00:00Z",
		"2026-11-20 10:00:00Z", "2026-11-20T10:00:00", "2026-11-20", SignedTime, "2026-11-20T10:00:00.123456789Z",
		"0d9f8b7a-1c2d-4e3f-8a9b-0c1d2e3f4a5b", "0D9F8B7A-1C2D-4E3F-8A9B-0C1D2E3F4A5B", "urn:uuid:0d9f8b7a-1c2d-4e3f-8a9b-0c1d2e3f4a5b",
		"sha256:" + strings.Repeat("aB", 32), "sha256:" + strings.Repeat("a", 63), "a.b.c", "a..c", "2026-1-1"} {
		vs = append(vs, s)
	}
	return vs
}

// SignedTime is what the library takes for a time and we do not.
const SignedTime = "2026-11-20T+1:-0:+3Z"

func learn(schema any, keys map[string]bool, add func(any)) {
	switch s := schema.(type) {
	case []any:
		for _, v := range s {
			learn(v, keys, add)
		}
	case map[string]any:
		for k, v := range s {
			learnKeyword(k, v, keys, add)
			learn(v, keys, add)
		}
	}
}

func learnKeyword(keyword string, v any, keys map[string]bool, add func(any)) {
	switch keyword {
	case "properties":
		if m, ok := v.(map[string]any); ok {
			for name := range m {
				keys[name] = true
			}
		}
	case "enum":
		if list, ok := v.([]any); ok {
			for _, item := range list {
				add(item)
			}
		}
	case "const":
		add(v)
	case "minLength", "maxLength", "minimum", "maximum":
		n, ok := v.(json.Number)
		if !ok {
			return
		}
		i, err := strconv.Atoi(string(n))
		if err != nil {
			return
		}
		for _, near := range []int{i - 1, i, i + 1} {
			add(json.Number(strconv.Itoa(near)))
			if strings.HasSuffix(keyword, "Length") && near >= 0 {
				add(strings.Repeat("é", near))
			}
		}
	}
}

// Each shows doc as it is and after every single mutation. doc is changed in
// place and put back; what names the mutation.
func (m Mutator) Each(doc any, visit func(what func() string)) {
	visit(func() string { return "as it is" })
	m.inside("", doc, visit)
}

func (m Mutator) inside(at string, v any, visit func(func() string)) {
	switch v := v.(type) {
	case map[string]any:
		m.object(at, v, visit)
	case []any:
		m.array(at, v, visit)
	}
}

func (m Mutator) object(at string, o map[string]any, visit func(func() string)) {
	present := slices.Sorted(maps.Keys(o))
	for _, key := range present {
		old := o[key]
		delete(o, key)
		visit(func() string { return "without " + at + "/" + key })
		m.put(at+"/"+key, func(v any) { o[key] = v }, old, visit)
		o[key] = old
		m.inside(at+"/"+key, old, visit)
	}
	for _, key := range m.keys {
		if _, there := o[key]; there {
			continue
		}
		m.put(at+"/"+key, func(v any) { o[key] = v }, nil, visit)
		delete(o, key)
	}
}

// put tries every value of interest in one place, and arrays made of old.
func (m Mutator) put(at string, set func(any), old any, visit func(func() string)) {
	try := func(v any) {
		if *m.turn++; *m.turn%m.share != 0 {
			return
		}
		set(v)
		visit(func() string { b, _ := json.Marshal(v); return at + " = " + string(b) })
	}
	for _, v := range m.values {
		try(v)
	}
	list, ok := old.([]any)
	if !ok || len(list) == 0 {
		return
	}
	try(list[:len(list)-1])
	try(slices.Concat(list, list))
	for _, n := range []int{16, 17, 32, 33, 64, 65, 256, 257} {
		filled := make([]any, n)
		for i := range filled {
			filled[i] = "a-" + strconv.Itoa(i)
		}
		try(filled)
	}
}

func (m Mutator) array(at string, list []any, visit func(func() string)) {
	for i, old := range list {
		here := at + "/" + strconv.Itoa(i)
		m.put(here, func(v any) { list[i] = v }, old, visit)
		list[i] = old
		m.inside(here, old, visit)
	}
}
