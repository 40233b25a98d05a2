package hookgate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/hook"
	"github.com/countersign-dev/countersign/internal/gateclient"
	"github.com/countersign-dev/countersign/internal/owner"
)

// place is a gate's home: its configuration and its memory of calls.
type place struct{ config, token, key string }

// hastily gives the gate the shortest budget.
func hastily(c *gateclient.Config) { c.Budget = "1s" }

// settle makes a home whose gateway is at url, and its state directory. No refusal of these tests reaches
// its budget, however busy the machine is.
func settle(t *testing.T, url string, edit func(*gateclient.Config)) place {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("XDG_STATE_HOME", dir)
	p := place{filepath.Join(dir, "hook.json"), filepath.Join(dir, "token"), filepath.Join(dir, "checkpoint.pub")}
	c := gateclient.Config{Gateway: url, TokenFile: p.token, PublicKeyFile: p.key, Tenant: "acme", Publisher: "runtime", Budget: "30s"}
	if edit != nil {
		edit(&c)
	}
	for path, text := range map[string]any{p.token: "secret-token", p.key: "countersign.dev/checkpoint+0+A", p.config: c} {
		b, ok := text.(string)
		if !ok {
			j, err := json.Marshal(text)
			if err != nil {
				t.Fatal(err)
			}
			b = string(j)
		}
		if err := os.WriteFile(path, []byte(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// proposalOf is a call as an agent writes it.
func proposalOf(t *testing.T, a hook.Agent) []byte {
	t.Helper()
	return a.Probe("session-1", "some_tool")
}

// run runs the gate and returns its two outputs and the exit code.
func run(a hook.Agent, config string, input []byte) (out, errs string, code int) {
	var o, e bytes.Buffer
	event := ""
	if a.Name == "copilot" {
		event = "preToolUse"
	}
	code = Run(a.Name, event, ConfigPath(config, false), Stdio{bytes.NewReader(input), &o, &e})
	return o.String(), e.String(), code
}

// gateways are the ways in which a gateway can fail.
var gateways = map[string]struct {
	serve http.HandlerFunc
	code  string
}{
	"an HTTP error":            {answer(503, nil, `{"error":"unavailable","message":"no admitter"}`), "no_verdict"},
	"a refusal":                {answer(403, nil, `{"event_id":"x","decision":"deny","reason":"publisher_mismatch"}`), "no_verdict"},
	"no JSON":                  {answer(200, map[string]string{"Countersign-Verdict": "allow"}, `fine`), "no_verdict"},
	"nothing":                  {answer(200, nil, ``), "no_verdict"},
	"no verdict":               {answer(200, nil, `{"event_id":"x","decision":"allow","reason":""}`), "no_verdict"},
	"a contradiction":          {answer(200, map[string]string{"Countersign-Verdict": "allow"}, `{"event_id":"x","decision":"deny","reason":""}`), "no_verdict"},
	"an allow with no receipt": {answer(200, map[string]string{"Countersign-Verdict": "allow"}, `{"event_id":"x","decision":"allow","reason":""}`), "bad_receipt"},
	"an allow with a bad receipt": {answer(200, map[string]string{"Countersign-Verdict": "allow", "Countersign-Receipt": "a.b.c"},
		`{"event_id":"x","decision":"allow","reason":""}`), "bad_receipt"},
	"a denial":         {answer(200, map[string]string{"Countersign-Verdict": "deny"}, `{"event_id":"x","decision":"deny","reason":"too risky"}`), "deny"},
	"a defer":          {answer(200, map[string]string{"Countersign-Verdict": "defer"}, `{"event_id":"x","decision":"ask","reason":"later"}`), "defer"},
	"an unknown word":  {answer(200, map[string]string{"Countersign-Verdict": "perhaps"}, `{"event_id":"x","decision":"perhaps","reason":""}`), "perhaps"},
	"a long answer":    {answer(200, map[string]string{"Countersign-Verdict": "allow"}, strings.Repeat("x", gateclient.MaxReply+1)), "no_verdict"},
	"a cut connection": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "no_verdict"},
	"silence": {func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then does the server see that the client is gone
		<-r.Context().Done()
	}, "no_"}, // no_verdict or no_answer: both end at the budget
}

func answer(status int, header map[string]string, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for name, value := range header {
			w.Header().Set(name, value)
		}
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}
}

// Whatever the gateway does, a call is refused in the agent's words, and exactly once.
func TestGatewayFails(t *testing.T) {
	for name, g := range gateways {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(g.serve)
			defer s.Close()
			var edit func(*gateclient.Config)
			if name == "silence" {
				edit = hastily
			}
			for _, a := range hook.Agents {
				p := settle(t, s.URL, edit)
				refused(t, a, p.config, proposalOf(t, a), g.code)
			}
		})
	}
}

