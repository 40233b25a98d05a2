package mcpgate

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
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/internal/filelock"
	"github.com/countersign-dev/countersign/internal/gateclient"
	"github.com/countersign-dev/countersign/internal/service/shares"
	"github.com/countersign-dev/countersign/mcp"
)

// patience is after what time a test has failed that waits for something.
const patience = 30 * time.Second

// recorder is a gateway that keeps events, and stores them unless fails says otherwise.
type recorder struct {
	mu     sync.Mutex
	events []map[string]any
	fails  func(event map[string]any) bool
}

func (g *recorder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var event map[string]any
	_ = json.NewDecoder(r.Body).Decode(&event)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.events = append(g.events, event)
	if g.fails != nil && g.fails(event) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// of are the events of a type.
func (g *recorder) of(kind string) (found []map[string]any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range g.events {
		if e["event_type"] == kind {
			found = append(found, e)
		}
	}
	return found
}

// listed has the server list n tools with a description.
func (r *rig) listed(t *testing.T, n int, description string) {
	t.Helper()
	var tools []string
	for i := range n {
		tools = append(tools, fmt.Sprintf(`{"name":"t%d","description":%q}`, i, description))
	}
	r.fromTheClient(t, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	r.fromTheServer(t, `{"jsonrpc":"2.0","id":1,"result":{"tools":[`+strings.Join(tools, ",")+`]}}`)
}

// However many definitions a server changes at once, that is one event; and one that could not be stored
// is sent again with the next listing.
func TestChangesAreReportedOnce(t *testing.T) {
	g := &recorder{}
	r := newRig(t, g.ServeHTTP)
	r.listed(t, 150, "first")
	down := true
	g.fails = func(event map[string]any) bool { return down && event["event_type"] == "ToolCallValidated" }
	r.listed(t, 150, "second")
	r.gate.reports.all.Wait()
	if n := len(g.of("ToolCallValidated")); n != 1 {
		t.Fatalf("150 changed definitions are %d events", n)
	}
	g.mu.Lock()
	down = false
	g.mu.Unlock()
	for range 2 {
		r.listed(t, 150, "second")
		r.gate.reports.all.Wait()
	}
	events := g.of("ToolCallValidated")
	if len(events) != 2 {
		t.Fatalf("a change that could not be stored was sent %d times, want 2", len(events))
	}
	metadata := events[1]["metadata"].(map[string]any)
	if list := metadata["changed_tools"].([]any); len(list) != 100 || metadata["changed_tools_total"] != 150.0 {
		t.Errorf("the event names %d tools of %v", len(list), metadata["changed_tools_total"])
	}
}

// While a report about changes is on its way there is no other one, whatever the server lists: reports of
// calls do not wait behind them.
func TestChangesDoNotStarveReports(t *testing.T) {
	g := &recorder{}
	r := newRig(t, g.ServeHTTP)
	r.listed(t, 3, "first")
	r.gate.turn <- struct{}{} // nothing can be stored now
	for i := range 50 {
		r.listed(t, 3, fmt.Sprint("changed ", i))
	}
	<-r.gate.turn
	r.gate.reports.all.Wait()
	if n := len(g.of("ToolCallValidated")); n != 2 { // the first change, and what came of it until it was stored
		t.Errorf("50 listings with changes are %d events", n)
	}
}

// Calls that are refused before anything is asked leave an event, too.
func TestRefusedCallsAreReported(t *testing.T) {
	g := &recorder{}
	r := newRig(t, g.ServeHTTP)
	r.listed(t, 1, "first")
	r.listed(t, 1, "second")
	for code, params := range map[string]string{
		"not_listed":         `{"name":"other","arguments":{}}`,
		"definition_changed": `{"name":"t0","arguments":{}}`,
		"bad_call":           `{"name":"t0","arguments":{"a":1,"A":2}}`,
	} {
		client, server := r.fromTheClient(t, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":`+params+`}`)
		blocked := g.of("ToolUseBlocked")
		last := map[string]any{}
		if len(blocked) > 0 {
			last, _ = blocked[len(blocked)-1]["metadata"].(map[string]any)
		}
		if !strings.Contains(client, "("+code+")") || server != "" || last["refusal"] != code || last["tool_call_id"] == nil {
			t.Errorf("%s: the client got %s, on record is %v", code, client, last)
		}
	}
}

// A call that was asked for and got no answer may be allowed on the log: it is refused, and reported as such. One that
// was not asked for, or was not taken, is not on the log.
func TestCallsWithoutVerdictAreClosed(t *testing.T) {
	for name, c := range map[string]struct {
		answer http.HandlerFunc // to the question; nil if there is no connection
		call   string
		want   int
	}{
		"a time-out":       {answer(504, nil, `{"error":"timeout","message":"no"}`), call, 1},
		"a cut connection": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, call, 1},
		"no answer":        {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, call, 1},
		"not recorded":     {answer(503, map[string]string{"Countersign-Verdict": "deny"}, `{"decision":"deny","reason":"audit_unavailable"}`), call, 1},
		"failed":           {answer(503, map[string]string{"Countersign-Verdict": "deny"}, `{"decision":"deny","reason":"internal_error"}`), call, 1},
		"overloaded":       {answer(503, map[string]string{"Countersign-Verdict": "deny"}, `{"decision":"deny","reason":"overloaded"}`), call, 0},
		"not authorized":   {answer(401, nil, `{}`), call, 0},
		"too large":        {answer(504, nil, `{}`), strings.Replace(call, `{}`, `{"a":"`+strings.Repeat("x", gateclient.MaxProposal)+`"}`, 1), 0},
		"no connection":    {nil, call, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := &recorder{}
			r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
				body, _ := io.ReadAll(req.Body)
				req.Body = io.NopCloser(bytes.NewReader(body))
				if bytes.Contains(body, []byte(`"PreToolUse"`)) {
					c.answer(w, req)
					return
				}
				g.ServeHTTP(w, req)
			})
			r.gate.hold = time.Second
			r.list(t)
			if c.answer == nil {
				<-r.gate.begun
				peer := peerAt(t, "http://127.0.0.1:1")
				r.gate.peer = func() (gateclient.Peer, error) { return peer, nil }
			}
			if client, server := r.fromTheClient(t, c.call); server != "" || !strings.Contains(client, "(no_verdict)") {
				t.Errorf("the client got %.200s, the server %.80s", client, server)
			}
			r.gate.reports.all.Wait()
			blocked := g.of("ToolUseBlocked")
			if len(blocked) != c.want || c.want > 0 && !strings.Contains(fmt.Sprint(blocked), "refusal:no_verdict") {
				t.Errorf("on record is %v", blocked)
			}
			if log := r.log.take(); strings.Contains(log, "not on record") {
				t.Errorf("in vain: %s", log)
			}
		})
	}
}

