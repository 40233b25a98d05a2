package strictjson_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// FuzzParse checks that Parse never panics, that every refusal is an *Error
// with a code, and that what it accepts has one meaning: encoding/json agrees
// that it is JSON, it has a canonical form, and that form is accepted too and is
// its own canonical form.
func FuzzParse(f *testing.F) {
	for _, doc := range []string{
		`{}`, `[]`, `null`, `{"a":[1,-0,1e5,0.1,5e-324,"\u00e9\ud83d\ude00",true,null]}`,
		`{"a":1,"A":2}`, `{"s":1,"ſ":2}`, `{"k":1,"\u212a":2}`, `{"a":1,"a":2}`, `{"a":9007199254740993}`,
		`{"a":1e400}`, `"\ud800"`, "\xef\xbb\xbf{}", "{\"a\":\"\xff\"}", `{} x`, nested(70), string(small),
	} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		tree, err := strictjson.Parse(doc, strictjson.DefaultLimits)
		if err != nil {
			var e *strictjson.Error
			if !errors.As(err, &e) || e.Code == "" || e.Detail == "" {
				t.Fatalf("an error without a code: %v", err)
			}
			return
		}
		if !json.Valid(doc) {
			t.Fatalf("%q was accepted", doc)
		}
		canonical, err := strictjson.CanonicalBytes(doc)
		if err != nil {
			t.Fatal(err)
		}
		fromTree, err := strictjson.Canonical(tree)
		if err != nil || !bytes.Equal(fromTree, canonical) {
			t.Fatalf("tree %s, %v\nbytes %s", fromTree, err, canonical)
		}
		if _, err := strictjson.Parse(canonical, strictjson.Limits{MaxDepth: 64}); err != nil {
			t.Fatalf("the canonical form %q is refused: %v", canonical, err)
		}
		again, err := strictjson.CanonicalBytes(canonical)
		if err != nil || !bytes.Equal(again, canonical) {
			t.Fatalf("%q, then %q, %v", canonical, again, err)
		}
	})
}
