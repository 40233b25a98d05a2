package redact

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// cleanTexts are documents in which there is nothing to redact; the checker must find no member in
// them, or it is of no use.
var cleanTexts = []string{
	`{}`, `[]`, `null`, ` { "b" : [ 1 , -2 , 0.5 , true , null ] , "a" : "x" } `, `{"z":{"y":{"x":1,"w":2}},"a":[{"d":1,"c":2},{}]}`,
	`{"text":"two lines\n\"quoted\" \/ and a tab\t","unicode":"Grüße, 你好"}`, `{"name":"value","value":"x"}`, `{"camelCase":1,"other":2,"Upper":3}`,
	`{"tool_input":{"command":"ls -la","timeout":30},"metadata":{"tool_call_id":"call-00000017"}}`, `{"password":true,"token":null,"secret":{},"api_key":[]}`,
	`{"a":"\u0041"}`, `{"a":1e5}`, `{"a":-0}`, `{"a":1.50}`, `{"a":0.0000001}`, `{"a":1234567890123456}`, `{"a":1234567890123456.0}`, `{"\n":1}`,
	`{"reply_token":"rpl_abc123"}`, `{"note":"[redacted:email]"}`, `{"keys":["a","b"],"list":[["--verbose","x"]]}`,
	`{"metadata":{"redaction":{"applied":false,"fields":[]}}}`,
}

// partlyTexts are documents of which few members hold something to redact, with the number of these members.
var partlyTexts = map[string]int{
	`{"z":"x","to":"dana@acme.example","a":1.50}`: 1, `{"a":{"to":"x@acme.example","b~/":{"to":"y@acme.example","n":null},"l":[1]},"c":[{"to":"z@acme.example"}],"d":""}`: 3,
	`{"a":{"user":"bob","pass":"Tr0ub4dor","x":1},"b":2}`: 1, `{"password":"hunter2 it is","é":1}`: -1, `{"x":"password=hunter2","y":{}}`: 1, `{"address":{"city":"Bonn"},"b":"\n"}`: 1,
	`{"l":[[{"to":"z@acme.example"}],"x"],"list":["--password","hunter2"],"api_keys":["x"]}`: 3, `{"a":{"dana@acme.example":{"to":"x@acme.example"}},"pin":4111111111111111}`: 2,
	`{"a":{"to":"x@acme.example","name":"password","value":"hunter2"},"b":2}`: 1,
}

