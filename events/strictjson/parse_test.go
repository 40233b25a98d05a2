package strictjson_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/events/strictjson"
)

func nested(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

func TestParseRefuses(t *testing.T) {
	tests := []struct {
		name, doc string
		code      strictjson.Code
		path      string
	}{
		{"empty", ``, strictjson.NotJSON, ""},
		{"blank", " \n", strictjson.NotJSON, ""},
		{"truncated value", `{"a":`, strictjson.NotJSON, "/a"},
		{"truncated text", `{"a":"x`, strictjson.NotJSON, "/a"},
		{"truncated object", `{"a":{"b":1}`, strictjson.NotJSON, ""},
		{"single quotes", `{'a':1}`, strictjson.NotJSON, ""},
		{"comment", `{/* x */}`, strictjson.NotJSON, ""},
		{"comma at the end", `{"a":[1,]}`, strictjson.NotJSON, "/a"},
		{"NaN", `{"a":NaN}`, strictjson.NotJSON, "/a"},
		{"Infinity", `{"a":[1,Infinity]}`, strictjson.NotJSON, "/a/1"},
		{"plus sign", `{"a":+1}`, strictjson.NotJSON, "/a"},
		{"leading zero", `{"a":01}`, strictjson.NotJSON, ""},
		{"bare control character", "{\"a\":\"x\x01\"}", strictjson.NotJSON, "/a"},
		{"NUL in a key", "{\"a\x00\":1}", strictjson.NotJSON, ""},
		{"unknown escape", `{"a":"\q"}`, strictjson.NotJSON, "/a"},
		{"UTF-8 byte order mark", "\xef\xbb\xbf{}", strictjson.NotJSON, ""},
		{"UTF-16", "\xff\xfe{\x00}\x00", strictjson.InvalidUTF8, ""},

		{"stray byte", "{\"a\":\"\xff\"}", strictjson.InvalidUTF8, ""},
		{"overlong slash", "{\"a\":\"\xc0\xaf\"}", strictjson.InvalidUTF8, ""},
		{"encoded surrogate", "{\"a\":\"\xed\xa0\x80\"}", strictjson.InvalidUTF8, ""},
		{"beyond Unicode", "{\"a\":\"\xf4\x90\x80\x80\"}", strictjson.InvalidUTF8, ""},
		{"stray byte in a key", "{\"\xff\":1}", strictjson.InvalidUTF8, ""},
		{"lone high surrogate", `{"a":{"b":"\ud800"}}`, strictjson.InvalidUTF8, "/a/b"},
		{"high surrogate, then a letter", `{"a":"\ud800\u0041"}`, strictjson.InvalidUTF8, "/a"},
		{"lone low surrogate", `{"a":"\udc00"}`, strictjson.InvalidUTF8, "/a"},
		{"surrogates in the wrong order", `["\udc00\ud800"]`, strictjson.InvalidUTF8, "/0"},

		{"same key twice", `{"a":1,"a":1}`, strictjson.DuplicateKey, "/a"},
		{"same key twice, one escaped", `{"x":{"a":1,"\u0061":2}}`, strictjson.DuplicateKey, "/x/a"},
		{"keys that differ in case", `{"name":"greet","Name":"secretTool"}`, strictjson.CaseCollision, "/Name"},
		{"upper case first", `{"x":[{"NAME":1,"name":2}]}`, strictjson.CaseCollision, "/x/0/name"},
		{"long s", `{"source":1,"ſource":2}`, strictjson.CaseCollision, "/ſource"},
		{"long s first", `{"ſource":1,"Source":2}`, strictjson.CaseCollision, "/Source"},
		{"Kelvin sign", `{"\u212aey":1,"key":2}`, strictjson.CaseCollision, "/key"},
		{"Greek sigmas", `{"σ":1,"ς":2}`, strictjson.CaseCollision, "/ς"},
		{"sharp s", `{"ß":1,"ẞ":2}`, strictjson.CaseCollision, "/ẞ"},
		{"path with / and ~", `{"a/b":{"c~d":1,"C~d":2}}`, strictjson.CaseCollision, "/a~1b/C~0d"},

		{"second document", `{} {}`, strictjson.TrailingData, ""},
		{"text behind", `{"a":1}x`, strictjson.TrailingData, ""},
		{"brace behind", `{}}`, strictjson.TrailingData, ""},
		{"NUL behind", "{}\x00", strictjson.TrailingData, ""},
		{"comma behind", `[],`, strictjson.TrailingData, ""},

		{"too deep", nested(5), strictjson.TooDeep, "/0/0/0/0"},
		{"objects too deep", `{"a":{"b":{"c":{"d":{}}}}}`, strictjson.TooDeep, "/a/b/c/d"},
		{"too large", `"` + strings.Repeat("x", 200) + `"`, strictjson.TooLarge, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := strictjson.Parse([]byte(tt.doc), strictjson.Limits{MaxBytes: 128, MaxDepth: 4})
			var e *strictjson.Error
			if !errors.As(err, &e) {
				t.Fatalf("Parse(%q) = %v, want a *strictjson.Error", tt.doc, err)
			}
			if e.Code != tt.code || e.Path != tt.path {
				t.Errorf("Parse(%q): %s at %q, want %s at %q", tt.doc, e.Code, e.Path, tt.code, tt.path)
			}
			if e.Detail == "" || !strings.Contains(err.Error(), string(tt.code)) {
				t.Errorf("the message %q does not say what is wrong", err)
			}
		})
	}
}

