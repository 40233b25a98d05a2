package mcpgate

import (
	"bytes"
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
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/internal/gateclient"
	"github.com/countersign-dev/countersign/mcp"
)

// buffer is a writer whose lines a test reads.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	text := b.b.String()
	b.b.Reset()
	return text
}

// rig is a relay between two buffers, and its gateway. Its gate has patience: no test that gets an answer
// reaches the end of it, however busy the machine is.
type rig struct {
	*relay
	toClient, toServer, log buffer
	pins                    string // file
}

// peerAt is the identity of the tests at a gateway.
func peerAt(t *testing.T, url string) gateclient.Peer {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"token": "secret-token", "key": "countersign.dev/checkpoint+0+A"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	peer, err := gateclient.Config{Gateway: url, TokenFile: filepath.Join(dir, "token"), PublicKeyFile: filepath.Join(dir, "key"), Tenant: "acme", Publisher: "runtime"}.Peer()
	if err != nil {
		t.Fatal(err)
	}
	return peer
}

func newRig(t *testing.T, gateway http.HandlerFunc) *rig {
	t.Helper()
	s := httptest.NewServer(gateway)
	t.Cleanup(s.Close)
	peer := peerAt(t, s.URL)
	r := &rig{pins: filepath.Join(t.TempDir(), "pins")}
	gate := newGate(func() (gateclient.Peer, error) { return peer, nil }, "kit", patience, &r.log)
	r.relay = newRelay(gate, newCatalogue("kit", PinFile{path: r.pins, own: true}, gate), false, &r.toClient, &r.toServer)
	r.catalogue.listed = true // the server of these tests answers only when it is told to
	t.Cleanup(func() { gate.Close("kit") })
	return r
}

// client gives a message of the client to the relay, and waits until it is judged.
func (r *rig) fromTheClient(t *testing.T, line string) (client, server string) {
	t.Helper()
	if err := r.fromClient(t.Context(), []byte(line+"\n")); err != nil {
		t.Fatal(err)
	}
	r.judging.Wait()
	return r.toClient.take(), r.toServer.take()
}

func (r *rig) fromTheServer(t *testing.T, line string) (client, server string) {
	t.Helper()
	if err := r.fromServer([]byte(line + "\n")); err != nil {
		t.Fatal(err)
	}
	return r.toClient.take(), r.toServer.take()
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

const listing = `{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"t","inputSchema":{}}]}}`

// list has the server list its tool.
func (r *rig) list(t *testing.T) {
	t.Helper()
	r.fromTheClient(t, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	if client, _ := r.fromTheServer(t, listing); client != listing+"\n" {
		t.Fatalf("the listing: %s", client)
	}
}

const call = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t","arguments":{}}}`

// The digest of a _meta on record limits an approval within its session, and cannot be compared with those of guesses.
func TestMetaCannotBeGuessed(t *testing.T) {
	const secret = `{"name":"t","arguments":{},"_meta":{"vendor/pin":"1234"}}`
	guess, err := mcp.ReadCall(mcp.MethodCall, json.RawMessage(secret))
	if err != nil {
		t.Fatal(err)
	}
	session := func(metas ...string) (scopes []string) {
		r := newRig(t, func(_ http.ResponseWriter, q *http.Request) {
			var event struct {
				Metadata struct {
					Scope string `json:"approval_scope"`
				}
			}
			if json.NewDecoder(q.Body).Decode(&event) == nil && event.Metadata.Scope != "" {
				scopes = append(scopes, event.Metadata.Scope)
			}
		})
		r.list(t)
		for _, meta := range metas {
			r.fromTheClient(t, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":`+strings.Replace(secret, "1234", meta, 1)+`}`)
		}
		return scopes
	}
	one, two := session("1234", "1234", "4321"), session("1234")
	if len(one) != 3 || len(two) != 1 || one[0] != one[1] || one[0] == one[2] || one[0] == two[0] || strings.Contains(one[0], guess.Meta) {
		t.Errorf("%q and, in another session, %q; a guess gives %s", one, two, guess.Meta)
	}
}

// Whatever the gateway does, a call that is not allowed does not reach the server, and the model is told.
func TestGatewayFails(t *testing.T) {
	allow := map[string]string{"Countersign-Verdict": "allow"}
	for name, g := range map[string]struct {
		serve http.HandlerFunc
		code  string
	}{
		"an HTTP error":            {answer(503, nil, `{"error":"unavailable","message":"no admitter"}`), "no_verdict"},
		"a refusal":                {answer(403, nil, `{"event_id":"x","decision":"deny","reason":"publisher_mismatch"}`), "no_verdict"},
		"no JSON":                  {answer(200, allow, `fine`), "no_verdict"},
		"no verdict":               {answer(200, nil, `{"event_id":"x","decision":"allow","reason":""}`), "no_verdict"},
		"a contradiction":          {answer(200, allow, `{"event_id":"x","decision":"deny","reason":""}`), "no_verdict"},
		"an allow with no receipt": {answer(200, allow, `{"event_id":"x","decision":"allow","reason":""}`), "bad_receipt"},
		"a denial":                 {answer(200, map[string]string{"Countersign-Verdict": "deny"}, `{"event_id":"x","decision":"deny","reason":"too risky"}`), "deny"},
		"an ask with no workflow":  {answer(200, map[string]string{"Countersign-Verdict": "ask"}, `{"event_id":"x","decision":"ask","reason":"?"}`), "ask"},
		"a cut connection":         {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "no_verdict"},
		"silence": {func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		}, "no_verdict"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, g.serve)
			if name == "silence" {
				r.gate.hold = time.Second
			}
			r.list(t)
			client, server := r.fromTheClient(t, call)
			var answer struct {
				ID     int
				Result struct {
					IsError bool
					Meta    map[string]struct{ Code string } `json:"_meta"`
				}
			}
			if err := json.Unmarshal([]byte(client), &answer); err != nil || answer.ID != 2 || !answer.Result.IsError || answer.Result.Meta["countersign.dev/refusal"].Code != g.code {
				t.Errorf("%s, %v, want the code %s", client, err, g.code)
			}
			if server != "" || strings.Contains(client+r.log.take(), "secret-token") || strings.Contains(client, "127.0.0.1") {
				t.Errorf("the server got %s, the client %s", server, client)
			}
		})
	}
}

