package e2e_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/santhosh-tekuri/jsonschema/v5"
)

// asking is a client of `countersign mcp tools`. It holds every answer against the schema that the tool declares.
type asking struct {
	*mcp.ClientSession
	answers map[string]*jsonschema.Schema // by tool
}

func newAsking(t *testing.T, session *mcp.ClientSession) asking {
	t.Helper()
	a := asking{session, map[string]*jsonschema.Schema{}}
	list, err := session.ListTools(t.Context(), nil)
	ok(t, err)
	for _, tool := range list.Tools {
		declared, err := json.Marshal(tool.OutputSchema)
		ok(t, err)
		a.answers[tool.Name], err = jsonschema.CompileString(tool.Name+".json", string(declared))
		ok(t, err)
	}
	return a
}

func (a asking) call(t *testing.T, tool string, arguments any) (*mcp.CallToolResult, string) {
	t.Helper()
	r, err := a.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: arguments})
	ok(t, err)
	if r.IsError && r.StructuredContent != nil {
		t.Errorf("%s: an error with an answer: %v", tool, r.StructuredContent)
	}
	if !r.IsError {
		ok(t, a.answers[tool].Validate(r.StructuredContent))
	}
	return r, r.Content[0].(*mcp.TextContent).Text
}

// records are those of an answer about evidence.
func records(r *mcp.CallToolResult) []any {
	answer, _ := r.StructuredContent.(map[string]any) // of an error, none
	list, _ := answer["records"].([]any)
	return list
}

func readRequest(t *testing.T, name string) (request map[string]any) {
	t.Helper()
	b, err := os.ReadFile(root + "/examples/requests/" + name)
	ok(t, err)
	ok(t, json.Unmarshal(b, &request))
	return request
}

// An agent asks for evaluations and reads evidence; what cannot be answered is no yes.
func TestMCPTools(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.run(t, "mandate", "put", root+"/examples/mandates/courier.json").want(t, 0)
	cmd := exec.Command(program("countersign"), "mcp", "tools", "--ready-file", s.ready)
	cmd.Env = cleanEnv()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "auditor", Version: "1"}, nil).Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, nil)
	ok(t, err)
	defer session.Close()
	a := newAsking(t, session)
	checkTool(t, a)
	request := readRequest(t, "aump-action.json")
	delete(request, "aump")
	r, text := a.call(t, "aump.evaluate_action", request)
	if r.IsError || text != "AUMP decision: allowed." || len(r.StructuredContent.(map[string]any)) == 0 {
		t.Errorf("aump.evaluate_action: %s", text)
	}
	evaluationTool(t, s, a, request)
	ref := request["mandate_ref"].(map[string]any)
	if r, text := a.call(t, "aump.resolve_mandate", object{"mandate_ref": object{"id": ref["id"]}}); r.IsError || r.StructuredContent.(map[string]any)["hash"] != ref["hash"] {
		t.Errorf("aump.resolve_mandate: %s %v", text, r.StructuredContent)
	}
	if r, _ := a.call(t, "aump.resolve_mandate", object{"mandate_ref": object{"id": "aump_mnd_other"}}); !r.IsError {
		t.Error("a mandate that there is not is found")
	}
	mandateTools(t, s, a)
	for _, id := range []string{"aump_mnd_own", "aump_mnd_other"} { // revoked, and none
		ref["id"] = id
		if r, text := a.call(t, "aump.evaluate_action", request); r.IsError || text != "AUMP decision: denied." {
			t.Errorf("under the mandate %s: %s", id, text)
		}
	}

	s.run(t, "publish", "--protocol", "agenthook", root+"/examples/sessions/agenthook-rogue.jsonl").want(t, 0)
	s.settle(t)
	questionsAreClosed(t, s)
	if r, text := a.call(t, "countersign_findings", object{"session": "sess-rogue-1"}); len(records(r)) == 0 || !strings.Contains(text, `"rule"`) {
		t.Errorf("findings: %s", text)
	}
	if r, text := a.call(t, "countersign_session", object{"session": "sess-rogue-1"}); len(records(r)) == 0 || !strings.Contains(text, "sess-rogue-1") {
		t.Errorf("session: %s", text)
	}
	if r, text := a.call(t, "countersign_findings", object{"session": "sess-none"}); !r.IsError {
		t.Errorf("findings of no session: %s", text)
	}
	decision := s.runtime(t).admit(t, "agenthook", object(readRequest(t, "pre-tool-use.json")).bytes()).id
	if r, text := a.call(t, "countersign_explain", object{"decision": decision}); len(records(r)) != 1 || !strings.Contains(text, decision) {
		t.Errorf("explain: %s", text)
	}
	if r, text := a.call(t, "countersign_explain", object{"decision": "--help"}); !r.IsError {
		t.Errorf("an option as a decision: %s", text)
	}
	ok(t, s.stop())
	if r, text := a.call(t, "aana_pre_tool_check", readRequest(t, "aana-public-read.json")); !r.IsError || strings.Contains(text, "true") {
		t.Errorf("without a gateway: %s", text)
	}
}

