package aioc_test

import (
	"fmt"
	"strings"
	"testing"
)

// Bad input: the protocol's own refusal, a reason code, a decision record.
func TestBadInput(t *testing.T) {
	raw := `"{\"reportId\":\"hunter2-secret\",\"n\":1.0}"`
	parsed := `"parsedArguments":{"reportId":"hunter2-secret","n":1.0}`
	deep := strings.Repeat("[", 70) + strings.Repeat("]", 70)
	for name, c := range map[string]struct{ body, code string }{
		"empty":                     {"", "not_json"},
		"not JSON":                  {"nonsense", "not_json"},
		"null":                      {"null", "not_object"},
		"list":                      {"[" + toolCall + "]", "not_object"},
		"text":                      {`"allow"`, "not_object"},
		"not UTF-8":                 {"{\"agentName\":\"\xff\"}", "invalid_utf8"},
		"key twice":                 {edit(t, toolCall, `"turn":3`, `"turn":3,"toolName":"rm"`), "duplicate_key"},
		"key in two cases":          {edit(t, toolCall, `"turn":3`, `"turn":3,"ToolName":"rm"`), "case_collision"},
		"two documents":             {toolCall + toolCall, "trailing_data"},
		"too deep":                  {edit(t, toolCall, `"context":{"actor"`, `"deep":`+deep+`,"context":{"actor"`), "too_deep"},
		"integer beyond 2^53":       {edit(t, toolCall, `"n":1.0}`, `"n":9007199254740993}`, `\"n\":1.0`, `\"n\":9007199254740993`), "unsafe_integer"},
		"empty object":              {"{}", "schema_invalid"},
		"extra key":                 {edit(t, toolCall, `"turn":3`, `"turn":3,"approved":true`), "schema_invalid"},
		"decision in the request":   {edit(t, toolCall, `"turn":3`, `"turn":3,"decision":"allow"`), "schema_invalid"},
		"tool absent":               {edit(t, toolCall, `"toolName":"export_report",`, ""), "schema_invalid"},
		"tool null":                 {edit(t, toolCall, `"export_report"`, "null"), "schema_invalid"},
		"tool empty":                {edit(t, toolCall, `"export_report"`, `""`), "schema_invalid"},
		"tool list":                 {edit(t, toolCall, `"export_report"`, `["export_report"]`), "schema_invalid"},
		"agent absent":              {edit(t, toolCall, `"agentName":"Finance Agent",`, ""), "schema_invalid"},
		"agent empty":               {edit(t, toolCall, `"Finance Agent"`, `""`), "schema_invalid"},
		"turn absent":               {edit(t, toolCall, `,"turn":3`, ""), "schema_invalid"},
		"turn zero":                 {edit(t, toolCall, `"turn":3`, `"turn":0`), "schema_invalid"},
		"turn negative":             {edit(t, toolCall, `"turn":3`, `"turn":-1`), "schema_invalid"},
		"turn text":                 {edit(t, toolCall, `"turn":3`, `"turn":"3"`), "schema_invalid"},
		"turn fraction":             {edit(t, toolCall, `"turn":3`, `"turn":3.5`), "schema_invalid"},
		"no arguments at all":       {edit(t, toolCall, `"rawArguments":`+raw+`,`, "", parsed+`,`, ""), "schema_invalid"},
		"raw arguments null":        {edit(t, toolCall, raw, "null"), "schema_invalid"},
		"raw arguments object":      {edit(t, toolCall, raw, "{}"), "schema_invalid"},
		"run context null":          {edit(t, toolCall, `{"context":{"actor":{"groups":["finance"]}}}`, "null"), "schema_invalid"},
		"run context list":          {edit(t, toolCall, `{"context":{"actor":{"groups":["finance"]}}}`, "[]"), "schema_invalid"},
		"hash null":                 {edit(t, toolCall, `"turn":3`, `"turn":3,"proposalHash":null`), "schema_invalid"},
		"hash of another protocol":  {edit(t, toolCall, `"turn":3`, `"turn":3,"proposalHash":"sha256:`+strings.Repeat("0", 64)+`"`), "schema_invalid"},
		"canonical form null":       {edit(t, toolCall, `"turn":3`, `"turn":3,"argsCanonicalJson":null`), "schema_invalid"},
		"call id empty":             {edit(t, toolCall, `"turn":3`, `"turn":3,"callId":""`), "schema_invalid"},
		"tool name too long":        {edit(t, toolCall, "export_report", strings.Repeat("x", 600)), "field_too_long"},
		"agent name too long":       {edit(t, toolCall, "Finance Agent", strings.Repeat("x", 600)), "field_too_long"},
		"a handoff as tool":         {strings.Replace(handoffCall, "toAgentName", "toAgent", 1), "schema_invalid"},
		"handoff, no target":        {edit(t, handoffCall, `"toAgentName":"Finance Agent",`, ""), "schema_invalid"},
		"handoff, target null":      {edit(t, handoffCall, `"Finance Agent"`, "null"), "schema_invalid"},
		"handoff, target empty":     {edit(t, handoffCall, `"Finance Agent"`, `""`), "schema_invalid"},
		"handoff, no origin":        {edit(t, handoffCall, `"fromAgentName":"Triage Agent",`, ""), "schema_invalid"},
		"handoff, no payload":       {edit(t, handoffCall, `"handoffPayload":{"reason":"hunter2-secret"},`, ""), "schema_invalid"},
		"handoff, tool name":        {edit(t, handoffCall, `"turn":2`, `"turn":2,"toolName":"x"`), "schema_invalid"},
		"handoff, target too long":  {edit(t, handoffCall, "Finance Agent", strings.Repeat("x", 600)), "field_too_long"},
		"handoff, hash of the args": {edit(t, handoffCall, `"turn":2`, `"turn":2,"payloadCanonicalJson":7`), "schema_invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			out := decide(c.body, anything(t))
			if got := says(t, out); got != "deny "+c.code+" throw" {
				t.Errorf("%s: %s", got, codes(out))
			}
			if !out.Malformed || out.ErrorCode != "400" || !strings.HasPrefix(out.ErrorDescription, c.code) {
				t.Errorf("micro error %s %s", out.ErrorCode, out.ErrorDescription)
			}
			invariants(t, out, c.body)
			noSecrets(t, out)
		})
	}
}