// Messages of the client that must not reach the server, whatever it would make of them.
func TestHostileClient(t *testing.T) {
	r := newRig(t, answer(503, nil, `{}`))
	r.list(t)
	for name, line := range map[string]string{
		"garbage":                      `hello`,
		"a batch":                      `[` + call + `]`,
		"the method twice":             `{"jsonrpc":"2.0","id":3,"method":"ping","method":"tools/call","params":{"name":"t"}}`,
		"a call without an id":         `{"jsonrpc":"2.0","method":"tools/call","params":{"name":"t","arguments":{}}}`,
		"a call with a null id":        `{"jsonrpc":"2.0","id":null,"method":"tools/call","params":{"name":"t","arguments":{}}}`,
		"an escaped call":              `{"jsonrpc":"2.0","id":4,"method":"tools\u002fcall","params":{"name":"t","arguments":{}}}`,
		"a tool that was never listed": `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"other","arguments":{}}}`,
		"an argument twice":            `{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"t","arguments":{"a":1,"a":2}}}`,
		"an answer to nothing":         `{"jsonrpc":"2.0","id":7,"result":{}}`,
		"a user's answer to a task":    `{"jsonrpc":"2.0","id":10,"method":"tasks/update","params":{"taskId":"x","inputResponses":{"r":"/etc/shadow"}}}`,
		"one without an id":            `{"jsonrpc":"2.0","method":"tasks/update","params":{"taskId":"x","inputResponses":{"r":"/etc/shadow"}}}`,
		"a cancellation of nothing":    `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}`,
	} {
		if _, server := r.fromTheClient(t, line); server != "" {
			t.Errorf("%s reached the server: %s", name, server)
		}
	}
	// A call whose report would be larger than the gateway takes.
	client, server := r.fromTheClient(t, `{"jsonrpc":"2.0","id":11,"method":"tools/call","params":{"name":"t","arguments":{"a":"`+strings.Repeat("x", gateclient.MaxProposal)+`"}}}`)
	if server != "" || !strings.Contains(client, "too large") {
		t.Errorf("a large call: %.300s, %.80s", client, server)
	}
	// An id that is in flight is not used again, in either spelling.
	if _, server := r.fromTheClient(t, `{"jsonrpc":"2.0","id":8,"method":"ping"}`); server == "" {
		t.Error("a ping does not pass")
	}
	client, server = r.fromTheClient(t, `{"jsonrpc":"2.0","id":"8","method":"ping"}`)
	if server != "" || !strings.Contains(client, `"id":null`) {
		t.Errorf("a second request with the id 8: %s, %s", client, server)
	}
	client, server = r.fromTheClient(t, `{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"t","arguments":{}}}`)
	if server != "" || strings.Count(client, "\n") != 1 || !strings.Contains(client, `"id":null`) {
		t.Errorf("a call with the id 8: %s, %s", client, server)
	}
	odd := ` { "jsonrpc" : "2.0","method":"x/unknown" , "params":{"n":123456789012345678901}}`
	if _, server := r.fromTheClient(t, odd); server != odd+"\n" {
		t.Errorf("an unknown notification: %s", server)
	}
	if err := readLines(strings.NewReader(`{"jsonrpc":"2.0","id":9,"method":"ping"}`), func([]byte) error { return errors.New("used") }); err != nil {
		t.Error("half a message is one")
	}
	var lengths []int
	long := strings.Repeat("x", 33<<20) + "\n{}\n"
	if err := readLines(strings.NewReader(long), func(line []byte) error { lengths = append(lengths, len(line)); return nil }); err != nil || fmt.Sprint(lengths) != "[1 3]" {
		t.Errorf("lines after a too long one: %v, %v", lengths, err)
	}
}