// refused checks that the gate refuses with a code, in the agent's words.
func refused(t *testing.T, a hook.Agent, config string, input []byte, code string) string {
	t.Helper()
	out, errs, exit := run(a, config, input)
	marker := a.Refuse("|").Stdout
	before, after, _ := strings.Cut(marker, "|")
	text := strings.TrimSuffix(strings.TrimPrefix(out, before), after)
	if exit != 0 || !strings.HasPrefix(out, before) || a.Name != "cursor" && !strings.HasSuffix(out, after) {
		t.Errorf("%s: exit %d, %q is no refusal", a.Name, exit, out)
	}
	if !strings.Contains(text, "("+code) {
		t.Errorf("%s: %q, want the code %s", a.Name, text, code)
	}
	if strings.Contains(out+errs, "secret-token") || strings.Contains(out+errs, "127.0.0.1") {
		t.Errorf("%s tells too much: %s%s", a.Name, out, errs)
	}
	if strings.Contains(out, filepath.Dir(config)) {
		t.Errorf("%s tells the model a path: %s", a.Name, out)
	}
	if local := code == "bad_configuration" || code == "memory_of_calls"; local != strings.HasPrefix(errs, "countersign: ") {
		t.Errorf("%s tells people %q of %s", a.Name, errs, code)
	}
	return text
}

// Whatever is wrong on this side, a call is refused before anything is asked.
func TestConfigurationFails(t *testing.T) {
	asked := false
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer s.Close()
	for name, edit := range map[string]func(*testing.T, place){
		"no configuration": func(_ *testing.T, p place) { _ = os.Remove(p.config) },
		"no JSON":          func(_ *testing.T, p place) { _ = os.WriteFile(p.config, []byte("{"), 0o600) },
		"no token":         func(_ *testing.T, p place) { _ = os.Remove(p.token) },
		"an empty token":   func(_ *testing.T, p place) { _ = os.WriteFile(p.token, nil, 0o600) },
		"a token for all":  func(t *testing.T, p place) { chmod(t, p.token, 0o644) },
		"no key":           func(_ *testing.T, p place) { _ = os.Remove(p.key) },
		"no ready file": func(t *testing.T, p place) {
			rewrite(t, p, func(c *gateclient.Config) { *c = gateclient.Config{ReadyFile: p.token + "-none"} })
		},
		"a ready file that was left behind": func(t *testing.T, p place) {
			gone := owner.ThisProcess()
			gone.Started += "0"
			text, err := json.Marshal(map[string]any{"gateway_url": s.URL, "tenant": "acme", "public_key": "countersign.dev/checkpoint+0+A", "owner": gone,
				"roles": map[string]any{"runtime": map[string]string{"publisher": "runtime", "token": "secret-token"}}})
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(p.token, text, 0o600); err != nil {
				t.Fatal(err)
			}
			rewrite(t, p, func(c *gateclient.Config) { *c = gateclient.Config{ReadyFile: p.token} })
		},
		"plain HTTP": func(t *testing.T, p place) {
			rewrite(t, p, func(c *gateclient.Config) { c.Gateway = "http://gateway.example" })
		},
		"no URL":             func(t *testing.T, p place) { rewrite(t, p, func(c *gateclient.Config) { c.Gateway = "gateway" }) },
		"no tenant":          func(t *testing.T, p place) { rewrite(t, p, func(c *gateclient.Config) { c.Tenant = "" }) },
		"a budget of a week": func(t *testing.T, p place) { rewrite(t, p, func(c *gateclient.Config) { c.Budget = "168h" }) },
	} {
		t.Run(name, func(t *testing.T) {
			for _, a := range hook.Agents {
				p := settle(t, s.URL, nil)
				edit(t, p)
				refused(t, a, p.config, proposalOf(t, a), "bad_configuration")
			}
		})
	}
	if asked {
		t.Error("the gateway was asked all the same")
	}
}