// A gate that is stopped while it holds the pins does not hold up the others for ever.
func TestHeldPins(t *testing.T) {
	pins := PinFile{path: filepath.Join(t.TempDir(), "kit.json"), own: true}
	lock, err := filelock.Try(pins.path + ".lock")
	if err != nil {
		t.Fatal(err)
	}
	edit := func(mcp.Pins) (bool, error) { return true, nil }
	synctest.Test(t, func(t *testing.T) {
		if err := pins.Edit(edit); !errors.Is(err, filelock.ErrHeld) {
			t.Errorf("with pins that are held: %v", err)
		}
	})
	if err := errors.Join(lock.Close(), pins.Edit(edit)); err != nil {
		t.Errorf("with pins that were let go: %v", err)
	}
}

// The log names the files of the gate, the client is told none.
func TestRefusalsNameNoFile(t *testing.T) {
	r := newRig(t, (&recorder{}).ServeHTTP)
	dir := t.TempDir()
	closed := filepath.Join(dir, "closed.json")
	if err := os.WriteFile(closed, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.catalogue.pins = PinFile{path: closed}
	r.listed(t, 1, "first")
	refused := strings.Replace(call, `"t"`, `"t0"`, 1)
	client, _ := r.fromTheClient(t, refused)
	if log := r.log.take(); !strings.Contains(client, "(definition_changed)") || strings.Contains(client, dir) || !strings.Contains(log, "--pin "+closed) {
		t.Errorf("a changed definition: %s, the log: %s", client, log)
	}
	if err := os.WriteFile(closed, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.fromTheClient(t, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	client, _ = r.fromTheServer(t, listing)
	if log := r.log.take(); !strings.Contains(client, "(bad_listing)") || strings.Contains(client, dir) || !strings.Contains(log, closed) {
		t.Errorf("pins that cannot be read: %s, the log: %s", client, log)
	}
	gate := newGate(gateclient.Config{ReadyFile: filepath.Join(dir, "ready.json")}.Peer, "kit", time.Second, &r.log)
	defer gate.Close("kit")
	_, refusal := gate.Admit(t.Context(), mcp.Call{Server: "kit", Name: "t", Arguments: json.RawMessage("{}")}, nil, nil)
	if log := r.log.take(); refusal == nil || refusal.Code != "bad_configuration" || strings.Contains(refusal.Text, dir) || !strings.Contains(log, dir) {
		t.Errorf("a configuration that cannot be used: %+v, the log: %s", refusal, log)
	}
}

// Client and server agree on no revision of the protocol that the gate does not know.
func TestUnknownRevisions(t *testing.T) {
	r := newRig(t, (&recorder{}).ServeHTTP)
	for revision, passes := range map[string]bool{"2024-11-05": true, "2025-11-25": true, "2031-01-01": false, "": false, "2025-11-25 ": false} {
		r.fromTheClient(t, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2031-01-01"}}`)
		answer := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":%q}}`, revision)
		if client, _ := r.fromTheServer(t, answer); (client == answer+"\n") != passes || !passes && !strings.Contains(client, "-32022") {
			t.Errorf("%q: the client got %s", revision, client)
		}
		ask := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_Meta":{},"_meta":{"io.modelcontextprotocol\/protocolVersion":%q}}}`, revision)
		client, server := r.fromTheClient(t, ask)
		if (server != "") != passes || !passes && !strings.Contains(client, "-32022") {
			t.Errorf("a request in the revision %q: the client got %s, the server %s", revision, client, server)
		}
		if passes {
			r.fromTheServer(t, `{"jsonrpc":"2.0","id":1,"result":{}}`)
		}
	}
	r.revisions = mcp.Revisions // over HTTP
	r.fromTheClient(t, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`)
	if client, _ := r.fromTheServer(t, `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2024-11-05"}}`); !strings.Contains(client, "-32022") {
		t.Errorf("over HTTP, 2024-11-05: the client got %s", client)
	}
}

// A report that did not get through, or whose answer was lost, is sent again: the same event, under the token that the
// caller has by then.
func TestReportsAreTriedAgain(t *testing.T) {
	const cut, again = 0, "Bearer old, Bearer new"
	for status, want := range map[int]string{cut: again, 401: again, 403: again, 429: again, 502: again, 503: again, 504: again, 413: "Bearer old"} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			var tokens []string
			events := map[string]bool{}
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if !bytes.Contains(body, []byte("PostToolUse")) {
					return
				}
				events[string(body)] = true
				switch tokens = append(tokens, r.Header.Get("Authorization")); {
				case len(tokens) > 1:
				case status == cut:
					panic(http.ErrAbortHandler)
				default:
					w.WriteHeader(status)
				}
			}))
			peer := peerAt(t, s.URL)
			var current atomic.Pointer[gateclient.Peer]
			old, renewed := peer.As("old", "runtime"), peer.As("new", "runtime")
			current.Store(&old)
			log := &buffer{}
			gate := newGate(func() (gateclient.Peer, error) { return *current.Swap(&renewed), nil }, "kit", time.Second, log)
			<-gate.begun
			current.Store(&old)
			gate.Report(Admitted{call: mcp.Call{Server: "kit", Name: "t", Arguments: json.RawMessage("{}")}, id: "mcp-1"}, time.Now(), mcp.Succeeded)
			gate.reports.all.Wait()
			gate.Close("kit")
			s.Close()
			if got := strings.Join(tokens, ", "); got != want || len(events) != 1 {
				t.Errorf("after %d the report was sent under %s, as %d events; the log: %s", status, got, len(events), log.take())
			}
		})
	}
}