// AANA's tool answers in the form of AANA: the members side by side. What it cannot judge is an error. The page
// that it names can be read.
func checkTool(t *testing.T, a asking) {
	t.Helper()
	event := readRequest(t, "aana-public-read.json")
	r, text := a.call(t, "aana_pre_tool_check", event)
	if answer, _ := r.StructuredContent.(map[string]any); text != "AANA route: accept. Execution allowed: true." || answer["route"] != "accept" || answer["execution_allowed"] != true {
		t.Errorf("aana_pre_tool_check: %s %v", text, answer)
	}
	event["tool_category"] = "unknown"
	r, text = a.call(t, "aana_pre_tool_check", event)
	if answer, _ := r.StructuredContent.(map[string]any); !strings.HasSuffix(text, "Execution allowed: false.") || answer["route"] == "accept" || answer["execution_allowed"] != false {
		t.Errorf("a tool of an unknown category: %s %v", text, answer)
	}
	r, text = a.call(t, "aana_pre_tool_check", readRequest(t, "aana-refused.json"))
	if answer, _ := r.StructuredContent.(map[string]any); text != "AANA route: refuse. Execution allowed: false." || len(answer["hard_blockers"].([]any)) == 0 {
		t.Errorf("a call that is refused: %s %v", text, answer)
	}
	event["tool_category"] = "none of them"
	if r, text := a.call(t, "aana_pre_tool_check", event); !r.IsError || strings.Contains(text, "true") {
		t.Errorf("with a category that there is not: %s", text)
	}
	event["extra"] = 1
	if r, text := a.call(t, "aana_pre_tool_check", event); !r.IsError || strings.Contains(text, "true") {
		t.Errorf("with a member too many: %s", text)
	}
	list, err := a.ListTools(t.Context(), nil)
	ok(t, err)
	i := slices.IndexFunc(list.Tools, func(tool *mcp.Tool) bool { return tool.Name == "aana_pre_tool_check" })
	page, err := a.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: list.Tools[i].Meta["openai/outputTemplate"].(string)})
	ok(t, err)
	if len(page.Contents) != 1 || !strings.Contains(page.Contents[0].Text, "execution_allowed") {
		t.Errorf("the page of a decision: %+v", page)
	}
}

// The same question reserves its money once. When its client has ended, what was only asked is open no more: nothing will run
// under its id, and nothing is found missing.
func questionsAreClosed(t *testing.T, s *system) {
	t.Helper()
	cmd := exec.Command(program("countersign"), "mcp", "tools", "--ready-file", s.ready)
	cmd.Env = cleanEnv()
	client, err := mcp.NewClient(&mcp.Implementation{Name: "buyer", Version: "1"}, nil).Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, nil)
	ok(t, err)
	a, request := newAsking(t, client), readRequest(t, "aump-action.json")
	delete(request, "aump")
	request["proposed_action"].(map[string]any)["amount"].(map[string]any)["total_minor"] = 12_000 // of 20,000
	for range 2 {
		if r, text := a.call(t, "aump.evaluate_action", request); r.IsError || text != "AUMP decision: allowed." {
			t.Errorf("a question that is repeated: %s", text)
		}
		s.settle(t) // the budget's ledger then knows how the call ended, if it did
	}
	ok(t, client.Close())
	s.settle(t)
	asked := evidence(t, s.auditors(t), "kind = 'decision' AND startsWith(session, 'mcp-tools-') AND position(record, '\"verdict\":\"allow\"') > 0")
	last := asked[len(asked)-1].body(t)
	session := last.text("session")
	calls := s.run(t, "calls", "--session", session, "--json").want(t, 0).out
	if line := lineWith(calls, `"tool_call_id":"`+last.text("tool_call_id")+`"`); !strings.Contains(line, `"state":"denied"`) {
		t.Errorf("a question that was allowed: %s", line)
	}
	if found := s.run(t, "findings", "--session", session, "--json").out; found != "" {
		t.Errorf("findings: %s", found)
	}
}

