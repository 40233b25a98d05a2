package e2e_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const allowAll = "apiVersion: countersign.dev/v1\nkind: AdmissionPolicy\nmetadata:\n  name: all\nspec:\n  rules:\n" +
	"    - {name: canonical, when: 'tool == \"files.write\"', verdict: allow, reason: canonical_name}\n" +
	"    - {name: strangers, when: 'catalog.known == false', verdict: ask, reason: unknown_tool}\n" +
	"    - {name: rest, when: 'true', verdict: allow, reason: ok}\n"

func toolCatalogue(tools ...object) []byte {
	return object{"schema": "https://schemas.countersign.dev/countersign/tool-catalogue/v1", "name": "desk", "tools": tools}.bytes()
}

// writeTool is the tool of allowedCall.
func writeTool(more object) object {
	o := object{"name": "files.write", "aliases": []string{"write_file"}, "category": "write", "risk": "write"}
	for k, v := range more {
		o[k] = v
	}
	return o
}

func documentFile(t testing.TB, data []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "document.json")
	ok(t, os.WriteFile(file, data, 0o600))
	return file
}

// A tool catalogue that an operator puts decides at once, offline as in the
// service, and can be taken out of force again.
func TestToolCatalogue(t *testing.T) {
	t.Parallel()
	s := start(t, "--policy", policyDir(t, "all.yaml", allowAll))
	r := s.runtime(t)
	decided := func(name string, e object, headers ...string) answer {
		t.Helper()
		return r.admit(t, "agenthook", e.bytes(), headers...)
	}
	becomes := func(what string, e func() object, verdict, reason string) (a answer) {
		t.Helper()
		eventually(t, what, func() error {
			if a = decided(what, e()); a.verdict != verdict || reason != "" && a.body.text("reason") != reason {
				return errorf("%s: %s", a.verdict, a.msg.Data)
			}
			return nil
		})
		return a
	}
	call := func() object { return allowedCall("s-tools", "c1") }
	becomes("no catalogue: the tool is unknown", call, "ask", "")

	// Into force, with a warning about policies that name the alias.
	put := s.run(t, "publisher", "put", "--json", documentFile(t, toolCatalogue(writeTool(nil)))).want(t, 0)
	var report struct {
		Name     string
		Revision uint64
		Changed  bool
	}
	ok(t, json.Unmarshal([]byte(put.out), &report))
	if report.Name != "tools.desk" || report.Revision == 0 || !report.Changed {
		t.Errorf("put says %s", put.out)
	}
	known := becomes("an alias is the canonical name to policies", call, "allow", "")
	becomes("a tool that is in no catalogue", func() object { return unknownCall("s-tools", "c2") }, "ask", "")
	becomes("an alias in another case", func() object { return call().with("tool_name", "Write_File") }, "deny", "tool_name_case")
	becomes("an identity of another tool", func() object {
		return call().with("metadata.tool_identity", object{"canonical_name": "files.delete", "provider_name": "write_file", "source": "e2e"})
	}, "deny", "tool_identity_mismatch")

	// The record keeps both names and the revision.
	db := s.auditors(t)
	d := atSeq(t, db, known.seq).body(t)
	if d.text("tool") != "write_file" || d.text("canonical_tool") != "files.write" || d.text("publishers.digest") == "" {
		t.Errorf("the record says %v", d)
	}
	if !slices.Contains(reasons(d), "canonical_name") {
		t.Errorf("reasons %v", reasons(d))
	}

	// A push says which policies name the alias: they will not see it.
	listed := policyDir(t, "listed.yaml", strings.Replace(allowAll, "metadata:", "# write_file\nmetadata:", 1))
	if said := s.run(t, "policy", "push", "--dry-run", listed).want(t, 0); !strings.Contains(said.err, "the policy file listed.yaml mentions write_file: policies see that tool as files.write") {
		t.Errorf("the push says %s", said.err)
	}

	// A document that cannot be used is refused before it can deny every request.
	two := toolCatalogue(writeTool(nil), object{"name": "files.other", "aliases": []string{"Write_File"}})
	s.run(t, "publisher", "put", documentFile(t, two)).want(t, 1).oneLine(t, "files.write", "nothing was put")
	s.run(t, "publisher", "put", documentFile(t, []byte(`{"schema":"x"}`))).want(t, 1).oneLine(t, "nothing was put")

	// A requirement, a list, an old revision, and out of force.
	s.run(t, "publisher", "put", documentFile(t, toolCatalogue(writeTool(object{"requires": []string{"mandate"}})))).want(t, 0)
	becomes("a mandate is required", call, "deny", "mandate_required")
	denied := decided("an unknown mandate", call().with("metadata.aump", object{"mandate_ref": object{"id": "aump_mnd_nobody", "hash": "sha256-" + strings.Repeat("0", 64)},
		"proposed_action": object{"type": "files.write", "summary": "x"}}))
	if denied.verdict != "deny" || denied.body.text("reason") != "mandate_not_found" {
		t.Errorf("%s", denied.msg.Data)
	}
	var list []struct {
		Name     string
		Kind     string
		Revision uint64
	}
	ok(t, json.Unmarshal([]byte(s.run(t, "publisher", "list", "--json").want(t, 0).out), &list))
	list = slices.DeleteFunc(list, func(d struct {
		Name     string
		Kind     string
		Revision uint64
	}) bool {
		return d.Kind == "registration" // of the runtime, as reached through the gateway of `up`
	})
	if len(list) != 1 || list[0].Name != "tools.desk" || list[0].Kind != "tools" || list[0].Revision <= report.Revision {
		t.Errorf("list says %+v", list)
	}
	if got := s.run(t, "publisher", "get", "tools.desk").want(t, 0).out; !strings.Contains(got, "requires") {
		t.Errorf("get says %s", got)
	}
	s.run(t, "publisher", "remove", "tools.desk").want(t, 0)
	becomes("no catalogue again", call, "ask", "")
	s.run(t, "publisher", "remove", "tools.desk").want(t, 1).oneLine(t, "no document tools.desk in force")

	// Every change is on the log, before the first decision that it made.
	eventually(t, "the changes are in evidence", func() error {
		if n := len(evidence(t, db, "kind = 'control' AND subject = 'gov.control.GOV.publisher'")); n < 3 {
			return errorf("%d control records", n)
		}
		return nil
	})
	s.exact(t)
	s.verified(t, 0)
}