func TestParseNumbers(t *testing.T) {
	const safe, imprecise = strictjson.UnsafeInteger, strictjson.ImpreciseNumber
	tests := []struct {
		lit  string
		code strictjson.Code // "" if it is fine
	}{
		{"0", ""}, {"-0", ""}, {"-0.0", ""}, {"0e999999999999", ""}, {"0.000", ""},
		{"1", ""}, {"1.0", ""}, {"1.50", ""}, {"1e0", ""}, {"10E-1", ""}, {"1e+2", ""},
		{"9007199254740991", ""}, {"-9007199254740991", ""},
		{"9007199254740992", ""}, {"-9007199254740992", ""}, // 2^53
		{"9007199254740992.0", ""}, {"9.007199254740992e15", ""}, {"1e15", ""},
		{"9007199254740993", safe}, {"-9007199254740993", safe}, {"9007199254740993.0", safe},
		{"9007199254740994", safe}, {"9.007199254740993e15", safe}, {"1e16", safe}, {"-1e16", safe},
		{"18446744073709551615", safe}, {"1e308", safe}, {"1.7976931348623157e308", safe},
		{"1e309", imprecise}, {"1e400", imprecise}, {"-1e400", imprecise}, {"1e99999999999999999999", imprecise},
		{"0.1", ""}, {"0.30000000000000004", ""}, {"3.141592653589793", ""}, {"1e-7", ""},
		{"0.10000000000000000001", imprecise}, {"3.14159265358979323846", imprecise},
		{"0.1000000000000000055511151231257827", imprecise}, // the float's own digits are not its shortest
		{"9007199254740992.5", imprecise}, {"333333333.33333329", imprecise},
		{"5e-324", ""}, {"4.9e-324", imprecise}, {"3e-324", imprecise}, {"2.2250738585072014e-308", ""},
		{"1e-400", imprecise}, {"1e-99999999999999999999", imprecise},
	}
	for _, tt := range tests {
		t.Run(tt.lit, func(t *testing.T) {
			v, err := strictjson.Parse([]byte(`{"n":[`+tt.lit+`]}`), strictjson.DefaultLimits)
			if tt.code == "" {
				if err != nil {
					t.Fatal(err)
				}
				if got := v.(map[string]any)["n"].([]any)[0]; got != json.Number(tt.lit) {
					t.Fatalf("got %v, want the literal %s", got, tt.lit)
				}
				return
			}
			var e *strictjson.Error
			if !errors.As(err, &e) || e.Code != tt.code || e.Path != "/n/0" {
				t.Fatalf("got %v, want %s at /n/0", err, tt.code)
			}
		})
	}
}