// The evaluation tool, as it is listed, is one of AUMP's, and its answers have the form that it declares.
func evaluationTool(t *testing.T, s *system, a asking, request map[string]any) {
	t.Helper()
	list, err := a.ListTools(t.Context(), nil)
	ok(t, err)
	i := slices.IndexFunc(list.Tools, func(tool *mcp.Tool) bool { return tool.Name == "aump.evaluate_action" })
	listed, err := json.Marshal(list.Tools[i])
	ok(t, err)
	path := filepath.Join(t.TempDir(), "tool.json")
	ok(t, os.WriteFile(path, listed, 0o600))
	s.run(t, "mandate", "validate", "mcp_tool", path).want(t, 0)
	amount := request["proposed_action"].(map[string]any)["amount"].(map[string]any)
	within := amount["total_minor"]
	for decision, total := range map[string]any{"allowed": within, "denied": 900_000_000} {
		amount["total_minor"] = total
		r, text := a.call(t, "aump.evaluate_action", request)
		if r.IsError || text != "AUMP decision: "+decision+"." {
			t.Errorf("%v: %s", total, text)
		}
	}
	amount["total_minor"] = within
}

// An agent stores AUMP evidence, and revokes the mandate whose principal it is; another's does not exist for it.
func mandateTools(t *testing.T, s *system, a asking) {
	user := s.gateway(t).Roles["runtime"].User
	text, err := os.ReadFile(root + "/examples/mandates/courier.json")
	ok(t, err)
	own := strings.NewReplacer(`"display_name": "Shipping"`, `"display_name": "Shipping", "subject": "`+user+`"`, "aump_mnd_parcels_1", "aump_mnd_own").Replace(string(text))
	path := filepath.Join(t.TempDir(), "own.json")
	ok(t, os.WriteFile(path, []byte(own), 0o600))
	var mandate object
	ok(t, json.Unmarshal([]byte(own), &mandate))
	s.run(t, "mandate", "put", path).want(t, 0)

	event := object{"aump": object{"version": "0.1.0", "type": "evidence_event"}, "id": "aump_ev_tool", "mandate_ref": object{"id": "aump_mnd_own", "hash": mandateHash(mandate), "version": "0.1.0"},
		"sequence": 1, "created_at": time.Now().UTC().Format(time.RFC3339), "event_type": "deal_denied", "summary": "Too far.", "result": "denied"}
	if r, text := a.call(t, "aump.append_evidence", object{"evidence_event": event, "session": "s-tool"}); r.IsError || text != "AUMP evidence: stored." {
		t.Errorf("aump.append_evidence: %s", text)
	}
	eventually(t, "the event is evidence of its session", func() error {
		if out := s.run(t, "chain", "--session", "s-tool", "--json").out; !strings.Contains(out, "aump_ev_tool") {
			return errorf("the chain: %s", out)
		}
		return nil
	})
	if r, text := a.call(t, "aump.append_evidence", object{"evidence_event": object{"id": "aump_ev_none"}}); !r.IsError {
		t.Errorf("evidence about no mandate: %s", text)
	}

	for _, id := range []string{"aump_mnd_parcels_1", "aump_mnd_other"} {
		if r, text := a.call(t, "aump.revoke_mandate", object{"mandate_ref": object{"id": id}, "reason": "no more"}); !r.IsError || !strings.Contains(text, "404") {
			t.Errorf("another's mandate %s: %s", id, text)
		}
	}
	if r, text := a.call(t, "aump.revoke_mandate", object{"mandate_ref": object{"id": "aump_mnd_own"}, "reason": "no more"}); r.IsError || text != "AUMP mandate: revoked." {
		t.Errorf("aump.revoke_mandate: %s", text)
	}
	if r, _ := a.call(t, "aump.resolve_mandate", object{"mandate_ref": object{"id": "aump_mnd_own"}}); r.IsError || r.StructuredContent.(map[string]any)["state"] != "revoked" {
		t.Errorf("after the revocation: %v", r.StructuredContent)
	}
}