func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func rewrite(t *testing.T, p place, edit func(*gateclient.Config)) {
	t.Helper()
	c, err := gateclient.ReadConfig(p.config)
	if err != nil {
		t.Fatal(err)
	}
	edit(&c)
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.config, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Input that cannot be understood is refused; so are arguments that two readers could read differently.
func TestInputFails(t *testing.T) {
	s := httptest.NewServer(answer(200, map[string]string{"Countersign-Verdict": "allow"}, `{}`))
	defer s.Close()
	tooLong := bytes.Repeat([]byte(" "), hook.MaxInput+1)
	tooLarge := `{"a":"` + strings.Repeat("x", gateclient.MaxProposal) + `"}`
	for _, a := range hook.Agents {
		p := settle(t, s.URL, nil)
		for _, input := range [][]byte{nil, []byte("null"), []byte("{"), []byte("[]"), tooLong} {
			refused(t, a, p.config, input, "bad_input")
		}
		for _, args := range []string{`{"a":1,"a":2}`, `{"n":9007199254740993}`, "{\"a\":\"\xff\"}", tooLarge} {
			input := bytes.Replace(proposalOf(t, a), []byte("{}"), []byte(args), 1)
			refused(t, a, p.config, input, "bad_arguments")
		}
	}
}

// A call that may be allowed on the log, and that the gate refuses, is closed there: its receipt does not hold, or no
// verdict came. One that was certainly not decided, or that waits for a person, is not.
func TestRefusedCallsAreClosed(t *testing.T) {
	ask := answer(200, map[string]string{"Countersign-Verdict": "ask", "Countersign-Workflow-Id": "wf-1"}, `{"event_id":"x","decision":"ask","reason":"later"}`)
	unauthorized := answer(401, nil, `{"error":"unauthorized","message":"no"}`)
	for name, tt := range map[string]struct {
		first  http.HandlerFunc
		code   string
		closed bool
	}{
		"bad receipt":  {gateways["an allow with a bad receipt"].serve, "bad_receipt", true},
		"no answer":    {answer(504, nil, `{"error":"timeout","message":"no answer in time"}`), "no_verdict", true},
		"cut":          {gateways["a cut connection"].serve, "no_verdict", true},
		"no JSON":      {gateways["no JSON"].serve, "no_verdict", true},
		"no admitter":  {gateways["an HTTP error"].serve, "no_verdict", false},
		"not recorded": {answer(503, map[string]string{"Countersign-Verdict": "deny"}, `{"event_id":"x","decision":"deny","reason":"audit_unavailable"}`), "no_verdict", true},
		"overloaded":   {answer(503, map[string]string{"Countersign-Verdict": "deny"}, `{"decision":"deny","reason":"overloaded"}`), "no_verdict", false},
		"unauthorized": {unauthorized, "no_verdict", false},
		"waits":        {ask, "no_verdict", false},
	} {
		type event struct {
			Type     string `json:"event_type"`
			Metadata struct {
				Call string `json:"tool_call_id"`
			}
		}
		var sent []event
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				var e event
				_ = json.NewDecoder(r.Body).Decode(&e)
				if sent = append(sent, e); len(sent) == 1 {
					tt.first(w, r)
					return
				}
			}
			unauthorized(w, r)
		}))
		a := hook.Agents[0]
		refused(t, a, settle(t, s.URL, nil).config, proposalOf(t, a), tt.code)
		s.Close()
		call := sent[0].Metadata.Call
		if closed := slices.ContainsFunc(sent, func(e event) bool { return e.Type == "ToolUseBlocked" && e.Metadata.Call == call }); closed != tt.closed || call == "" {
			t.Errorf("%s: %+v, want it closed: %t", name, sent, tt.closed)
		}
	}
}

