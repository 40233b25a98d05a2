package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// The checks of AAEP's conformance suite for producers, levels 1 to 3, of the producer in examples behind the
// gateway of `up`: each over server-sent events and over WebSocket. What the producer did breaks no rule of the
// correlator either.
func TestAAEPConformance(t *testing.T) {
	t.Parallel()
	policies := t.TempDir()
	for _, name := range []string{"policies/assistant/assistant.yaml", "gates/flights.yaml"} {
		text, err := os.ReadFile(filepath.Join(root, "examples", name))
		ok(t, err)
		ok(t, os.WriteFile(filepath.Join(policies, filepath.Base(name)), text, 0o600))
	}
	s := start(t, "--policy", policies)
	s.run(t, "publisher", "put", filepath.Join(root, "examples/aaep-producer/front-end.json")).want(t, 0)
	g := s.gateway(t)
	program := buildProducer(t)
	patient, hasty := s.producer(t, program), s.producer(t, program, "-patience", "1s")
	duplicates := map[string]bool{} // by session: the listener, not the producer, breaks a rule there
	for name, listen := range map[string]func(*testing.T, gatewayReady, object) *listener{"sse": listenBySSE, "websocket": listenBySocket} {
		t.Run(name, func(t *testing.T) {
			played := playAAEP(t, g, listen, patient, hasty)
			for _, c := range aaepChecks {
				t.Run(c.id, func(t *testing.T) {
					if err := c.check(played[c.scenario]); err != nil {
						t.Error(err)
					}
				})
			}
			t.Run("L1-ENV-006", func(t *testing.T) {
				var lines []byte
				for scenario, h := range played {
					for _, e := range h.events {
						lines = append(append(lines, e.bytes()...), '\n')
						duplicates[e.text("session_id")] = scenario == "duplicate"
					}
				}
				file := filepath.Join(t.TempDir(), "events.jsonl")
				ok(t, os.WriteFile(file, lines, 0o600))
				tool(t, "validate", "aaep", file).want(t, 0)
			})
		})
	}
	s.settle(t)
	for _, row := range evidence(t, s.auditors(t), "kind = 'finding'") {
		f := row.body(t)
		duplicate, ours := duplicates[f.text("session")]
		if ours && f.text("severity") != "info" && !(duplicate && f.text("rule") == "AAEP-C-110") {
			t.Errorf("a finding about the producer: %s", f.bytes())
		}
	}
}

func buildProducer(t *testing.T) string {
	t.Helper()
	built := filepath.Join(t.TempDir(), "aaep-producer")
	cmd := exec.Command("go", "build", "-trimpath", "-o", built, "./examples/aaep-producer")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return built
}

// agent is a running producer: a request in, the session's id out.
type agent struct {
	in  io.Writer
	out *bufio.Scanner
}

func (s *system) producer(t *testing.T, program string, args ...string) *agent {
	t.Helper()
	cmd := exec.Command(program, append([]string{"-ready", s.ready}, args...)...)
	in, inner, err := os.Pipe()
	ok(t, err)
	out, outer, err := os.Pipe()
	ok(t, err)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, outer, os.Stderr
	p, err := launch(cmd)
	ok(t, err)
	t.Cleanup(func() {
		_ = inner.Close() // no more requests
		if err := p.wait(); err != nil {
			t.Errorf("the producer: %v", err)
		}
		for _, f := range []*os.File{in, out, outer} {
			_ = f.Close()
		}
	})
	return &agent{inner, bufio.NewScanner(out)}
}

// ask hands the producer a request and returns the session in which it works on it.
func (a *agent) ask(t *testing.T, request string) string {
	t.Helper()
	_, err := io.WriteString(a.in, request+"\n")
	ok(t, err)
	if !a.out.Scan() {
		t.Fatal("the producer names no session")
	}
	return a.out.Text()
}

// listener is a subscription.
type listener struct {
	request, answer object
	events          <-chan object
	send            func(object)
}

// next waits for the next event of a session.
func (l *listener) next(t *testing.T, session string) object {
	t.Helper()
	for late := time.After(patience); ; {
		select {
		case e, open := <-l.events:
			switch {
			case !open:
				t.Fatal("the subscription ended")
			case e.text("session_id") == session:
				return e
			}
		case <-late:
			t.Fatalf("no event of %s", session)
		}
	}
}

// listenBySSE subscribes over server-sent events.
func listenBySSE(t *testing.T, g gatewayReady, request object) *listener {
	t.Helper()
	l := &listener{request: request}
	ok(t, json.NewDecoder(g.request(t, "POST", "/aaep/v1/subscriptions", "subscriber", request.bytes()).Body).Decode(&l.answer))
	if l.answer.text("type") != "subscription.accepted" {
		return l
	}
	stream := g.request(t, "GET", "/aaep/v1/events?subscription_id="+l.answer.text("subscription_id"), "subscriber", nil)
	if stream.StatusCode != http.StatusOK {
		t.Fatalf("the stream: %d", stream.StatusCode)
	}
	lines := bufio.NewReader(stream.Body)
	l.events = pump(t, func() (object, bool) {
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return nil, false
			}
			var e object
			if text, is := strings.CutPrefix(line, "data: "); is && json.Unmarshal([]byte(text), &e) == nil {
				return e, true
			}
		}
	})
	l.send = func(m object) {
		if got := g.request(t, "POST", "/aaep/v1/replies", "subscriber", m.bytes()).StatusCode; got != http.StatusNoContent {
			t.Errorf("a reply: %d", got)
		}
	}
	return l
}