func TestParseGivesTheWholeTree(t *testing.T) {
	doc := ` { "a" : [ null , true , false , 1.50 , "x\u00e9\n\ud83d\ude00" ] , "" : { } , "b" : [ ] } `
	got, err := strictjson.Parse([]byte(doc), strictjson.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"a": []any{nil, true, false, json.Number("1.50"), "xé\n😀"},
		"":  map[string]any{},
		"b": []any{},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// Keys that only look alike are different keys: folding goes no further than
// case.
func TestParseKeepsDifferentKeysApart(t *testing.T) {
	for _, doc := range []string{
		`{"a":1,"b":2,"A_":3,"B_":4}`,
		`{"a":1,"а":2}`,          // Cyrillic
		`{"e\u0301":1,"é":2}`,    // composed and decomposed
		`{"ss":1,"ß":2}`,         // full folding would join them
		`{"i":1,"ı":2}`,          // dotless i
		`{"x":{"k":1},"K":{}}`,   // other objects
		`[{"a":1},{"A":2}]`,      // other objects
		`{"A":1,"B":2,"C":3}`,    // upper case alone is no fault
		`{"Aa":1,"b":2,"aab":3}`, // nor are prefixes
	} {
		if _, err := strictjson.Parse([]byte(doc), strictjson.DefaultLimits); err != nil {
			t.Errorf("Parse(%s): %v", doc, err)
		}
	}
}

func TestParseLimits(t *testing.T) {
	if _, err := strictjson.Parse([]byte(nested(64)), strictjson.DefaultLimits); err != nil {
		t.Errorf("64 levels: %v", err)
	}
	if _, err := strictjson.Parse([]byte(nested(65)), strictjson.DefaultLimits); err == nil {
		t.Error("65 levels were accepted")
	}
	// Without a limit of ours the decoder's own stands: no stack is exhausted.
	if _, err := strictjson.Parse([]byte(nested(200_000)), strictjson.Limits{}); err == nil {
		t.Error("200000 levels were accepted")
	}
	doc := []byte(`"` + strings.Repeat("x", 1<<20-2) + `"`)
	if _, err := strictjson.Parse(doc, strictjson.DefaultLimits); err != nil {
		t.Errorf("1 MiB: %v", err)
	}
	if _, err := strictjson.Parse(append(doc, ' '), strictjson.DefaultLimits); err == nil {
		t.Error("more than 1 MiB was accepted")
	}
}

func TestParseObject(t *testing.T) {
	for _, doc := range []string{`[]`, `"{}"`, `null`, `1`, `true`} {
		_, err := strictjson.ParseObject([]byte(doc), strictjson.DefaultLimits)
		var e *strictjson.Error
		if !errors.As(err, &e) || e.Code != strictjson.NotObject {
			t.Errorf("ParseObject(%s): %v, want %s", doc, err, strictjson.NotObject)
		}
	}
	if m, err := strictjson.ParseObject([]byte(`{}`), strictjson.DefaultLimits); err != nil || m == nil {
		t.Errorf("ParseObject({}) = %v, %v", m, err)
	}
}

func TestParseLeavesItsInputAlone(t *testing.T) {
	doc := []byte(`{"b":[1,"x\u0041"],"a":{}}`)
	before := string(doc)
	tree, err := strictjson.ParseObject(doc, strictjson.DefaultLimits)
	if err != nil || string(doc) != before {
		t.Fatalf("%v; input is now %s", err, doc)
	}
	for i := range doc {
		doc[i] = '#' // whatever the tree holds must not be a part of the input
	}
	if d := cmp.Diff(map[string]any{"b": []any{json.Number("1"), "xA"}, "a": map[string]any{}}, tree); d != "" {
		t.Error(d)
	}
}

// Errors are shown to people and stored as evidence: no value may be in them.
func TestErrorsQuoteNoValue(t *testing.T) {
	const secret = "hunter" // messages may cut values short
	type record struct {
		N int    `json:"n"`
		S string `json:"s"`
	}
	for _, doc := range []string{
		`{"s":"hunter2`, `{"s":"hunter2\q"}`, `{"s":"hunter2\ud800"}`, `{"s":hunter2}`, "{\"s\":\"hunter2\x01\"}",
		`{"s":"hunter2"} hunter2`, `{"s":"hunter2","s":"hunter2"}`, `{"s":"hunter2","S":"hunter2"}`,
		`{"n":"hunter2"}`, `{"n":["hunter2"]}`, `{"s":{"a":"hunter2"}}`, `["hunter2"]`, `"hunter2"`, `{"x":"hunter2"}`,
		"{\"s\":\"hunter2\xff\"}", `{"s":"\ud800hunter2"}`, `{"s":"\uhunter2"}`,
	} {
		_, perr := strictjson.ParseObject([]byte(doc), strictjson.Limits{MaxBytes: 100, MaxDepth: 1})
		uerr := strictjson.Unmarshal([]byte(doc), &record{}, strictjson.RejectUnknown)
		_, cerr := strictjson.CanonicalBytes([]byte(doc))
		for _, err := range []error{perr, uerr, cerr} {
			if err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("%s: the message holds the value: %v", doc, err)
			}
		}
	}
	// Nor may numbers.
	for _, lit := range []string{"4242.5", "4242e400", "42424242424242424242", "42.42424242424242424242", "4242x"} {
		doc := []byte(`{"n":` + lit + `}`)
		_, perr := strictjson.Parse(doc, strictjson.DefaultLimits)
		uerr := strictjson.Unmarshal(doc, &record{})
		for _, err := range []error{perr, uerr} {
			if err != nil && strings.Contains(err.Error(), "4242") {
				t.Errorf("%s: the message holds the value: %v", doc, err)
			}
		}
	}
}

func TestUnmarshalNamesPlaceAndReason(t *testing.T) {
	type record struct {
		List []struct {
			N int `json:"n"`
		} `json:"list"`
	}
	tests := []struct {
		doc  string
		code strictjson.Code
		path string
	}{
		{`{"list":[{"n":1},{"n":"x"}]}`, strictjson.WrongType, "/list/1/n"},
		{`{"list":[{"n":1.5}]}`, strictjson.WrongType, "/list/0/n"},
		{`{"list":[{"m":1}]}`, strictjson.UnknownKey, "/list/0/m"},
		{`{"LIST":[]}`, strictjson.UnknownKey, "/LIST"},
		{`{"list":[`, strictjson.NotJSON, "/list"},
	}
	for _, tt := range tests {
		err := strictjson.Unmarshal([]byte(tt.doc), &record{}, strictjson.RejectUnknown)
		var e *strictjson.Error
		if !errors.As(err, &e) || e.Code != tt.code || e.Path != tt.path {
			t.Errorf("Unmarshal(%s): %v, want %s at %s", tt.doc, err, tt.code, tt.path)
		}
	}
}