// A redirect does not carry the token elsewhere.
func TestNoRedirect(t *testing.T) {
	var stolen string
	thief := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { stolen = r.Header.Get("Authorization") }))
	defer thief.Close()
	s := httptest.NewServer(http.RedirectHandler(thief.URL, http.StatusTemporaryRedirect))
	defer s.Close()
	a := hook.Agents[0]
	refused(t, a, settle(t, s.URL, nil).config, proposalOf(t, a), "no_verdict")
	if stolen != "" {
		t.Error("the token went to another address")
	}
}

// brokenWriter is a closed standard output.
type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("closed") }

// Where nothing can be written, the exit code refuses.
func TestClosedOutput(t *testing.T) {
	p := settle(t, "http://127.0.0.1:1", nil)
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, a := range hook.Agents {
		for name, out := range map[string]io.Writer{"broken": brokenWriter{}, "closed from the start": null} {
			if code := Run(a.Name, "preToolUse", ConfigPath(p.config, false), Stdio{bytes.NewReader(proposalOf(t, a)), out, &bytes.Buffer{}}); code != exitRefused {
				t.Errorf("%s, %s: exit %d", a.Name, name, code)
			}
		}
	}
}

// The same call of an agent without ids gets another id each time; while it waits for a person it
// keeps its own, and what runs is reported under the id that was admitted.
func TestSameCall(t *testing.T) {
	c := calls{dir: t.TempDir()}
	g := &gate{agent: hook.Agents[2], calls: c, now: nowFixed}
	e := hook.Event{Kind: hook.Before, Session: "s", Tool: "t", Input: []byte(`{"b":1,"a":2}`)}
	key, err := sameCallKey("gemini", e)
	if err != nil {
		t.Fatal(err)
	}
	reordered := e
	reordered.Input = []byte(`{"a":2, "b":1.0}`)
	if other, err := sameCallKey("gemini", reordered); err != nil || other != key {
		t.Errorf("the order of arguments matters: %v", err)
	}
	first := mustPropose(t, g, key, e)
	second := mustPropose(t, g, key, e)
	if first.CallID == second.CallID {
		t.Error("two calls have one id")
	}
	mustRemember(t, g, key, second, "wf-1", hour)
	third := mustPropose(t, g, key, e)
	if third.CallID != second.CallID || third.Workflow != "wf-1" || !bytes.Equal(third.Event, second.Event) {
		t.Errorf("the repetition is %+v, want %+v", third, second)
	}
	mustRemember(t, g, key, third, "wf-1", hour)
	elsewhere := e
	elsewhere.CWD = "/srv/product"
	if moved := mustPropose(t, g, key, elsewhere); moved.CallID == second.CallID || moved.Workflow != "" || !bytes.Contains(moved.Event, []byte("/srv/product")) {
		t.Errorf("in another directory it is %+v", moved)
	}
	mustRemember(t, g, key, third, "wf-1", hour)
	// Another program changes what the waiting event claims: it is not sent.
	forged := third
	forged.Event = bytes.Replace(third.Event, []byte(`"operation_risk":"unknown"`), []byte(`"operation_risk":"read_only"`), 1)
	if bytes.Equal(forged.Event, third.Event) {
		t.Fatalf("nothing is forged in %s", third.Event)
	}
	if err := c.change(key, nowFixed(), func(s *sameCall) { s.Waiting = &forged }); err != nil {
		t.Fatal(err)
	}
	if got := mustPropose(t, g, key, e); got.CallID == third.CallID || bytes.Contains(got.Event, []byte("read_only")) {
		t.Errorf("a forged event is sent: %s", got.Event)
	}
	if err := g.opened(key, e, third, ""); err != nil {
		t.Fatal(err)
	}
	if of, err := g.reported(hook.Event{Kind: hook.After, Session: "s", Tool: "t", Input: e.Input}); err != nil || of.Admitted != third.CallID {
		t.Errorf("reported as %+v, %v", of, err)
	}
	mustRemember(t, g, key, third, "wf-2", -hour)
	if late := mustPropose(t, g, key, e); late.CallID == third.CallID || late.Workflow != "" {
		t.Errorf("an expired workflow is waited for: %+v", late)
	}
}