// The id of a request that was cancelled is not used again before the server has answered it: its late
// answer would answer another request.
func TestCanceledID(t *testing.T) {
	r := newRig(t, (&recorder{}).ServeHTTP)
	const first, second = `{"jsonrpc":"2.0","id":7,"method":"ping"}`, `{"jsonrpc":"2.0","id":"7","method":"resources/list"}`
	cancel, late := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`, `{"jsonrpc":"2.0","id":7,"result":{"secret":1}}`
	r.fromTheClient(t, first)
	if _, server := r.fromTheClient(t, cancel); server != cancel+"\n" {
		t.Errorf("the cancellation: %s", server)
	}
	if client, server := r.fromTheClient(t, second); server != "" || !strings.Contains(client, `"id":null`) {
		t.Errorf("the id of a cancelled request is used again: %s, %s", client, server)
	}
	if client, _ := r.fromTheServer(t, late); client != "" {
		t.Errorf("the late answer reached the client: %s", client)
	}
	if _, server := r.fromTheClient(t, second); server != second+"\n" {
		t.Errorf("after the late answer the id is free: %s", server)
	}
	// By the protocol a server does not answer what was cancelled. What is remembered is bounded; cancellations go on
	// passing, and the newest ids are not used again.
	for i := range maxCanceled {
		r.canceled.add(fmt.Sprint("c", i), maxCanceled)
	}
	const another = `{"jsonrpc":"2.0","id":9,"method":"ping"}`
	r.fromTheClient(t, another)
	if _, server := r.fromTheClient(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}}`); server == "" || len(r.canceled) != maxCanceled {
		t.Errorf("%d cancelled requests are remembered; the server got %s", len(r.canceled), server)
	}
	if client, server := r.fromTheClient(t, another); server != "" || !strings.Contains(client, `"id":null`) {
		t.Errorf("the id of the newest one is used again: %s, %s", client, server)
	}
}