// Proposals that are readable and must not be decided on.
func TestObjections(t *testing.T) {
	tool := func(args string) string {
		return fmt.Sprintf(`{"agentName":"a","toolName":"t","parsedArguments":%s,"turn":1}`, args)
	}
	for name, c := range map[string]struct{ body, reply, record string }{
		"arguments list":          {tool(`[1]`), "deny invalid_arguments throw", "deny invalid_arguments@/parsedArguments ok"},
		"arguments null":          {tool(`null`), "deny invalid_arguments throw", "deny invalid_arguments@/parsedArguments ok"},
		"arguments text":          {tool(`"x"`), "deny invalid_arguments throw", "deny invalid_arguments@/parsedArguments ok"},
		"arguments number":        {tool(`7`), "deny invalid_arguments throw", "deny invalid_arguments@/parsedArguments ok"},
		"array index as key":      {tool(`{"a":{"10":1}}`), "deny ambiguous_key throw", "deny ambiguous_key@/parsedArguments/a/10 ok"},
		"prototype as key":        {tool(`{"__proto__":{"x":1}}`), "deny ambiguous_key throw", "deny ambiguous_key@/parsedArguments/__proto__ ok"},
		"payload null":            {edit(t, handoffCall, `{"reason":"hunter2-secret"}`, "null"), "deny invalid_arguments throw", "deny invalid_arguments@/handoffPayload ok"},
		"payload with index":      {edit(t, handoffCall, `"reason"`, `"0"`), "deny ambiguous_key throw", "deny ambiguous_key@/handoffPayload/0 ok"},
		"__raw":                   {`{"agentName":"a","toolName":"t","rawArguments":"{bad","parsedArguments":{"__raw":"{bad"},"turn":1}`, "deny invalid_arguments throw", "deny ok invalid_arguments"},
		"__raw, text alone":       {`{"agentName":"a","toolName":"t","rawArguments":"{bad","turn":1}`, "deny invalid_arguments throw", "deny ok invalid_arguments"},
		"__raw, parsed alone":     {tool(`{"__raw":"{bad"}`), "deny invalid_arguments throw", "deny ok invalid_arguments"},
		"__raw, by the model":     {`{"agentName":"a","toolName":"t","rawArguments":"{\"__raw\":\"x\",\"y\":1}","turn":1}`, "deny invalid_arguments throw", "deny ok invalid_arguments"},
		"__raw as payload":        {edit(t, handoffCall, `"reason"`, `"__raw"`), "deny invalid_arguments throw", "deny ok invalid_arguments"},
		"blank arguments":         {`{"agentName":"a","toolName":"t","rawArguments":" \n","parsedArguments":{},"turn":1}`, "allow ok", "allow ok"},
		"text alone":              {`{"agentName":"a","toolName":"t","rawArguments":"{\"x\":1}","turn":1}`, "allow ok", "allow ok"},
		"parsed alone":            {tool(`{"x":1}`), "allow ok", "allow ok"},
		"parsed is another":       {`{"agentName":"a","toolName":"t","rawArguments":"{\"x\":1}","parsedArguments":{"x":2},"turn":1}`, "deny arguments_mismatch throw", "deny arguments_mismatch@/parsedArguments"},
		"parsed is a type":        {`{"agentName":"a","toolName":"t","rawArguments":"{\"x\":1}","parsedArguments":{"x":"1"},"turn":1}`, "deny arguments_mismatch throw", "deny arguments_mismatch@/parsedArguments"},
		"parsed is null":          {`{"agentName":"a","toolName":"t","rawArguments":"{\"x\":1}","parsedArguments":null,"turn":1}`, "deny arguments_mismatch throw", "deny arguments_mismatch@/parsedArguments"},
		"parsed hides __raw":      {`{"agentName":"a","toolName":"t","rawArguments":"{bad","parsedArguments":{},"turn":1}`, "deny arguments_mismatch throw", "deny arguments_mismatch@/parsedArguments"},
		"written differently":     {`{"agentName":"a","toolName":"t","rawArguments":" {\"y\":1.0, \"x\":\"\\u0041\"} ","parsedArguments":{"x":"A","y":1},"turn":1}`, "allow ok", "allow ok"},
		"raw has a key twice":     {`{"agentName":"a","toolName":"t","rawArguments":"{\"x\":1,\"x\":2}","parsedArguments":{"x":2},"turn":1}`, "deny duplicate_key throw", "deny duplicate_key@/rawArguments/x"},
		"raw has case twins":      {`{"agentName":"a","toolName":"t","rawArguments":"{\"x\":1,\"X\":2}","parsedArguments":{"x":1},"turn":1}`, "deny case_collision throw", "deny case_collision@/rawArguments/X"},
		"raw has a big integer":   {`{"agentName":"a","toolName":"t","rawArguments":"{\"x\":9007199254740993}","parsedArguments":{"x":9007199254740992},"turn":1}`, "deny unsafe_integer throw", "deny unsafe_integer@/rawArguments/x"},
		"right hash":              {`{"agentName":"Policy unit agent","toolName":"ping","parsedArguments":{},"argsCanonicalJson":"{}","proposalHash":"486e7d858f077daf704366bd7f7742a58955c40c0e173da363ab9fa5f47f4a41","turn":1}`, "allow ok", "allow ok"},
		"hash of another tool":    {`{"agentName":"Policy unit agent","toolName":"pong","parsedArguments":{},"proposalHash":"486e7d858f077daf704366bd7f7742a58955c40c0e173da363ab9fa5f47f4a41","turn":1}`, "deny proposal_mismatch throw", "deny proposal_mismatch@/proposalHash"},
		"hash of other arguments": {`{"agentName":"Policy unit agent","toolName":"ping","parsedArguments":{"a":1},"proposalHash":"486e7d858f077daf704366bd7f7742a58955c40c0e173da363ab9fa5f47f4a41","turn":1}`, "deny proposal_mismatch throw", ""},
		"canonical form differs":  {`{"agentName":"a","toolName":"t","parsedArguments":{"a":1},"argsCanonicalJson":"{\"a\":1.0}","turn":1}`, "deny proposal_mismatch throw", ""},
		"canonical form empty":    {`{"agentName":"a","toolName":"t","parsedArguments":{},"argsCanonicalJson":"","turn":1}`, "deny proposal_mismatch throw", ""},
		"right handoff hash":      {`{"fromAgentName":"Source Agent","toAgentName":"Target Agent","handoffPayload":{},"payloadCanonicalJson":"{}","proposalHash":"90e9cee058113d9e05b11975e94ff8424a18eb8cbc7864f6511f190055f7a290","turn":1}`, "allow ok", "allow ok"},
		"hash of another source":  {`{"fromAgentName":"Other","toAgentName":"Target Agent","handoffPayload":{},"proposalHash":"90e9cee058113d9e05b11975e94ff8424a18eb8cbc7864f6511f190055f7a290","turn":1}`, "deny proposal_mismatch throw", ""},
		"handoff name":            {edit(t, handoffCall, `"turn":2`, `"turn":2,"handoffName":"handoff_to_finance_agent_2"`), "allow ok", "allow ok"},
		"handoff name of a tool":  {edit(t, handoffCall, `"turn":2`, `"turn":2,"handoffName":"delete_db"`), "deny handoff_name_mismatch throw", ""},
		"handoff name of another": {edit(t, handoffCall, `"turn":2`, `"turn":2,"handoffName":"handoff_to_hr"`), "deny handoff_name_mismatch throw", ""},
		"constructor":             {strings.Replace(tool(`{}`), `"t"`, `"constructor"`, 1), "deny deny_unconfigured_tool_constructor throw", "deny reserved_name@/toolName ok"},
		"handoff to __proto__":    {edit(t, handoffCall, "Finance Agent", "__proto__"), "deny deny_unconfigured_handoff___proto__ throw", "deny reserved_name@/toAgentName ok"},
	} {
		t.Run(name, func(t *testing.T) {
			out := decide(c.body, anything(t))
			if got := says(t, out); got != c.reply {
				t.Errorf("reply  %s\nwant   %s", got, c.reply)
			}
			if got := codes(out); c.record != "" && got != c.record {
				t.Errorf("record %s\nwant   %s", got, c.record)
			}
			invariants(t, out, c.body)
		})
	}
	t.Run("no policy comes first", func(t *testing.T) {
		for _, body := range []string{tool(`[1]`), tool(`{"10":1}`), tool(`{"__raw":"x"}`), strings.Replace(tool(`{}`), `"t"`, `"valueOf"`, 1)} {
			if got := says(t, decide(body, nil)); got != "deny policy_not_configured throw" {
				t.Errorf("%s: %s", body, got)
			}
		}
	})
	t.Run("a policy that accepts __raw", func(t *testing.T) {
		accepts := strings.Replace(pol("raw", "{tools: [t]}", "ask raw soft: has(args.__raw)"), "spec:\n", "spec:\n  acceptRawArguments: true\n", 1)
		if got := says(t, decide(tool(`{"__raw":"{bad"}`), snapshot(t, accepts))); got != "require_approval raw tool_result" {
			t.Error(got)
		}
	})
}