// A configuration that cannot be read, because reading it never ends, is refused, and so is a panic.
func TestWithin(t *testing.T) {
	g := &gate{agent: hook.Agents[0]}
	started := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-started; cancel() }()
	for name, work := range map[string]func(chan<- time.Duration) hook.Output{
		"internal_error": func(chan<- time.Duration) hook.Output { panic("secret-token") },
		"no_answer": func(budget chan<- time.Duration) hook.Output {
			budget <- time.Millisecond
			select {}
		},
	} {
		if out := within(t.Context(), g.fail, work); !strings.Contains(out.Stdout, "("+name+")") || strings.Contains(out.Stdout, "secret") {
			t.Errorf("%s: %q", name, out.Stdout)
		}
	}
	// A signal counts before there is a configuration.
	out := within(ctx, g.fail, func(chan<- time.Duration) hook.Output { close(started); select {} })
	if !strings.Contains(out.Stdout, "(no_answer)") {
		t.Errorf("a signal: %q", out.Stdout)
	}
}

// A memory of calls that cannot be used is a refusal. The model learns no path of it, with a full disk or a damaged file.
func TestMemoryFails(t *testing.T) {
	s := httptest.NewServer(answer(200, map[string]string{"Countersign-Verdict": "ask", "Countersign-Workflow-Id": "wf-1"}, `{"event_id":"x","decision":"ask","reason":"?"}`))
	defer s.Close()
	for _, a := range hook.Agents {
		p := settle(t, s.URL, hastily)
		if err := os.WriteFile(filepath.Join(filepath.Dir(p.config), "countersign"), nil, 0o600); err != nil { // where its directory would be
			t.Fatal(err)
		}
		refused(t, a, p.config, proposalOf(t, a), "memory_of_calls")
	}
}

// On a machine on which no call is allowed, the arguments of calls that waited for a person go, too.
func TestRefusedCallsForgetOldOnes(t *testing.T) {
	s := httptest.NewServer(gateways["a denial"].serve)
	defer s.Close()
	a := hook.Agents[0]
	p := settle(t, s.URL, nil)
	dir, err := CallsDir()
	if err != nil {
		t.Fatal(err)
	}
	c := calls{dir: dir}
	for key, age := range map[string]time.Duration{"old": 2 * gateclient.KeepCalls, "young": hour} {
		if err := c.change(key, time.Now(), func(s *sameCall) { s.Waiting = &waiting{Event: []byte(`{}`), Until: time.Now().Add(hour)} }); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-age)
		if err := os.Chtimes(filepath.Join(dir, key), at, at); err != nil {
			t.Fatal(err)
		}
	}
	refused(t, a, p.config, proposalOf(t, a), "deny")
	if c.has("old") || !c.has("young") {
		t.Errorf("the old call is remembered: %t, the young one: %t", c.has("old"), c.has("young"))
	}
}