// listenBySocket subscribes over WebSocket.
func listenBySocket(t *testing.T, g gatewayReady, request object) *listener {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	c, _, err := websocket.Dial(ctx, g.URL+"/aaep/v1/ws", &websocket.DialOptions{Subprotocols: []string{"aaep.v1"},
		HTTPHeader: http.Header{"Authorization": {"Bearer " + g.Roles["subscriber"].Token}}})
	ok(t, err)
	t.Cleanup(func() { _ = c.CloseNow() })
	read := func() (object, bool) {
		var m object
		_, text, err := c.Read(ctx)
		return m, err == nil && json.Unmarshal(text, &m) == nil
	}
	l := &listener{request: request, send: func(m object) { ok(t, c.Write(ctx, websocket.MessageText, m.bytes())) }}
	l.send(request)
	_, text, err := c.Read(ctx)
	ok(t, err)
	ok(t, json.Unmarshal(text, &l.answer))
	l.events = pump(t, read)
	return l
}

// pump reads until nothing comes any more.
func pump(t *testing.T, read func() (object, bool)) <-chan object {
	out, done := make(chan object, 1024), make(chan struct{})
	t.Cleanup(func() { close(done) })
	go func() {
		defer close(out)
		for {
			e, more := read()
			if !more {
				return
			}
			select {
			case out <- e:
			case <-done:
				return
			}
		}
	}()
	return out
}

// subscription is a subscription.request.
func subscription(version string, capabilities object) object {
	return object{"type": "subscription.request", "aaep_version": version, "subscriber_id": "conformance", "capabilities": capabilities}
}

// terms are the capabilities that a listener asks for, by scenario of level 3.
var terms = map[string]object{
	"terms": {"max_events_per_second": 1000, "preferred_verbosity": "normal", "languages": []string{"en-GB"}, "supports_confirmation_reply": true,
		"supports_clarification_reply": true, "coalesce_boundaries": []string{"sentence"}, "supported_conformance_levels": []int{1, 2, 3}},
	"rate":      {"max_events_per_second": 1},
	"languages": {"languages": []string{"yo-NG", "en-GB"}},
	"filtered":  {"event_filters": object{"exclude": []string{"aaep:agent.tool.*", "aaep:agent.session.*"}}},
	"signed":    {"accept_signed_manifests_only": true},
}

// conversations are the scenarios of levels 1 and 2, and those of level 3 that need a session.
var conversations = []struct {
	name, request string
	replies       []object // to the first question
	hasty         bool     // of a producer that does not wait long
}{
	{name: "short", request: "Hello."},
	{name: "tool", request: "Find a flight, please."},
	{name: "failing", request: "What is the balance of " + aaepSecret + "?"},
	{name: "accepted", request: "Book it.", replies: []object{{"type": "confirmation.reply", "decision": "accept"}}},
	{name: "rejected", request: "Book it.", replies: []object{{"type": "confirmation.reply", "decision": "reject"}}},
	{name: "duplicate", request: "Book it.", replies: []object{{"type": "confirmation.reply", "decision": "accept"}, {"type": "confirmation.reply", "decision": "reject"}}},
	{name: "unanswered", request: "Book it.", hasty: true},
	{name: "clarified", request: "How is the weather?", replies: []object{{"type": "clarification.reply", "response": aaepCity}}},
	{name: "handoff", request: "I want a person."},
	{name: "rate", request: "What is my balance?"},
	{name: "filtered", request: "What is my balance?"},
}

// playAAEP plays all scenarios over one transport.
func playAAEP(t *testing.T, g gatewayReady, listen func(*testing.T, gatewayReady, object) *listener, patient, hasty *agent) map[string]heard {
	t.Helper()
	played, listeners := map[string]heard{}, map[string]*listener{}
	for name, capabilities := range terms {
		l := listen(t, g, subscription("1.0.0", capabilities))
		played[name], listeners[name] = heard{request: l.request, answer: l.answer}, l
	}
	l := listen(t, g, subscription("99.99.99", object{}))
	played["version"] = heard{request: l.request, answer: l.answer}
	for _, c := range conversations {
		l, producer := listeners[c.name], patient
		if l == nil {
			l = listeners["terms"]
		}
		if c.hasty {
			producer = hasty
		}
		h := heard{request: l.request, answer: l.answer}
		begun, session, replies := time.Now(), producer.ask(t, c.request), c.replies
		for {
			e := l.next(t, session)
			h.events = append(h.events, e)
			if isTerminal(e) {
				break
			}
			if e["reply_token"] != nil {
				for _, reply := range replies {
					reply = reply.with("reply_token", e["reply_token"]).with("subscription_id", l.answer["subscription_id"]).with("timestamp", now())
					l.send(reply)
					h.replies = append(h.replies, reply)
				}
				replies = nil
			}
		}
		h.took = time.Since(begun)
		played[c.name] = h
	}
	return played
}