// A server whose questions get no answer can go on asking: of many the oldest are forgotten.
func TestUnansweredQuestions(t *testing.T) {
	r := newRig(t, (&recorder{}).ServeHTTP)
	ask := func(id int) string { return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"ping"}`, id) }
	for id := range maxInFlight + 1 {
		if client, _ := r.fromTheServer(t, ask(id)); client != ask(id)+"\n" {
			t.Fatalf("question %d: the client got %s", id, client)
		}
	}
	for id, passes := range map[int]bool{0: false, 1: true, maxInFlight: true} {
		reply := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{}}`, id)
		if _, server := r.fromTheClient(t, reply); (server == reply+"\n") != passes {
			t.Errorf("the answer to question %d: the server got %q", id, server)
		}
	}
}

// Requests that wait for a verdict hold bounded memory.
func TestHeldRequestsAreBounded(t *testing.T) {
	release := make(chan struct{})
	r := newRig(t, func(_ http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		if strings.Contains(string(body), "ToolUseBlocked") {
			<-release
		}
	})
	before := maxHeld - 2*len(call)
	r.held = before // by others
	for id := range 3 {
		line := strings.Replace(call, `"id":2`, fmt.Sprintf(`"id":%d`, id), 1)
		if err := r.fromClient(t.Context(), []byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	if client := r.toClient.take(); !strings.Contains(client, `"id":2`) || !strings.Contains(client, "too_many_requests") {
		t.Errorf("a request beyond the bound: %.200s", client)
	}
	close(release)
	r.judging.Wait()
	if r.held != before || len(r.asked) != 0 {
		t.Errorf("%d bytes are held of %d requests that are over", r.held-before, len(r.asked))
	}
}

// wrap runs a shell script as the server.
func wrap(ctx context.Context, in io.Reader, out io.Writer, script string, args ...string) (int, error) {
	return Wrap(ctx, WrapOptions{
		Server: "kit", Command: append([]string{"/bin/sh", "-c", script, "sh"}, args...), Hold: time.Second,
		Peer: gateclient.Config{}.Peer, Pins: PinFile{path: os.DevNull}, In: in, Out: out, Err: io.Discard,
	})
}

// What a server has started ends with it, also if the server ends by itself.
func TestGrandchildrenEnd(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := os.ReadFile(pipe) // until the last process that has it open ends
		ended <- err
	}()
	in, hold := io.Pipe() // the client goes on
	defer hold.Close()
	if code, err := wrap(t.Context(), in, io.Discard, `exec 3>"$1"; sleep 100 </dev/null >/dev/null 2>&1 & exit 3`, pipe); code != 3 || err != nil {
		t.Errorf("the server's exit code: %d, %v", code, err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("a process of the server is still there")
	}
}

// blocked is a client that reads nothing.
type blocked struct{ once chan struct{} }

func (b blocked) Write([]byte) (int, error) {
	close(b.once)
	select {}
}

// A client that reads nothing does not keep the gate from ending.
func TestStopWithUnreadOutput(t *testing.T) {
	in, client := io.Pipe()
	defer client.Close()
	ctx, cancel := context.WithCancel(t.Context())
	out, ended := blocked{make(chan struct{})}, make(chan error, 1)
	go func() {
		_, err := wrap(ctx, in, out, `cat >/dev/null`)
		ended <- err
	}()
	if _, err := io.WriteString(client, call+"\n"); err != nil {
		t.Fatal(err)
	}
	<-out.once
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("the gate waits for its client")
	}
}

// A client that can ask its user to open a page is asked to, while the call waits; what it answers
// reaches no server, and decides nothing.
func TestApprovalPage(t *testing.T) {
	asks := `{"event_id":"x","decision":"ask","reason":"?","metadata":{"approval":{"workflow_id":"wf/1"}}}`
	r := newRig(t, answer(200, map[string]string{"Countersign-Verdict": "ask"}, asks))
	r.gate.page, r.gate.hold = "https://console.example/approvals/{workflow}", time.Second
	for _, capabilities := range []string{`{}`, `{"elicitation":{}}`, `{"elicitation":{"form":{},"url":{}}}`} {
		r.fromTheClient(t, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"capabilities":`+capabilities+`}}`)
		r.fromTheServer(t, `{"jsonrpc":"2.0","id":0,"result":{}}`)
		r.list(t)
		client, server := r.fromTheClient(t, call)
		question, refusal, asked := strings.Cut(client, "}\n{")
		if want := strings.Contains(capabilities, "url"); asked != want || server != "" {
			t.Fatalf("%s: the client is asked to open a page: %t, want %t", capabilities, asked, want)
		}
		if !strings.Contains(client, "https://console.example/approvals/wf%2F1") {
			t.Errorf("%s: the client is not told the page: %s", capabilities, client)
		}
		if !asked {
			continue
		}
		m, err := mcp.Parse([]byte(question + "}"))
		if err != nil || m.Method != "elicitation/create" || !strings.Contains(string(m.Params), `"mode":"url"`) || !strings.Contains(refusal, `"isError":true`) {
			t.Errorf("the client got %s, %v", client, err)
		}
		if client, server := r.fromTheClient(t, `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":{"action":"accept"}}`); client != "" || server != "" {
			t.Errorf("the answer went on: %s, %s", client, server)
		}
	}
}