// A call that waits for a person is refused with the place where that person decides: a page, if the configuration
// names one, and the command that shows the workflow otherwise.
func TestWhereAPersonDecides(t *testing.T) {
	s := httptest.NewServer(answer(200, map[string]string{"Countersign-Verdict": "ask", "Countersign-Workflow-Id": "wf/1"}, `{"event_id":"x","decision":"ask","reason":"A person must look."}`))
	defer s.Close()
	for template, want := range map[string]string{
		"": "countersign approvals show wf/1", "https://inbox.example/?id={workflow}&x={workflow}": "https://inbox.example/?id=wf%2F1&x=wf%2F1",
	} {
		p := settle(t, s.URL, func(c *gateclient.Config) { c.Budget, c.ApprovalURL = "1s", template })
		out, _, _ := run(hook.Agents[0], p.config, proposalOf(t, hook.Agents[0]))
		var told struct {
			HookSpecificOutput struct{ PermissionDecisionReason string }
		}
		if err := json.Unmarshal([]byte(out), &told); err != nil {
			t.Fatal(err)
		}
		const begin = "Countersign: this call needs a person's approval. Workflow wf/1: A person must look. Do not try another way; repeat the identical call once it is approved. "
		if got := told.HookSpecificOutput.PermissionDecisionReason; got != begin+"Where a person decides: "+want {
			t.Errorf("%q", got)
		}
	}
}

// A call that waits for a person ends the run of an agent that can resume it, if the user wants that and
// nobody attends. In every other case it is refused: an attended session would run a deferred call.
func TestDefer(t *testing.T) {
	s := httptest.NewServer(answer(200, map[string]string{"Countersign-Verdict": "ask", "Countersign-Workflow-Id": "wf-1"},
		`{"event_id":"x","decision":"ask","reason":"needs_a_person"}`))
	defer s.Close()
	for _, tt := range []struct {
		name, agent, attended, session, worker string
		on, deferred                           bool
	}{
		{"headless", "claude-code", "0", "session-1", "", true, true},
		{"switched off", "claude-code", "0", "session-1", "", false, false},
		{"attended", "claude-code", "1", "session-1", "", true, false},
		{"an agent that does not say", "claude-code", "", "session-1", "", true, false},
		{"the environment of another session", "claude-code", "0", "session-0", "", true, false},
		{"a subagent", "claude-code", "0", "session-1", "worker", true, false},
		{"another agent", "codex", "0", "session-1", "", true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, _ := hook.Find(tt.agent)
			p := settle(t, s.URL, func(c *gateclient.Config) { c.Budget, c.Defer = "1s", tt.on })
			t.Setenv("CLAUDE_CODE_SESSION_ATTENDED", tt.attended)
			t.Setenv("CLAUDE_CODE_SESSION_ID", tt.session)
			input := proposalOf(t, a)
			if tt.worker != "" {
				input = bytes.Replace(input, []byte("{"), fmt.Appendf(nil, `{"agent_id":%q,`, tt.worker), 1)
			}
			out, errs, code := run(a, p.config, input)
			if code != 0 || errs != "" || !strings.Contains(out, "Workflow wf-1") {
				t.Fatalf("exit %d, %q, %q", code, out, errs)
			}
			if strings.Contains(out, `"permissionDecision":"defer"`) != tt.deferred || strings.Contains(out, `"permissionDecision":"deny"`) == tt.deferred {
				t.Errorf("%s", out)
			}
		})
	}
}

// While a gate waits, an identical call is another one: what ran and what was refused would have one id.
func TestParallelCalls(t *testing.T) {
	g := &gate{agent: hook.Agents[0], calls: calls{dir: t.TempDir()}, now: nowFixed}
	e := hook.Event{Kind: hook.Before, Session: "s", Tool: "t", CallID: "c1", Input: []byte(`{}`)}
	key, err := sameCallKey("claude-code", e)
	if err != nil {
		t.Fatal(err)
	}
	first, err := g.remember(key, mustPropose(t, g, key, e), gateclient.Reply{Workflow: "wf-1", Expires: nowFixed().Add(hour).Format(time.RFC3339Nano)})
	if err != nil {
		t.Fatal(err)
	}
	e.CallID = "c2"
	second := mustPropose(t, g, key, e)
	if second.CallID != "c2" || second.Workflow != "" {
		t.Errorf("a gate that waits loses its call to another: %+v", second)
	}
	// The end of one wait is not that of another.
	if _, err := g.remember(key, second, gateclient.Reply{Workflow: "wf-2"}); err != nil {
		t.Fatal(err)
	}
	g.forget(key, first)
	if err := g.calls.change(key, nowFixed(), func(s *sameCall) {
		if s.Waiting == nil || s.Waiting.Workflow != "wf-2" {
			t.Errorf("after the end of the first wait: %+v", s.Waiting)
		}
	}); err != nil {
		t.Fatal(err)
	}
}

