package redact

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// cleanTexts are documents in which there is nothing to redact; the checker must accept them, or
// it is of no use.
var cleanTexts = []string{
	`{}`, `[]`, `null`, ` { "b" : [ 1 , -2 , 0.5 , true , null ] , "a" : "x" } `, `{"z":{"y":{"x":1,"w":2}},"a":[{"d":1,"c":2},{}]}`,
	`{"text":"two lines\n\"quoted\" \/ and a tab\t","unicode":"Grüße, 你好"}`, `{"name":"value","value":"x"}`, `{"camelCase":1,"other":2,"Upper":3}`,
	`{"tool_input":{"command":"ls -la","timeout":30},"metadata":{"tool_call_id":"call-00000017"}}`, `{"password":true,"token":null,"secret":{},"api_key":[]}`,
	`{"a":"\u0041"}`, `{"a":1e5}`, `{"a":-0}`, `{"a":1.50}`, `{"a":0.0000001}`, `{"a":1234567890123456}`, `{"\n":1}`,
	`{"reply_token":"rpl_abc123"}`, `{"note":"[redacted:email]"}`, `{"keys":["a","b"],"list":[["--verbose","x"]]}`,
}

// dirtyTexts are documents in which Document has to decide, and no documents.
var dirtyTexts = []string{
	``, `{`, `{"a":1,"a":2}`, `{"a":1,"A":2}`, `{"é":1}`, `{"a":01}`, `{"a":1} x`,
	"{\"a\":\"\x01\"}", "{\"a\":\"\xff\"}", `{"a":"x`, `{"a":"\`, `{"a":"\x"}`, `{"a" 1}`, `{"a":1,}`, `[1,]`, `[1 2]`, `nul`, strings.Repeat("[", 70) + strings.Repeat("]", 70),
	`{"password":"hunter2 it is"}`, `{"password":{"a":1}}`, `{"api_keys":["x"],"api_key":["y"]}`, `{"email":"dana@acme.example"}`, `{"emails":["x"]}`, `{"phone":4155552671}`, `{"pin":4111111111111111}`,
	`{"name":"password","value":"hunter2"}`, `{"user":"bob","pass":1234}`, `["--password","hunter2"]`, `["Authorization","Basic x"]`, `{"dana@acme.example":1}`, `{"address":{"city":"Bonn"}}`, `{"pin":4155552671,"zip":"53111"}`,
	`{"metadata":{"redaction":{"fields":["a"]}},"a":"x"}`, `{"prompt":"x"}`, `{"to":"dana@acme.example"}`, `{"":"x"}`, `["pass\nword","x"]`, `{"x":"password=hunter2"}`, `{"k":"AKIAIOSFODNN7EXAMPLE"}`,
}

var cleanProtocols = []string{"", "agenthook", "aaep", "tool", "handoff"}

// checkCleaner holds the checker against Document.
func checkCleaner(t *testing.T, c *CleanChecker, raw []byte, protocol string) bool {
	t.Helper()
	var d strictjson.Document
	root, err := d.Parse(raw, strictjson.DefaultLimits)
	if err != nil || !c.CheckDocument(root, protocol, len(raw)) {
		return false
	}
	tree := root.Tree()
	tree, hits, err := Document(tree, "", DeclaredFields(tree), Config{Protocol: protocol, Size: len(raw)})
	if err != nil || len(hits) > 0 {
		t.Fatalf("%q: accepted, but there are %v, %v", raw, hits, err)
	}
	if want, err := strictjson.Canonical(tree); err != nil || !bytes.Equal(root.AppendCanonical(nil), want) {
		t.Fatalf("%q is %s with and %s without a tree, %v", raw, root.AppendCanonical(nil), want, err)
	}
	return true
}

func TestCleanerTakesCleanTexts(t *testing.T) {
	var c CleanChecker
	for _, text := range cleanTexts {
		for _, protocol := range cleanProtocols {
			if !checkCleaner(t, &c, []byte(text), protocol) {
				t.Errorf("%s is rejected", text)
			}
		}
	}
}

func TestCleanerLeavesTheRest(t *testing.T) {
	var c CleanChecker
	for _, text := range dirtyTexts {
		if checkCleaner(t, &c, []byte(text), "tool") {
			t.Errorf("%s was accepted", text)
		}
	}
	for _, protocol := range []string{"aana", "aump"} {
		if checkCleaner(t, &c, []byte(`{}`), protocol) {
			t.Errorf("%s has rules of its own", protocol)
		}
	}
	var keys strings.Builder // more work than one record may have, without a finding
	for i := range 200 {
		fmt.Fprintf(&keys, `,"%s%d":1`, strings.Repeat("-p ", 20), i)
	}
	if checkCleaner(t, &c, []byte("{"+keys.String()[1:]+"}"), "") {
		t.Error("a document over the work limit was accepted")
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
	for i, text := range append(cleanTexts, dirtyTexts...) {
		f.Add([]byte(text), uint8(i))
	}
	var c CleanChecker
	f.Fuzz(func(t *testing.T, raw []byte, protocol uint8) {
		checkCleaner(t, &c, raw, cleanProtocols[int(protocol)%len(cleanProtocols)])
	})
}