// A tool that a later listing has twice, or with a definition that cannot be used, is not the accepted one
// any more.
func TestUnclearToolsAreNotCalled(t *testing.T) {
	for name, tools := range map[string]string{
		"twice":           `{"name":"t","inputSchema":{}},{"name":"t","description":"another","inputSchema":{}}`,
		"in another case": `{"Name":"t","inputSchema":{}}`,
		"too large":       `{"name":"t","description":"` + strings.Repeat("x", mcp.MaxDefinition) + `"}`,
		"fit and not":     `{"name":"t","inputSchema":{}},{"Name":"t","description":"another"}`,
	} {
		r := newRig(t, answer(503, nil, `{}`))
		r.list(t)
		if _, ok := r.catalogue.find("t"); !ok {
			t.Fatal("a tool that was listed is not known")
		}
		r.fromTheClient(t, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
		r.fromTheServer(t, `{"jsonrpc":"2.0","id":1,"result":{"tools":[`+tools+`]}}`)
		if _, ok := r.catalogue.find("t"); ok {
			t.Errorf("%s: the tool is accepted", name)
		}
	}
}

// Bodies that one caller does not finish leave room for its short ones and for others, and give theirs back when the
// request is over.
func TestUnfinishedBodies(t *testing.T) {
	d := newDoor(t, "/bin/sh", "-c", kit)
	d.memory = shares.New(4 * shares.Step) // two of them are the first caller's
	session := []string{mcp.HeaderSession, d.begin(t)}
	sized := func(n int) *httptest.ResponseRecorder {
		const notification = `{"jsonrpc":"2.0","method":"notifications/x"}`
		return d.send(notification+strings.Repeat(" ", n-len(notification)), session...)
	}
	for what, ends := range map[string]error{"whole": nil, "cut off": io.ErrUnexpectedEOF} {
		body, slow := io.Pipe()
		r, over := d.request(http.MethodPost, "", session...), make(chan struct{})
		r.Body = body
		go func() { defer close(over); d.ServeHTTP(httptest.NewRecorder(), r) }()
		for _, n := range []int{shares.Free + 2*shares.Step - 1, 1} { // the second is read once the first has taken its share
			if _, err := slow.Write(bytes.Repeat([]byte(" "), n)); err != nil {
				t.Fatal(err)
			}
		}
		if w := sized(shares.Free + 1); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), errNoRoom.Error()) {
			t.Errorf("%s: more than the share: %d %s", what, w.Code, w.Body)
		}
		if w := sized(shares.Free); w.Code != http.StatusAccepted {
			t.Errorf("%s: a short one: %d %s", what, w.Code, w.Body)
		}
		other := d.roomOf(&seat{user: "other"}).read(bytes.NewReader(make([]byte, shares.Free+shares.Step)))
		if _, err := io.ReadAll(other); err != nil {
			t.Errorf("%s: another caller's: %v", what, err)
		}
		other.Release()
		_ = slow.CloseWithError(ends)
		<-over
		if w := sized(shares.Free + 2*shares.Step); w.Code != http.StatusAccepted || d.memory.Held() != 0 {
			t.Errorf("%s: a long one afterwards: %d %s, %d bytes are held", what, w.Code, w.Body, d.memory.Held())
		}
	}
}

