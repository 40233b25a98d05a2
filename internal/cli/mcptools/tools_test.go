package mcptools

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v5"

	"github.com/countersign-dev/countersign/admission/aana"
	"github.com/countersign-dev/countersign/admission/aump"
	"github.com/countersign-dev/countersign/admission/receipt"
	wire "github.com/countersign-dev/countersign/events/aana"
)

// The evaluation tool is one that AUMP's binding to MCP accepts.
func TestEvaluationTool(t *testing.T) {
	found := 0
	for _, tool := range tools {
		if tool.name != "aump.evaluate_action" {
			continue
		}
		found++
		text, err := json.Marshal(tool.definition())
		if err != nil {
			t.Fatal(err)
		}
		if r, err := aump.Validate(aump.KindMCPTool, text, nil, time.Now()); err != nil || !r.Valid {
			t.Errorf("%v %v\n%s", err, r.Errors, text)
		}
	}
	if found != 1 {
		t.Errorf("there are %d such tools", found)
	}
}

// What changes something says so, and only a revocation destroys.
func TestHints(t *testing.T) {
	for _, tool := range tools {
		h := tool.definition().Annotations
		changes := tool.name == "aump.append_evidence" || tool.name == "aump.revoke_mandate"
		if h.ReadOnlyHint == changes || *h.DestructiveHint != (tool.name == "aump.revoke_mandate") || *h.OpenWorldHint {
			t.Errorf("%s: %+v", tool.name, h)
		}
	}
}

// Every tool says what its structured answers look like.
func TestAnswersAreDeclared(t *testing.T) {
	for _, tool := range tools {
		if _, err := jsonschema.CompileString(tool.name+".json", tool.output); err != nil {
			t.Errorf("%s: %v", tool.name, err)
		}
		if shows := tool.definition().Meta["openai/outputTemplate"]; (shows == decisionURI) != (tool.name == "aana_pre_tool_check") {
			t.Errorf("%s: the page of its answers is %v", tool.name, shows)
		}
	}
}

// Real envelopes of every route become answers of the declared form; an envelope that lacks a member, or the word that
// permits, permits nothing.
func TestAANAAnswer(t *testing.T) {
	schema := jsonschema.MustCompileString("aana.json", aanaAnswer)
	const asked = `"approval":{"required":true,"status":"pending","workflow_id":"wf-1","requested_at":"2026-11-26T12:00:00Z","expires_at":"2026-11-26T12:15:00Z"},`
	for _, route := range []wire.Route{wire.Accept, wire.Ask, wire.Defer, wire.Refuse} {
		envelope, err := json.Marshal(aana.Result{Route: route, AANARoute: route, Blockers: []string{}, Event: aana.EventView{SourceIDs: []string{}, ArgumentKeys: []string{}}}.Envelope())
		if err != nil {
			t.Fatal(err)
		}
		if route == wire.Ask {
			envelope = bytes.Replace(envelope, []byte("{"), []byte("{"+asked), 1)
		}
		_, answer, err := aanaAnswerOf(envelope)
		if err != nil {
			t.Fatal(err)
		}
		var members map[string]any
		if err := json.Unmarshal(answer, &members); err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(members); err != nil || members["route"] != string(route) || members["execution_allowed"] != (route == wire.Accept) || (members["approval"] != nil) != (route == wire.Ask) {
			t.Errorf("%s: %v\n%s", route, err, answer)
		}
		text, answer, err := aanaAnswerOf(bytes.ReplaceAll(envelope, []byte(`"execution_allowed":true`), []byte(`"other":1`)))
		if err != nil || strings.Contains(text, "true") || !bytes.Contains(answer, []byte(`"execution_allowed":false`)) {
			t.Errorf("%s without a word of permission: %s %v", route, text, err)
		}
		for _, broken := range [][]byte{bytes.ReplaceAll(envelope, []byte(`"aix_score"`), []byte(`"other"`)), []byte(`{}`), []byte(`x`)} {
			if text, answer, err := aanaAnswerOf(broken); err == nil || text != "" || answer != nil {
				t.Errorf("%s: %s %s", broken, text, answer)
			}
		}
	}
}

// What a command prints becomes one object; what cannot be read is an error.
func TestRecords(t *testing.T) {
	for text, want := range map[string]string{
		"": `{"records":[]}`, "{\"a\":1}\n{\"b\":12345678901234567890}\n": `{"records":[{"a":1},{"b":12345678901234567890}]}`, "{\"a\":1}\nx": "",
	} {
		if got, err := recordsOf(text); string(got) != want || (err != nil) != (want == "") {
			t.Errorf("%q: %s %v", text, got, err)
		}
	}
}

// Identical questions of one process have one id, under which an approval is used. It is another in the next process, so
// that nothing on record can be held against a guess of the question.
func TestQuestionID(t *testing.T) {
	question := []byte(`{"pin":4821}`)
	one, other := (&Cmd{}).service(), (&Cmd{}).service()
	id := one.questionID("/v1/admit/aana", question)
	for name, tt := range map[string]struct {
		got  string
		same bool
	}{
		"again":            {one.questionID("/v1/admit/aana", question), true},
		"elsewhere":        {one.questionID("/v1/admit/aump", question), false},
		"another question": {one.questionID("/v1/admit/aana", []byte(`{"pin":4822}`)), false},
		"another process":  {other.questionID("/v1/admit/aana", question), false},
	} {
		if (tt.got == id) != tt.same {
			t.Errorf("%s: %s and %s", name, id, tt.got)
		}
	}
}

// The end of a question is read from its receipt; what is no receipt ends it at once.
func TestLastUse(t *testing.T) {
	at := time.Date(2026, 11, 27, 10, 0, 0, 0, time.UTC)
	of := func(payload string) string {
		return "e30." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + ".c2ln"
	}
	for token, want := range map[string]time.Time{
		of(`{"expires_at":"2026-11-27T10:00:00Z","more":1}`): at.Add(receipt.Leeway),
		of(`{"expires_at":7}`):                               {},
		of(`x`):                                              {},
		"a.!.b":                                              {},
		"":                                                   {},
	} {
		if got := lastUse(token); !got.Equal(want) {
			t.Errorf("%q: %v, want %v", token, got, want)
		}
	}
}