// A registration holds an authenticated publisher to what it declares; the same
// event is decided anew whenever it is sent.
func TestPublisherRegistration(t *testing.T) {
	t.Parallel()
	s := start(t, "--policy", policyDir(t, "all.yaml", allowAll))
	r := s.runtime(t)
	types := object{}
	for _, name := range []string{"SessionStart", "SessionEnd", "UserPromptSubmit", "PostLLMCall", "ModelResponse", "PreToolUse", "PostToolUse", "AgentHandoff", "ErrorOccurred"} {
		types[name] = "supported"
	}
	types["PreLLMCall"], types["AgentHandoff"] = "not_exposed", "planned"
	manifest := object{
		"schema": "https://agenthook.org/schemas/publisher-manifest.v1.json", "schema_version": "1.0", "publisher_id": "com.example.e2e", "display_name": "E2E",
		"maintainer": object{"name": "E", "url": "https://e.example"}, "runtime": object{"vendor": "E", "name": "E", "versions_tested": []string{}},
		"agenthook":   object{"version": "0.2", "source": "e2e-agent", "events": types},
		"entrypoints": object{"command": "c", "installer": "i"}, "config": object{"files": []string{}}, "limitations": []string{},
		"verification": object{"self_attested": true, "conformance": "pending", "last_tested": "2026-11-20", "commands": []string{}},
	}
	same := allowedCall("s-registered", "c1").with("evidence_phase", nil) // one event, sent again and again
	llm := hook("s-registered", "PreLLMCall")
	ask := func(e object) string {
		a := r.admit(t, "agenthook", e.bytes())
		return a.verdict + " " + a.body.text("reason")
	}
	before := ask(llm)
	s.run(t, "publisher", "put", documentFile(t, manifest.bytes())).want(t, 0)
	eventually(t, "the manifest is honoured", func() error {
		if got := ask(llm); got != "deny event_type_not_exposed" {
			return errorf("%s, before %s", got, before)
		}
		return nil
	})
	if got := ask(same); strings.HasPrefix(got, "deny") {
		t.Errorf("a manifest alone demands a profile: %s", got)
	}
	registration := object{"schema": "https://schemas.countersign.dev/countersign/publisher-registration/v1", "publisher": r.publisher,
		"profiles": []string{"admission-bound"}, "fail_mode": "fail_closed", "manifest": manifest}
	s.run(t, "publisher", "put", documentFile(t, registration.bytes())).want(t, 0)
	eventually(t, "the profile is demanded", func() error {
		if got := ask(same); got != "deny not_pre_commit" {
			return errorf("%s", got)
		}
		return nil
	})
	if got := ask(allowedCall("s-registered", "c2").with("source", "another-agent")); got != "deny publisher_mismatch" {
		t.Errorf("another family: %s", got)
	}
	if got := ask(postToolUse(allowedCall("s-registered", "c3")).with("source", "another-agent")); got != "allow observational" {
		t.Errorf("what only reports is judged: %s", got)
	}
	declaredExcuses(t, s, r)
	s.run(t, "publisher", "remove", "registration."+r.publisher+".com.example.e2e").want(t, 0)
	eventually(t, "the same event is decided anew", func() error {
		if got := ask(same); strings.HasPrefix(got, "deny") {
			return errorf("%s", got)
		}
		return nil
	})
	if n := len(evidence(t, s.auditors(t), "kind = 'decision' AND session = 's-registered'")); n == 0 {
		t.Log("the auditor is behind")
	}
	s.exact(t)
}