// Messages of the server that must not reach the client.
func TestHostileServer(t *testing.T) {
	r := newRig(t, answer(503, nil, `{}`))
	r.fromTheClient(t, `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	for name, line := range map[string]string{
		"garbage":              `npm warn something`,
		"a batch":              `[{"jsonrpc":"2.0","id":1,"result":{}}]`,
		"an answer to nothing": `{"jsonrpc":"2.0","id":2,"result":{}}`,
		"the id twice":         `{"jsonrpc":"2.0","id":1,"id":2,"result":{}}`,
		"the id in two cases":  `{"jsonrpc":"2.0","id":1,"ID":2,"result":{}}`,
	} {
		if client, _ := r.fromTheServer(t, line); client != "" {
			t.Errorf("%s reached the client: %s", name, client)
		}
	}
	if client, _ := r.fromTheServer(t, `{"jsonrpc":"2.0","id":1,"result":{}}`); client == "" {
		t.Error("the answer does not pass")
	}
	if client, _ := r.fromTheServer(t, `{"jsonrpc":"2.0","id":1,"result":{}}`); client != "" {
		t.Error("a second answer passes")
	}
	// The answer to a list of tools that cannot be read is an error: what the client would see is unknown.
	r.fromTheClient(t, `{"jsonrpc":"2.0","id":3,"method":"tools/list"}`)
	if client, _ := r.fromTheServer(t, `{"jsonrpc":"2.0","id":3,"result":{"tools":[],"Tools":[{"name":"x"}]}}`); !strings.Contains(client, `"bad_listing"`) {
		t.Errorf("a list in two spellings: %s", client)
	}
	ask := `{"jsonrpc":"2.0","id":1,"method":"roots/list"}`
	if client, _ := r.fromTheServer(t, ask); client != ask+"\n" {
		t.Errorf("the server's question: %s", client)
	}
	if client, _ := r.fromTheServer(t, ask); client != "" {
		t.Error("the server asks twice with one id")
	}
	reply := `{"jsonrpc":"2.0","id":1,"result":{"roots":[]}}`
	if _, server := r.fromTheClient(t, reply); server != reply+"\n" {
		t.Errorf("the client's reply: %s", server)
	}
}

// However many messages a server writes that are none, the log has a bounded number of lines about them in a minute.
func TestNotesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &buffer{}
		l := &logger{w: log}
		for _, want := range []int{maxNotes, maxNotes + 1} { // one says how many were left out
			for range 10 * maxNotes {
				l.note("garbage")
			}
			l.print("a call is not on record") // is always printed
			text := log.take()
			if n := strings.Count(text, "\n"); n != want+1 || strings.Contains(text, fmt.Sprint(9*maxNotes, " notes")) != (want > maxNotes) || !strings.Contains(text, "not on record") {
				t.Errorf("%d lines, want %d and one:\n%.300s", n, want, text)
			}
			time.Sleep(time.Minute + 1)
		}
	})
}

// Requests whose answer cannot be passed on fail, and so does a request that cannot be passed on itself: its client would
// wait for ever. A call among them may have run.
func TestUnreadMessagesFail(t *testing.T) {
	g := &recorder{}
	r := newRig(t, g.ServeHTTP)
	ask := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	for name, answer := range map[string]string{
		"half a pair":      `{"result":{"text":"abc\ud83d"},"jsonrpc":"2.0","id":1}`,
		"no UTF-8":         "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"\xff\"}",
		"result and error": `{"jsonrpc":"2.0","id":1,"result":{},"error":null}`,
		"a fraction":       `{"jsonrpc":"2.0","id":1.0,"result":{}}`,
		"the other type":   `{"jsonrpc":"2.0","id":"1","result":{},"result":{}}`,
	} {
		if _, server := r.fromTheClient(t, ask); server == "" {
			t.Fatalf("%s: the id is in use", name)
		}
		if client, _ := r.fromTheServer(t, answer); !strings.Contains(client, `"id":1,`) || !strings.Contains(client, "the server's answer: ") {
			t.Errorf("%s: the client got %q", name, client)
		}
	}
	m, err := mcp.Parse([]byte(call))
	if err != nil {
		t.Fatal(err)
	}
	// As after its admission.
	r.asked[m.ID.Key()] = &request{Message: m, governed: true, sent: true, admitted: Admitted{call: mcp.Call{Server: "kit", Name: "t", Arguments: []byte("{}")}, id: "mcp-1"}}
	r.fromTheServer(t, `{"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"\ud83d"}]}}`)
	r.gate.reports.all.Wait()
	if done := g.of("PostToolUse"); len(done) != 1 || !strings.Contains(fmt.Sprint(done), "outcome:"+mcp.Unknown) {
		t.Errorf("on record is %v", done)
	}
	half := `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"t","arguments":{"a":"\ud83d"}}}`
	if client, server := r.fromTheClient(t, half); server != "" || !strings.Contains(client, `"id":9,`) {
		t.Errorf("a request that cannot be passed on: the client got %q, the server %q", client, server)
	}
	r.fromTheClient(t, strings.Replace(ask, `"id":1`, `"id":9`, 1))
	if client, _ := r.fromTheClient(t, half); !strings.Contains(client, `"id":null`) {
		t.Errorf("one with an id in use: the client got %q", client)
	}
}

// While a call is judged, neither its server can answer it nor a cancellation reach the server.
func TestAnswerBeforeAdmission(t *testing.T) {
	asked, release := make(chan struct{}), make(chan struct{})
	r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		if bytes.Contains(body, []byte("PreToolUse")) {
			close(asked)
			<-release
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	r.list(t)
	if err := r.fromClient(t.Context(), []byte(call+"\n")); err != nil {
		t.Fatal(err)
	}
	<-asked
	if client, _ := r.fromTheServer(t, `{"jsonrpc":"2.0","id":2,"result":{"content":[]}}`); client != "" {
		t.Errorf("the server answered what it was not asked: %s", client)
	}
	if err := r.fromClient(t.Context(), []byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`+"\n")); err != nil {
		t.Fatal(err)
	}
	close(release)
	r.judging.Wait()
	if client, server := r.toClient.take(), r.toServer.take(); client != "" || server != "" {
		t.Errorf("a call that was cancelled while it was judged: client %s, server %s", client, server)
	}
}

// writerFunc is an io.Writer.
type writerFunc func([]byte)

func (f writerFunc) Write(b []byte) (int, error) { f(b); return len(b), nil }

// The id of a listing is in use until the client has it: what comes meanwhile is not mistaken for its answer.
func TestListingKeepsItsID(t *testing.T) {
	r := newRig(t, answer(503, nil, `{}`))
	again := []byte(`{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n")
	var used error
	r.relay = newRelay(r.gate, r.catalogue, false, writerFunc(func([]byte) {
		m, err := mcp.Parse(again)
		if err == nil {
			used = r.accept(t.Context(), m, again)
		}
	}), &r.toServer)
	r.fromTheClient(t, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	if r.fromTheServer(t, listing); !errors.Is(used, mcp.ErrMessage) {
		t.Errorf("a request with the id of a listing: %v", used)
	}
	if err := r.fromClient(t.Context(), again); err != nil || r.toServer.take() != string(again) {
		t.Errorf("after the listing: %v", err)
	}
}

const (
	longRequest = `{"jsonrpc":"2.0","id":7,"method":"x/long"}` + "\n"
	cancelsLong = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}` + "\n"
)

// A cancellation is written after its request: a server that reads it first runs the request.
func TestCancellationFollowsItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var server buffer
		r := newRelay(nil, nil, false, nil, &server)
		m, err := mcp.Parse([]byte(longRequest))
		if err != nil {
			t.Fatal(err)
		}
		q := &request{Message: m, sent: true, written: make(chan struct{})}
		r.remember(q)
		go func() { _ = r.fromClient(t.Context(), []byte(cancelsLong)) }()
		synctest.Wait()
		if err := r.pass(q, []byte(longRequest)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := server.take(); got != longRequest+cancelsLong {
			t.Errorf("the server reads\n%s", got)
		}
	})
}

// A client that has learned the id of the gate's own request, from the server, can cancel it, and goes on.
func TestCancellationOfTheGatesRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &lines{make(chan string)}
		r := newRelay(nil, nil, false, nil, server)
		answered := make(chan struct{})
		go func() {
			_, _ = r.ask(t.Context(), "", &request{giveUp: answered})
		}()
		m, err := mcp.Parse([]byte(<-server.all))
		if err != nil {
			t.Fatal(err)
		}
		over := false
		go func() {
			_ = r.fromClient(t.Context(), []byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+string(m.ID)+`}}`+"\n"))
			over = true
		}()
		<-server.all
		synctest.Wait()
		if close(answered); !over {
			t.Error("the client waits")
		}
	})
}
