package e2e_test

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"
)

// rawCodec sends and receives messages that are bytes already.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }

func (rawCodec) Unmarshal(b []byte, v any) error {
	*v.(*[]byte) = append([]byte{}, b...)
	return nil
}

func (rawCodec) Name() string { return "proto" }

// extField is a field of a message of ExtMCP.
func extField(number protowire.Number, value string) string {
	return string(protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), value))
}

// extMember is the value behind numbers, each a field in the one before; "" for none.
func extMember(message string, numbers ...protowire.Number) string {
	for _, want := range numbers {
		rest, found := []byte(message), ""
		for len(rest) > 0 {
			number, kind, n := protowire.ConsumeTag(rest)
			size := protowire.ConsumeFieldValue(number, kind, rest[max(n, 0):])
			if n < 0 || size < 0 {
				return ""
			}
			if value, _ := protowire.ConsumeBytes(rest[n:]); number == want && kind == protowire.BytesType {
				found = string(value)
			}
			rest = rest[n+size:]
		}
		message = found
	}
	return message
}

// The decision point as agentgateway asks it, before the real gateway: what is allowed passes under an id,
// under which its result is reported.
func testDecideAgentGateway(t *testing.T, v *served) {
	for want, flags := range map[string][]string{
		"not on loopback": {"--agentgateway", "0.0.0.0:0"}, "--client-ca needs": {"--agentgateway", "127.0.0.1:0", "--client-ca", "ca.pem"},
		"--outcomes must be": {"--agentgateway", "127.0.0.1:0", "--outcomes", "11m"}, "say who may ask": {"--outcomes", "1m"},
	} {
		if r := v.run(t, append([]string{"mcp", "decide"}, flags...)...); r.code == 0 || !strings.Contains(r.err, want) {
			t.Errorf("%q: %+v", flags, r)
		}
	}
	before := v.outcomes(t)
	cmd := exec.Command(program("countersign-mcp"), "decide", "--agentgateway", "127.0.0.1:0", "--outcomes", "5m", "--hold", "2s")
	cmd.Env = v.env
	ended := make(chan error, 1)
	url := listening(t, cmd, "deciding at ", ended)
	conn, err := grpc.NewClient("passthrough:///"+strings.TrimPrefix(url, "http://"), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodec(rawCodec{})))
	ok(t, err)
	defer conn.Close()
	told := func(method, body, name, value string) string {
		q, result := []byte(extField(1, "kit")+extField(2, "tools/call")+extField(4, body)), []byte(nil)
		if value != "" {
			q = append(q, extField(3, extField(1, extField(1, name)+extField(2, extField(3, value))))...)
		}
		ok(t, conn.Invoke(t.Context(), "/agentgateway.dev.ext_mcp.ExtMcp/"+method, &q, &result))
		return string(result)
	}
	check := func(method, body, id string) string { return told(method, body, "countersign_call", id) }
	for path, result := range map[string]string{"allowed-ext-succeeded": `{"content":[]}`, "allowed-ext-failed": `{"content":[],"isError":true}`, "allowed-ext-unknown": ""} {
		answer := check("CheckRequest", `{"name":"touch","arguments":{"path":"`+path+`"}}`, "")
		id := extMember(answer, 5, 1, 2, 3)
		if !strings.HasPrefix(answer, extField(1, "")) || id == "" {
			t.Fatalf("%s: %q", path, answer)
		}
		if result != "" {
			if answer := check("CheckResponse", result, id); answer != extField(1, "") {
				t.Errorf("the result of %s: %q", path, answer)
			}
		}
	}
	answer := check("CheckRequest", `{"name":"touch","arguments":{"path":"forbidden-ext"}}`, "")
	if text := extMember(answer, 3, 2); !strings.Contains(text, "This word is forbidden. (deny)") {
		t.Errorf("a denied call: %q", answer)
	}
	const asked = `{"name":"touch","arguments":{"path":"asked-ext"}}`
	workflowOf := func(answer string) string {
		var refusal struct {
			Workflow string `json:"workflow_id"`
		}
		if err := json.Unmarshal([]byte(extMember(answer, 3, 3)), &refusal); err != nil || !strings.Contains(extMember(answer, 3, 2), refusal.Workflow) || refusal.Workflow == "" {
			t.Fatalf("a call that waits: %q", answer)
		}
		return refusal.Workflow
	}
	// An approval of one caller's call is none of the identical call of another, and the reviewer sees whose it is.
	of := func(user string) string {
		return told("CheckRequest", strings.Replace(asked, "asked-ext", "asked-of", 1), "user", user)
	}
	alice, bob := workflowOf(of("alice")), workflowOf(of("bob"))
	shown := v.run(t, "approvals", "show", alice).want(t, 0).out
	if alice == bob || !strings.Contains(shown, "alice") || strings.Contains(shown, "bob") {
		t.Errorf("%s and %s: %s", alice, bob, shown)
	}
	v.run(t, "approvals", "approve", alice, "--yes", "--reason", "alice may").want(t, 0)
	if workflowOf(of("bob")) != bob || extMember(of("alice"), 5, 1, 2, 3) == "" {
		t.Error("the approval of alice's call is not hers alone")
	}
	v.run(t, "approvals", "cancel", bob, "--reason", "not looked at").want(t, 0)
	workflow := workflowOf(check("CheckRequest", asked, ""))
	v.run(t, "approvals", "approve", workflow, "--yes", "--reason", "looked at it").want(t, 0)
	if answer = check("CheckRequest", asked, ""); extMember(answer, 5, 1, 2, 3) == "" {
		t.Errorf("after the approval: %q", answer)
	}
	if answer = check("CheckRequest", asked, ""); extMember(answer, 3, 2) == "" {
		t.Error("one approval, two calls")
	}
	ok(t, cmd.Process.Signal(syscall.SIGTERM))
	ok(t, <-ended)
	_, after, _ := strings.Cut(shown, " session ")
	session, _, _ := strings.Cut(strings.TrimSpace(after), "\n")
	all, sessions, got := v.outcomes(t), 0, []string{}
	for session, outcomes := range all {
		if before[session] == nil {
			sessions, got = sessions+1, append(got, outcomes...)
		}
	}
	slices.Sort(got)
	if want := []string{"blocked", "blocked", "blocked", "failed", "succeeded", "unknown", "unknown", "unknown"}; !slices.Equal(got, want) || sessions != 3 || len(all[session]) != 1 {
		t.Errorf("outcomes on record: %q, want %q; in %d sessions, of alice %q", got, want, sessions, all[session])
	}
}

// outcomes are those of all calls, by session.
func (v *served) outcomes(t *testing.T) map[string][]string {
	t.Helper()
	v.settle(t)
	bySession := map[string][]string{}
	for line := range strings.Lines(v.run(t, "calls", "--json").want(t, 0).out) {
		var row struct {
			Call struct{ Session, Outcome string }
		}
		ok(t, json.Unmarshal([]byte(line), &row))
		if row.Call.Outcome != "" {
			bySession[row.Call.Session] = append(bySession[row.Call.Session], row.Call.Outcome)
		}
	}
	return bySession
}