// Of two gates that repeat a waiting call at once, one goes on with it: for the other it is another call, also before
// the first has its answer.
func TestParallelRepetitions(t *testing.T) {
	for name, id := range map[string]string{"with an id": "c1", "without": ""} {
		g := &gate{agent: hook.Agents[0], calls: calls{dir: t.TempDir()}, now: nowFixed}
		e := hook.Event{Kind: hook.Before, Session: "s", Tool: "t", CallID: id, Input: []byte(`{}`)}
		key, err := sameCallKey("claude-code", e)
		if err != nil {
			t.Fatal(err)
		}
		waits := mustPropose(t, g, key, e)
		mustRemember(t, g, key, waits, "wf-1", hour)
		first, second := mustPropose(t, g, key, e), mustPropose(t, g, key, e)
		if first.Workflow != "wf-1" || !bytes.Equal(first.Event, waits.Event) || second.Workflow != "" || bytes.Equal(second.Event, waits.Event) {
			t.Errorf("%s: the first goes on with %q, the second with %q", name, first.Workflow, second.Workflow)
		}
	}
}

// A resumed run gives the deferred call with the same id. It is the call that waited, and only once.
func TestSameCallSameID(t *testing.T) {
	g := &gate{agent: hook.Agents[0], calls: calls{dir: t.TempDir()}, now: nowFixed}
	e := hook.Event{Kind: hook.Before, Session: "s", Tool: "t", CallID: "c1", Input: []byte(`{}`)}
	key, err := sameCallKey("claude-code", e)
	if err != nil {
		t.Fatal(err)
	}
	first := mustPropose(t, g, key, e)
	mustRemember(t, g, key, first, "wf-1", hour)
	again := mustPropose(t, g, key, e)
	if again.CallID != "c1" || again.Workflow != "wf-1" || !bytes.Equal(again.Event, first.Event) {
		t.Errorf("the resumed call is %+v, want %+v", again, first)
	}
	if err := g.opened(key, e, again, "decision-1"); err != nil {
		t.Fatal(err)
	}
	after := e
	after.Kind = hook.After
	if of, err := g.reported(after); err != nil || of != (openCall{"c1", "c1", hook.Approval{Workflow: "wf-1", Decision: "decision-1"}}) {
		t.Errorf("reported as %+v, %v", of, err)
	}
	e.CallID = "c2"
	if next := mustPropose(t, g, key, e); next.Workflow != "" || next.CallID != "c2" {
		t.Errorf("the approval is asked for again: %+v", next)
	}
}

// What Claude Code tells only in the environment of its hooks, its version, is on record.
func TestVersionOfTheEnvironment(t *testing.T) {
	var event []byte
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		event, _ = io.ReadAll(r.Body)
		w.WriteHeader(http.StatusForbidden)
	}))
	defer s.Close()
	t.Setenv("AI_AGENT", "claude-code_2-1-330_harness")
	for agent, want := range map[string]string{"claude-code": "2.1.330", "codex": "unknown"} {
		a, _ := hook.Find(agent)
		p := settle(t, s.URL, nil)
		run(a, p.config, proposalOf(t, a))
		if !strings.Contains(string(event), `"agent_version":"`+want+`"`) {
			t.Errorf("%s: %s", agent, event)
		}
	}
}