// declaredExcuses: conformance excuses what the manifest in force declares, and names a manifest
// that excuses no publisher.
func declaredExcuses(t *testing.T, s *system, r runtimeClient) {
	t.Helper()
	r.publish(t, allowedCall("s-declared", "c1"))
	s.settle(t)
	handoffs := func(args ...string) (outcome, said string) {
		got := s.run(t, append([]string{"conformance", "--profile", "bronze", "--json"}, args...)...).want(t, 0)
		_, got.err, _ = strings.Cut("\n"+got.err, "verify proves the index\n") // what every answer from the index says
		for _, line := range jsonLines(t, got.out)[0]["requirements"].([]any) {
			if o := object(line.(map[string]any)); o.text("id") == "handoff" {
				return o.text("outcome"), got.err
			}
		}
		return "no such line", got.err
	}
	if got, said := handoffs(); got != "not_exercised" || said != "" {
		t.Errorf("without the manifest: %s %s", got, said)
	}
	if got, said := handoffs("--declared"); got != "excused" || !strings.Contains(said, "excused no publisher in this report: com.example.e2e") {
		t.Errorf("with the manifests in force, one registered and one not: %s %s", got, said)
	}
	s.run(t, "publisher", "remove", "manifest.com.example.e2e").want(t, 0)
	if got, said := handoffs("--declared"); got != "excused" || said != "" {
		t.Errorf("with the registration alone: %s %s", got, said)
	}
}

// Offline, the same documents give the same verdicts.
func TestPublishersOffline(t *testing.T) {
	t.Parallel()
	needPrograms(t)
	dir, request := t.TempDir(), documentFile(t, allowedCall("s-offline", "c1").bytes())
	ok(t, os.WriteFile(filepath.Join(dir, "tools.json"), toolCatalogue(writeTool(object{"requires": []string{"contract"}})), 0o600))
	policies := policyDir(t, "all.yaml", allowAll)
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"without": {nil, `{"verdict":"ask"`}, "with": {[]string{"--publishers", dir}, `contract_required`},
	} {
		got := tool(t, append([]string{"evaluate", "--protocol", "agenthook", "--policy", policies, request}, c.args...)...).want(t, 0)
		if !strings.Contains(got.out, c.want) {
			t.Errorf("%s: %s", name, got.out)
		}
	}
	tool(t, "evaluate", "--protocol", "agenthook", "--publishers", t.TempDir(), request).want(t, 2).oneLine(t, "no *.json file")
	tool(t, "publisher", "validate", filepath.Join(dir, "tools.json")).want(t, 0)
}

// An AgentHook call that names a mandate is judged by it, and spends its money
// like AUMP's own requests.
func TestHookUnderMandate(t *testing.T) {
	t.Parallel()
	s := start(t, "--policy", policyDir(t, "all.yaml", allowAll))
	r := s.runtime(t)
	const id = "aump_mnd_e2e_hook"
	m := shopping(id)
	s.run(t, "mandate", "put", mandateFile(t, m)).want(t, 0)
	s.run(t, "publisher", "put", documentFile(t, toolCatalogue(object{"name": "shop.buy", "aliases": []string{"buy"}, "requires": []string{"mandate"},
		"mandate": object{"action": "buy_tea", "total_minor": "/minor", "currency": "EUR"}}))).want(t, 0)
	buy := func(call string, minor int, action object) object {
		return preToolUse("s-hook-mandate", call, "buy", object{"minor": minor}).
			with("metadata.aump", object{"mandate_ref": object{"id": id, "hash": mandateHash(m)}, "proposed_action": action})
	}
	ask := func(e object, headers ...string) string {
		a := r.admit(t, "agenthook", e.bytes(), headers...)
		return a.verdict + " " + a.body.text("reason")
	}
	eventually(t, "mandate and catalogue are in force", func() error {
		// in a session of its own: until the catalogue is in force the tool is unknown, and a
		// reviewer is asked
		if got := ask(buy("c1", 600, purchase(700)).with("session_id", "s-hook-before")); got != "deny mandate_amount_mismatch" {
			return errorf("%s", got)
		}
		return nil
	})
	for _, c := range []struct {
		what, got, want string
	}{
		{"within the budget", ask(buy("c2", 600, purchase(600))), "allow allowed_by_policy"},
		{"asked again", ask(buy("c2", 600, purchase(600))), "allow allowed_by_policy"},
		{"what is left is too little", ask(buy("c3", 600, purchase(600))), "deny hard_constraint_violation"},
		{"what is left is enough", ask(buy("c4", 400, purchase(400))), "allow allowed_by_policy"},
		{"named by headers, nothing left", ask(preToolUse("s-hook-mandate", "c5", "buy", object{"minor": 1}),
			"Aump-Mandate-Id", id, "Aump-Mandate-Hash", mandateHash(m)), "deny hard_constraint_violation"},
		{"no mandate", ask(preToolUse("s-hook-mandate", "c6", "buy", object{"minor": 1})), "deny mandate_required"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s, want %s", c.what, c.got, c.want)
		}
	}
	s.exact(t)
}