// dirtyTexts are documents in which Document has to decide, and no documents.
var dirtyTexts = []string{
	``, `{`, `{"a":1,"a":2}`, `{"a":1,"A":2}`, `{"é":1}`, `{"a":01}`, `{"a":1} x`,
	"{\"a\":\"\x01\"}", "{\"a\":\"\xff\"}", `{"a":"x`, `{"a":"\`, `{"a":"\x"}`, `{"a" 1}`, `{"a":1,}`, `[1,]`, `[1 2]`, `nul`, strings.Repeat("[", 70) + strings.Repeat("]", 70),
	`{"password":"hunter2 it is"}`, `{"password":{"a":1}}`, `{"api_keys":["x"],"api_key":["y"]}`, `{"email":"dana@acme.example"}`, `{"emails":["x"]}`, `{"phone":4155552671}`, `{"pin":4111111111111111}`, `{"phone":4.15e6}`,
	`{"a":4111111111111111.0}`, `{"a":4.111111111111111e15}`, `{"a":41111111111111110e-1}`, `{"a":4111111111111111.2}`, `{"a":4444444444444444442}`, `{"a":"4111111111111111.0"}`,
	`{"name":"password","value":"hunter2"}`, `{"user":"bob","pass":1234}`, `["--password","hunter2"]`, `["Authorization","Basic x"]`, `{"dana@acme.example":1}`, `{"address":{"city":"Bonn"}}`, `{"pin":4155552671,"zip":"53111"}`,
	`{"metadata":{"redaction":{"fields":["a"]}},"a":"x"}`, `{"prompt":"x"}`, `{"to":"dana@acme.example"}`, `{"":"x"}`, `["pass\nword","x"]`, `{"x":"password=hunter2"}`, `{"k":"AKIAIOSFODNN7EXAMPLE"}`,
}

var cleanProtocols = []string{"", "agenthook", "aaep", "tool", "handoff"}

// checkCleaner holds the checker against Document, and returns the number of unclean members; -1 if
// Document has to decide.
func checkCleaner(t *testing.T, c *CleanChecker, raw []byte, protocol string) int {
	t.Helper()
	root, err := strictjson.Read(raw, strictjson.DefaultLimits)
	if err != nil {
		return -1
	}
	unclean, ok := c.CheckDocument(root, protocol, len(raw))
	if !ok {
		return -1
	}
	for _, action := range []Action{Mask, Drop} {
		config := Config{Protocol: protocol, Size: len(raw), Treat: func(_, path, _ string) Treatment { return Treatment{Action: action, Rule: path} }}
		tree := root.Tree()
		tree, hits, err := Document(tree, "/body", DeclaredFields(tree), config)
		list, found, partErr := unclean.Redact("/body", config)
		if !errors.Is(partErr, err) || !reflect.DeepEqual(hits, found) {
			t.Fatalf("%q: %v, %v as a whole; %v, %v", raw, hits, err, found, partErr)
		}
		if err != nil {
			return unclean.Len()
		}
		got := root.Replace(list).AppendCanonical(nil)
		if want, err := strictjson.Canonical(tree); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%q is %s as a whole, not %s, %v", raw, want, got, err)
		}
	}
	return unclean.Len()
}

func TestCleanerTakesCleanTexts(t *testing.T) {
	var c CleanChecker
	for _, text := range cleanTexts {
		for _, protocol := range cleanProtocols {
			if n := checkCleaner(t, &c, []byte(text), protocol); n != 0 {
				t.Errorf("%s is rejected: %d", text, n)
			}
		}
	}
}

// The members with something to redact are found, and redacted as in a redaction of the whole.
func TestCleanerFindsMembers(t *testing.T) {
	var c CleanChecker
	for text, want := range partlyTexts {
		if got := checkCleaner(t, &c, []byte(text), "agenthook"); got != want {
			t.Errorf("%s: %d members, want %d", text, got, want)
		}
	}
}

func TestCleanerLeavesTheRest(t *testing.T) {
	var c CleanChecker
	for _, text := range dirtyTexts {
		if checkCleaner(t, &c, []byte(text), "tool") == 0 {
			t.Errorf("%s was accepted", text)
		}
	}
	for text, want := range map[string]int{`{"metadata":{"redaction":{"fields":["a"]}},"a":"x"}`: -1, `{"prompt":"x"}`: -1, `{"a":{"prompt":"x"}}`: 1} {
		if got := checkCleaner(t, &c, []byte(text), "tool"); got != want {
			t.Errorf("%s: %d members, want %d", text, got, want)
		}
	}
	for _, protocol := range []string{"aana", "aump"} {
		if checkCleaner(t, &c, []byte(`{}`), protocol) >= 0 {
			t.Errorf("%s has rules of its own", protocol)
		}
	}
	var keys strings.Builder // more work than one record may have, without a finding
	for i := range 200 {
		fmt.Fprintf(&keys, `,"%s%d":1`, strings.Repeat("-p ", 20), i)
	}
	if checkCleaner(t, &c, []byte("{"+keys.String()[1:]+"}"), "") >= 0 {
		t.Error("a document over the work limit was accepted")
	}
}

// The work in unclean members and in the rest of a document counts once, and together: these
// documents go over the limit of work, though neither part does.
func TestCleanerCountsAllWork(t *testing.T) {
	var c CleanChecker
	var rest, list strings.Builder
	over := 0
	for i := range 50 {
		fmt.Fprintf(&rest, `,"%[1]s%[2]d":1,"%[1]s-%[2]d":1`, strings.Repeat("-p ", 20), i)
		fmt.Fprintf(&list, `,{"%s%d":1}`, strings.Repeat("-p ", 20), i)
		if i < 40 {
			continue
		}
		doc := fmt.Appendf(nil, `{"x":1%s,"l":[1%s,"dana@acme.example"]}`, &rest, &list)
		if n := checkCleaner(t, &c, doc, ""); n != 1 {
			t.Fatalf("%d members with %d keys", n, i)
		}
		tree, _ := strictjson.Parse(doc, strictjson.DefaultLimits)
		if _, _, err := Document(tree, "", nil, Config{Size: len(doc)}); err != nil {
			over++
		}
	}
	if over == 0 || over == 10 {
		t.Errorf("%d of 10 documents are over the limit", over)
	}
}

// A header is clean if redaction finds nothing in its name and its values.
func TestCleanerTexts(t *testing.T) {
	var c CleanChecker
	for _, tt := range []struct {
		name  string
		value string
	}{
		{"Ce-Id", "01997d40-7a44-7a8e-9d0b-000000000001"}, {"Content-Type", "application/json"}, {"Authorization", "Bearer abc"}, {"X-Key", "aB3dE5gH7jK9mN1pQ3sT5"},
		{"X-Note", "write to dana@acme.example"}, {"X-Note", "\xff"}, {"dana@acme.example", "x"}, {"X-Email", "dana@acme.example"}, {"Reply-Token", "rpl_abc"}, {"X-Note", ""},
	} {
		values := []string{tt.value}
		_, odd := OneText(tt.name, "/headers/x", Config{})
		hits := len(odd) + len(Strings(values, tt.name, "/headers/x", Config{}))
		if got := c.CheckTexts(tt.name, []string{tt.value}); got != (hits == 0) {
			t.Errorf("%s: %q: clean %v, %d findings", tt.name, tt.value, got, hits)
		}
	}
}

func FuzzCleaner(f *testing.F) {
	for i, text := range append(slices.AppendSeq(cleanTexts, maps.Keys(partlyTexts)), dirtyTexts...) {
		f.Add([]byte(text), uint8(i))
	}
	var c CleanChecker
	f.Fuzz(func(t *testing.T, raw []byte, protocol uint8) {
		checkCleaner(t, &c, raw, cleanProtocols[int(protocol)%len(cleanProtocols)])
	})
}

func parsed(t *testing.T, raw []byte) strictjson.Value {
	t.Helper()
	v, err := strictjson.Read(raw, strictjson.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