// Answers that one caller does not read leave room for short ones and for others. One without room becomes an error,
// another message is dropped.
func TestUnreadAnswers(t *testing.T) {
	log := &buffer{}
	memory := shares.New(4 << 20)
	routerOf := func(user string) *router {
		return &router{log: &logger{w: log}, room: room{memory, shares.Caller{Tenant: user}}}
	}
	request := func(id int) mcp.Message {
		return mcp.Message{ID: mcp.ID(fmt.Sprint(id)), Method: "x", Params: json.RawMessage(fmt.Sprintf(`{"_meta":{"progressToken":%d}}`, id))}
	}
	add := func(r *router, id int) *stream {
		s, err := r.add(request(id))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	write := func(r *router, text string, n int) {
		if _, err := r.Write([]byte(text + strings.Repeat(" ", n-len(text)))); err != nil {
			t.Fatal(err)
		}
	}
	answers := func(id int) string { return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{}}`, id) }
	const progress = `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1}}`
	one, two := routerOf("one"), routerOf("two")
	first, second, third, others := add(one, 1), add(one, 2), add(one, 3), add(two, 2)
	write(one, progress, 2<<20)
	write(one, progress, 1<<20)
	write(one, answers(2), 1<<20)
	write(one, answers(3), shares.Free)
	write(two, answers(2), 1<<20)
	if len(first.lines) != 1 || !strings.Contains(log.take(), errNoRoom.Error()) {
		t.Errorf("%d messages of a caller without room wait", len(first.lines))
	}
	if m := <-second.lines; !m.final || !strings.Contains(string(m.line), noRoomForAnswer) {
		t.Errorf("an answer without room: %.200s", m.line)
	}
	for name, s := range map[string]*stream{"a short one": third, "another caller's": others} {
		if m := <-s.lines; !m.final || !strings.HasPrefix(string(m.line), answers(2)[:20]) || strings.Contains(string(m.line), noRoomForAnswer) {
			t.Errorf("%s: %.200s", name, m.line)
		}
	}
	one.written(first, <-first.lines)
	write(one, progress, 2<<20)
	write(one, answers(1), shares.Free)
	for s, r := range map[*stream]*router{first: one, second: one, third: one, others: two} {
		r.remove(s)
	}
	if n := memory.Held(); n != 0 || len(first.lines) != 2 {
		t.Errorf("after all requests %d bytes are held; %d messages", n, len(first.lines))
	}
}

// What a server over HTTP sends counts while it comes, too.
func TestAnswersWithoutRoom(t *testing.T) {
	for media, form := range map[string]string{"application/json": "%s", eventStream: "data: %s\n\n"} {
		d := remoteDoor(t, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			m, _ := mcp.Parse(body)
			var params struct{ Size int }
			_ = json.Unmarshal(m.Params, &params)
			w.Header().Set("Content-Type", media)
			fmt.Fprintf(w, form, `{"jsonrpc":"2.0",`+strings.Repeat(" ", params.Size)+`"id":`+string(m.ID)+`,"result":{"protocolVersion":"2025-11-25"}}`)
		})
		d.memory = shares.New(1 << 20)
		session := d.begin(t)
		for _, c := range []struct {
			size int
			want string
		}{{200 << 10, `"result"`}, {900 << 10, noRoomForAnswer}, {200 << 10, `"result"`}} {
			w := d.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"size":%d}}`, c.size), mcp.HeaderSession, session)
			if !strings.Contains(w.Body.String(), c.want) || !awaits(func() bool { return d.memory.Held() == 0 }) {
				t.Errorf("%s: an answer of %d bytes: %d %.200s; %d bytes are held", media, c.size, w.Code, w.Body, d.memory.Held())
			}
		}
	}
}
