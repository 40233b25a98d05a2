package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/go-jose/go-jose/v4"
	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/admission/publisher"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/gateway/aaep"
	"github.com/countersign-dev/countersign/gateway/token"
	"github.com/countersign-dev/countersign/internal/service/follow"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

const subscribe = `{"type":"subscription.request","aaep_version":"1.0.0","subscriber_id":"reader","capabilities":{"supports_confirmation_reply":true}}`

// startAAEP is start with a service that serves followers, the subscriber sam registered as reached through
// the gateway, and the subscriber lou, who is not.
func startAAEP(t *testing.T, change ...func(*Flags)) *rig {
	t.Helper()
	r := start(t, change...)
	stop, err := follow.Serve(t.Context(), r.nats.JS("correlator"), streams.DefaultShard, subject.Space{Prefix: "gov"}, zerolog.Nop())
	servicetest.OK(t, err)
	t.Cleanup(stop)
	const doc = `{"schema": "https://schemas.countersign.dev/countersign/publisher-registration/v1", "publisher": "sam", "gateway": "` + servicetest.Gateway + `"}`
	r.put(streams.BucketPublishers, publisher.Key(servicetest.Tenant, "registration.sam"), []byte(doc))
	r.addToken("lou", servicetest.Tenant, "lou", token.Subscriber, time.Hour)
	servicetest.Eventually(t, "the gateway knows the log and the tokens", func() bool {
		res, body := r.do("POST", "/aaep/v1/subscriptions", "lou", []byte(subscribe))
		return res.StatusCode == 201 && r.closeSubscription(t, "lou", subscriptionOf(t, body))
	})
	return r
}

func subscriptionOf(t *testing.T, accepted []byte) string {
	t.Helper()
	var a struct {
		Type, Subscription_id string //nolint:revive // AAEP's name
	}
	servicetest.OK(t, json.Unmarshal(accepted, &a))
	if a.Type != "subscription.accepted" {
		t.Fatalf("%s", accepted)
	}
	return a.Subscription_id
}

func (r *rig) closeSubscription(t *testing.T, who, id string) bool {
	t.Helper()
	res, _ := r.do("POST", "/aaep/v1/replies", who, fmt.Appendf(nil, `{"type":"subscription.close","subscription_id":%q}`, id))
	return res.StatusCode == 204
}

func (r *rig) subscription(t *testing.T, who string) string {
	t.Helper()
	res, body := r.do("POST", "/aaep/v1/subscriptions", who, []byte(subscribe))
	if res.StatusCode != 201 {
		t.Fatalf("%d %s", res.StatusCode, body)
	}
	return subscriptionOf(t, body)
}

// say puts events on the log: one in AAEP, and one that no subscriber of AAEP may see.
func (r *rig) say(n int) {
	space := subject.Space{Prefix: "gov"}
	r.nats.Publish(servicetest.Runtime,
		streams.Msg{Subject: space.Event("acme", "rt1", "agenthook", "s", "PreToolUse"), Body: []byte(`{"event_type":"PreToolUse","tool_input":{"command":"secret"}}`)},
		streams.Msg{Subject: space.Event("acme", "rt1", "aaep", "sess_1", "agent.state.changed"), Body: fmt.Appendf(nil,
			`{"@context":"https://aaep-protocol.org/context/v1","type":"aaep:agent.state.changed","event_id":"evt_%d","session_id":"sess_1","timestamp":"2026-11-20T12:00:00.000Z","producer":{"agent_id":"a"},"from_state":"idle","to_state":"thinking"}`, n)})
}

func reply(id string) []byte {
	return fmt.Appendf(nil, `{"type":"confirmation.reply","reply_token":"rpl_1","decision":"accept","subscription_id":%q,"timestamp":"2026-11-20T12:00:00.000Z"}`, id)
}

// replies lists who replied, by the subjects on the log, and through which gateway.
func (r *rig) replies() (list []string) {
	for _, m := range r.nats.Log() {
		if strings.HasSuffix(m.Subject, ".confirmation.reply") {
			list = append(list, strings.Split(m.Subject, ".")[3]+" "+m.HeaderValue(events.HeaderGateway))
		}
	}
	return list
}

// A subscription over server-sent events gets the producers' events once, across lost connections, and
// nothing of other protocols. Another user's subscription is as unknown as none.
func TestAAEPOverSSE(t *testing.T) {
	r := startAAEP(t)
	id := r.subscription(t, "subscriber")
	path := "/aaep/v1/events?subscription_id=" + id
	s := r.open(path, "subscriber", "")
	r.say(1)
	r.say(2)
	for _, want := range []string{"evt_1", "evt_2"} {
		if got, kind, data := s.next(t); got != want || kind != "aaep.event" || !strings.Contains(data, `"event_id":"`+want+`"`) {
			t.Fatalf("%s %s %s", got, kind, data)
		}
	}
	head, err := http.NewRequestWithContext(t.Context(), http.MethodHead, r.url+path, nil)
	servicetest.OK(t, err)
	head.Header.Set("Authorization", "Bearer "+r.tokens["subscriber"])
	res, err := http.DefaultClient.Do(head)
	servicetest.OK(t, err)
	_ = res.Body.Close()
	r.say(3)
	if got, _, _ := s.next(t); res.StatusCode != 200 || got != "evt_3" {
		t.Errorf("after HEAD, which is answered %d, the stream goes on with %s", res.StatusCode, got)
	}
	_ = s.res.Body.Close()
	if got, _, _ := r.open(path, "subscriber", "evt_1").next(t); got != "evt_2" {
		t.Errorf("behind evt_1 comes %s", got)
	}
	for who, path := range map[string]string{"lou": path, "subscriber": path + "x"} {
		if got := r.open(path, who, "").res.StatusCode; got != 404 {
			t.Errorf("%s: %d", who, got)
		}
	}
	for name, c := range map[string]struct {
		who, path, body string
		status          int
	}{
		"another role": {"runtime", "/aaep/v1/subscriptions", subscribe, 403}, "no token": {"", "/aaep/v1/subscriptions", subscribe, 401},
		"another version": {"subscriber", "/aaep/v1/subscriptions", strings.Replace(subscribe, "1.0.0", "99.99.99", 1), 400},
		"no message":      {"subscriber", "/aaep/v1/replies", `{}`, 400},
		"no decision":     {"subscriber", "/aaep/v1/replies", strings.Replace(string(reply(id)), "accept", "approve_once", 1), 204},
		"no kind asked":   {"subscriber", "/aaep/v1/replies", fmt.Sprintf(`{"type":"clarification.reply","reply_token":"rpl_1","response":"x","subscription_id":%q,"timestamp":"2026-11-20T12:00:00.000Z"}`, id), 204},
		"too large":       {"subscriber", "/aaep/v1/replies", strings.Repeat(" ", aaep.MaxMessage+1), 413},
	} {
		if res, body := r.do("POST", c.path, c.who, []byte(c.body)); res.StatusCode != c.status {
			t.Errorf("%s: %d %s", name, res.StatusCode, body)
		}
	}
	r.closeSubscription(t, "subscriber", id)
	if got := r.open(path, "subscriber", "").res.StatusCode; got != 404 {
		t.Errorf("closed: %d", got)
	}
	for range 2 {
		r.subscription(t, "subscriber")
	}
	if res, body := r.do("POST", "/aaep/v1/subscriptions", "subscriber", []byte(subscribe)); res.StatusCode != 429 || !strings.Contains(string(body), "rate_limit") {
		t.Errorf("beyond the limit: %d %s", res.StatusCode, body)
	}
}

// Other terms hold for a subscription over server-sent events as soon as they are answered, and a close ends its stream.
func TestAAEPTermsAndCloseOverSSE(t *testing.T) {
	r := startAAEP(t)
	id := r.subscription(t, "subscriber")
	s := r.open("/aaep/v1/events?subscription_id="+id, "subscriber", "")
	filter := func(pattern string) (int, string) {
		res, body := r.do("POST", "/aaep/v1/replies", "subscriber", fmt.Appendf(nil, `{"type":"subscription.renegotiate","subscription_id":%q,"capabilities":{"event_filters":{"exclude":[%q]}}}`, id, pattern))
		return res.StatusCode, string(body)
	}
	if code, body := filter("aaep:agent.state.*"); code != 200 || subscriptionOf(t, []byte(body)) != id || !strings.Contains(body, "state.*") {
		t.Errorf("other terms: %d %s", code, body)
	}
	r.say(1)
	r.nats.Publish(servicetest.Runtime, streams.Msg{Subject: subject.Space{}.Event("acme", "rt1", "aaep", "sess_1", "agent.progress.updated"), Body: []byte(
		`{"@context":"https://aaep-protocol.org/context/v1","type":"aaep:agent.progress.updated","event_id":"evt_2","session_id":"sess_1","timestamp":"2026-11-20T12:00:00.000Z","producer":{"agent_id":"a"},"summary_normal":"Half.","progress":{"percent":50}}`)})
	if got, _, _ := s.next(t); got != "evt_2" {
		t.Errorf("behind an event that the new terms leave out comes %s", got)
	}
	if !r.closeSubscription(t, "subscriber", id) {
		t.Error("the close is not taken")
	}
	for s.lines.Scan() {
		if text := s.lines.Text(); strings.HasPrefix(text, "data:") {
			t.Errorf("after the close: %s", text)
		}
	}
	if code, body := filter("aaep:agent.tool.*"); code != 404 {
		t.Errorf("other terms of a closed subscription: %d %s", code, body)
	}
}

// An open stream and an open WebSocket end when the caller is no longer the subscriber that opened them: as
// another user, or in another role. Nothing is stored or sent for the former user.
func TestAAEPEndsWithItsMapping(t *testing.T) {
	for name, to := range map[string]struct {
		user, role string
		code       websocket.StatusCode
	}{
		"another user": {"lou", token.Subscriber, socketUnauthorized}, "another role": {"sam", token.Runtime, socketForbidden},
		"another user in another role": {servicetest.Runtime, token.Runtime, socketForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			i := startIssuer(t)
			r := startAAEP(t, func(f *Flags) { f.Issuer, f.Audiences, f.UserStreams = i.srv.URL, []string{audience}, 3 })
			who, err := token.OIDCSubject(i.srv.URL, "agent-7")
			servicetest.OK(t, err)
			r.mapSubject("m1", who, "sam", token.Subscriber, false)
			r.tokens["jwt"] = i.jwt("k1", "k1", i.claims(nil))
			servicetest.Eventually(t, "the subject is mapped", func() bool {
				res, body := r.do("POST", "/aaep/v1/subscriptions", "jwt", []byte(subscribe))
				return res.StatusCode == 201 && r.closeSubscription(t, "jwt", subscriptionOf(t, body))
			})
			c, silent := r.dial(t, "jwt"), r.dial(t, "jwt")
			send(t, c, subscribe)
			id := subscriptionOf(t, []byte(receive(t, c)))
			send(t, silent, subscribe)
			receive(t, silent)
			s := r.open("/aaep/v1/events?subscription_id="+r.subscription(t, "jwt"), "jwt", "")
			s.lines.Scan() // its name
			r.mapSubject("m2", who, to.user, to.role, false)
			r.mapSubject("m1", who, "sam", token.Subscriber, true)
			servicetest.Eventually(t, "the subject is mapped otherwise", func() bool {
				res, body := r.do("POST", "/aaep/v1/subscriptions", "jwt", []byte(subscribe))
				return res.StatusCode == 403 || res.StatusCode == 201 && to.role == token.Subscriber && r.closesAs(t, to.user, subscriptionOf(t, body))
			})
			send(t, c, string(reply(id)))
			r.say(1)
			for what, c := range map[string]*websocket.Conn{"that replies": c, "that says nothing": silent} {
				text, err := []byte(nil), error(nil)
				for err == nil {
					if _, text, err = c.Read(t.Context()); strings.Contains(string(text), "evt_1") {
						t.Errorf("the WebSocket %s: %s", what, text)
					}
				}
				if websocket.CloseStatus(err) != to.code {
					t.Errorf("the WebSocket %s: %v", what, err)
				}
			}
			for s.lines.Scan() {
				if text := s.lines.Text(); strings.HasPrefix(text, "data:") {
					t.Errorf("the stream: %s", text)
				}
			}
			if list := r.replies(); len(list) != 0 {
				t.Errorf("replies: %v", list)
			}
		})
	}
}

// closesAs reports whether a subscription is that of the user of a token: its close ends it.
func (r *rig) closesAs(t *testing.T, user, id string) bool {
	t.Helper()
	r.closeSubscription(t, user, id)
	return r.open("/aaep/v1/events?subscription_id="+id, "jwt", "").res.StatusCode == 404
}

// Of several streams of one subscription the newest reads; the others are answered and end.
func TestAAEPStreamsOvertake(t *testing.T) {
	r := startAAEP(t)
	path := "/aaep/v1/events?subscription_id=" + r.subscription(t, "subscriber")
	first := r.open(path, "subscriber", "")
	answers := make(chan *sse, 20)
	for range cap(answers) {
		go func() { answers <- r.open(path, "subscriber", "") }()
	}
	for range cap(answers) {
		<-answers
	}
	last := r.open(path, "subscriber", "")
	r.say(1)
	if got, _, _ := last.next(t); got != "evt_1" {
		t.Errorf("the newest stream gets %s", got)
	}
	for first.lines.Scan() {
		if text := first.lines.Text(); strings.HasPrefix(text, "data:") {
			t.Errorf("the oldest stream gets %s", text)
		}
	}
}

// dial opens a WebSocket as a user.
func (r *rig) dial(t *testing.T, who string) *websocket.Conn {
	t.Helper()
	c, _, err := websocket.Dial(t.Context(), r.url+"/aaep/v1/ws", &websocket.DialOptions{Subprotocols: []string{subprotocol},
		HTTPHeader: map[string][]string{"Authorization": {"Bearer " + r.tokens[who]}}})
	servicetest.OK(t, err)
	t.Cleanup(func() { _ = c.CloseNow() })
	return c
}

func send(t *testing.T, c *websocket.Conn, text string) {
	t.Helper()
	servicetest.OK(t, c.Write(t.Context(), websocket.MessageText, []byte(text)))
}

func receive(t *testing.T, c *websocket.Conn) string {
	t.Helper()
	_, b, err := c.Read(t.Context())
	servicetest.OK(t, err)
	return string(b)
}

// A subscription over WebSocket: handshake, events, a reply under the subscriber's own identity, other
// terms, and the end, each with its code.
func TestAAEPOverWebSocket(t *testing.T) {
	r := startAAEP(t)
	r.admitter()
	c := r.dial(t, "subscriber")
	send(t, c, subscribe)
	id := subscriptionOf(t, []byte(receive(t, c)))
	r.say(1)
	if got := receive(t, c); !strings.Contains(got, `"event_id":"evt_1"`) {
		t.Errorf("%s", got)
	}
	send(t, c, fmt.Sprintf(`{"type":"subscription.renegotiate","subscription_id":%q,"capabilities":{"event_filters":{"exclude":["aaep:agent.state.*"]}}}`, id))
	if got := receive(t, c); !strings.Contains(got, "state.*") {
		t.Errorf("renegotiated: %s", got)
	}
	r.say(2)
	send(t, c, string(reply("sub_another")))
	send(t, c, strings.Replace(string(reply(id)), "accept", "approve_once", 1))
	send(t, c, string(reply(id)))
	servicetest.Eventually(t, "the reply is on the log", func() bool { return len(r.replies()) > 0 })
	if got := fmt.Sprint(r.replies()); got != "[sam "+servicetest.Gateway+"]" {
		t.Errorf("replies of %s", got)
	}
	send(t, c, fmt.Sprintf(`{"type":"subscription.close","subscription_id":%q}`, id))
	if _, b, err := c.Read(t.Context()); websocket.CloseStatus(err) != socketBySubscriber {
		t.Errorf("closed: %s %v", b, err)
	}
	for first, code := range map[string]websocket.StatusCode{
		"{}": socketViolation, string(reply(id)): socketViolation, strings.Replace(subscribe, "1.0.0", "99.99.99", 1): socketRejected,
		strings.Replace(subscribe, "true", "1", 1): socketRejected,
	} {
		c := r.dial(t, "subscriber")
		send(t, c, first)
		_, _, err := c.Read(t.Context())
		if err == nil { // the rejection
			_, _, err = c.Read(t.Context())
		}
		if websocket.CloseStatus(err) != code {
			t.Errorf("%s: %v", first, err)
		}
	}
	c = r.dial(t, "subscriber")
	send(t, c, subscribe)
	receive(t, c)
	done := make(chan struct{})
	go func() { defer close(done); _ = r.service.Stop() }()
	if got := receive(t, c); !strings.Contains(got, "subscription.close") {
		t.Errorf("at the end: %s", got)
	}
	if _, _, err := c.Read(t.Context()); websocket.CloseStatus(err) != socketClosed {
		t.Errorf("at the end: %v", err)
	}
	<-done
}

// A gateway that was taken over cannot reply for a subscriber that is not registered as reached through
// it, such as one that connects directly; and one user's subscription replies for no other.
func TestAttackRepliesForOthers(t *testing.T) {
	r := startAAEP(t)
	r.admitter()
	mine, theirs := r.subscription(t, "subscriber"), r.subscription(t, "lou")
	if res, body := r.do("POST", "/aaep/v1/replies", "lou", reply(theirs)); res.StatusCode != 403 {
		t.Errorf("registered nowhere: %d %s", res.StatusCode, body)
	}
	a, _ := r.do("POST", "/aaep/v1/replies", "lou", reply(mine))
	b, _ := r.do("POST", "/aaep/v1/replies", "lou", reply("sub_none"))
	if a.StatusCode != 204 || b.StatusCode != 204 {
		t.Errorf("another's subscription: %d, none: %d", a.StatusCode, b.StatusCode)
	}
	for _, id := range []string{mine, "sub_none"} {
		if res, _ := r.do("POST", "/aaep/v1/replies", "lou", fmt.Appendf(nil, `{"type":"subscription.close","subscription_id":%q}`, id)); res.StatusCode != 404 {
			t.Errorf("closing %s: %d", id, res.StatusCode)
		}
	}
	for _, user := range []string{"rt2", "lou", "dana"} {
		m := &nats.Msg{Subject: "gov.events.acme." + user + ".aaep.~.confirmation.reply", Data: reply(mine)}
		if got, err := r.nats.Conn(servicetest.Gateway).RequestMsgWithContext(t.Context(), m); err != nil || !strings.Contains(string(got.Data), "does not come from the publisher") {
			t.Errorf("for %s: %s %v", user, got.Data, err)
		}
	}
	if got := r.replies(); len(got) > 0 {
		t.Errorf("replies on the log: %v", got)
	}
	if res, body := r.do("POST", "/aaep/v1/replies", "subscriber", reply(mine)); res.StatusCode != 204 || fmt.Sprint(r.replies()) != "[sam "+servicetest.Gateway+"]" {
		t.Errorf("the subscriber's own: %d %s, %v", res.StatusCode, body, r.replies())
	}
}

// The manifest is signed by the gateway's own key; without one, a subscriber that demands a signature is
// rejected.
func TestAAEPManifest(t *testing.T) {
	key := filepath.Join(t.TempDir(), "manifest.key")
	servicetest.OK(t, os.WriteFile(key, []byte(strings.Repeat("5a", 32)+"\n"), 0o600))
	r := startAAEP(t, func(f *Flags) { f.ManifestKey = key })
	res, plain := r.do("GET", manifestPath, "", nil)
	if res.StatusCode != 200 || !strings.Contains(string(plain), `"aaep:producer.manifest"`) {
		t.Errorf("%d %s", res.StatusCode, plain)
	}
	for _, accept := range []string{"", "*/*", "application/json", "application/jose;q=0"} {
		if _, body := r.do("GET", manifestPath, "", nil, "Accept", accept); !bytes.Equal(body, plain) {
			t.Errorf("Accept: %s: %s", accept, body)
		}
	}
	_, compact := r.do("GET", manifestPath, "", nil, "Accept", "Application/JOSE, application/json;q=0.5")
	signed, err := jose.ParseSignedCompact(string(compact), []jose.SignatureAlgorithm{jose.ES256})
	servicetest.OK(t, err)
	if body, err := signed.Verify(signed.Signatures[0].Header.JSONWebKey); err != nil || string(body) != string(plain) {
		t.Errorf("%s %v", body, err)
	}
	wants := strings.Replace(subscribe, `{"supports`, `{"accept_signed_manifests_only":true,"supports`, 1)
	if res, body := r.do("POST", "/aaep/v1/subscriptions", "subscriber", []byte(wants)); res.StatusCode != 201 || !strings.Contains(string(body), string(compact)) {
		t.Errorf("%d %s", res.StatusCode, body)
	}
}

// The kind aaep has the producers' events and the replies to them, and nothing of other protocols. A stream that
// was lost before its first event goes on from the id of its first sign of life.
func TestFollowAAEP(t *testing.T) {
	r := startAAEP(t)
	r.admitter()
	const path = "/v1/follow/aaep"
	s := r.open(path, "subscriber", "")
	begun := ""
	for begun == "" && s.lines.Scan() {
		begun, _ = strings.CutPrefix(s.lines.Text(), "id: ")
		if begun == s.lines.Text() {
			begun = ""
		}
	}
	_ = s.res.Body.Close()
	r.say(1)
	s = r.open(path, "subscriber", begun)
	if _, kind, data := s.next(t); kind != "aaep" || !strings.Contains(data, `"evt_1"`) {
		t.Errorf("behind the first sign of life: %s %s", kind, data)
	}
	r.do("POST", "/aaep/v1/replies", "subscriber", reply(r.subscription(t, "subscriber")))
	if _, _, data := s.next(t); !strings.Contains(data, `"confirmation.reply"`) {
		t.Errorf("a reply: %s", data)
	}
	for _, who := range []string{"reviewer", "runtime"} {
		if got := r.open(path, who, "").res.StatusCode; got != 403 {
			t.Errorf("as %s: %d", who, got)
		}
	}
}

// The kind aioc has what the admitter answered to aioc's gates, and nothing that a runtime made: not the arguments, and
// no trace event of its own, signed or not. A stream that comes back goes on without a gap.
func TestFollowAIOC(t *testing.T) {
	r := startAAEP(t)
	r.admitter()
	const path = "/v1/follow/aioc"
	s, chosen := r.open(path, "subscriber", ""), r.open(path+"?tool=none", "subscriber", "")
	tool, handoff := example(t, "requests/tool-call.json"), example(t, "requests/handoff.json")
	if res, body := r.do("POST", "/aioc/tool", "runtime", tool); res.StatusCode != 200 {
		t.Fatalf("%d %s", res.StatusCode, body)
	}
	id, kind, data := s.next(t)
	if kind != "aioc" || !strings.Contains(data, `"type":"tool_policy_evaluated"`) || strings.Contains(data, "rawArguments") {
		t.Errorf("%s %s", kind, data)
	}
	_ = s.res.Body.Close()
	forged := strings.Replace(data, `"decision":"deny"`, `"decision":"allow"`, 1)
	m := &nats.Msg{Subject: "gov.events.acme." + servicetest.Runtime + ".tool.s.tool_policy_evaluated", Data: []byte(forged), Header: nats.Header{events.HeaderSignature: {"a..b"}}}
	if got, err := r.nats.Conn(servicetest.Runtime).RequestMsgWithContext(t.Context(), m); err != nil || !strings.Contains(string(got.Data), `"seq"`) {
		t.Fatalf("%s %v", got.Data, err)
	}
	r.do("POST", "/aioc/handoff", "runtime", handoff)
	s = r.open(path, "subscriber", id)
	if _, _, data := s.next(t); !strings.Contains(data, `"type":"handoff_policy_evaluated"`) {
		t.Errorf("behind the first one: %s", data)
	}
	r.say(1)
	r.do("POST", "/aioc/tool", "runtime", bytes.Replace(tool, []byte("export_report"), []byte("none"), 1))
	if _, _, data := chosen.next(t); !strings.Contains(data, `"toolName":"none"`) {
		t.Errorf("of one tool: %s", data)
	}
	if _, _, data := s.next(t); !strings.Contains(data, `"toolName":"none"`) {
		t.Errorf("live, behind an event of AAEP: %s", data)
	}
	for who, want := range map[string]int{"reviewer": 403, "runtime": 403, "globex": 401} {
		if got := r.open(path, who, "").res.StatusCode; got != want {
			t.Errorf("as %s: %d", who, got)
		}
	}
}

// A WebSocket that says nothing keeps the gateway from stopping no longer than its connection takes to end.
func TestSilentSocketEndsWithTheGateway(t *testing.T) {
	defer func(d time.Duration) { aaepPatience = d }(aaepPatience)
	aaepPatience = time.Hour
	r := startAAEP(t)
	c := r.dial(t, "subscriber")
	servicetest.OK(t, r.service.Stop())
	if _, _, err := c.Read(t.Context()); err == nil {
		t.Error("the silent WebSocket is open")
	}
}

// A subscription of a log that was replaced ends: its place in the log is nowhere.
func TestAAEPEndsWithItsLog(t *testing.T) {
	r := startAAEP(t)
	path := "/aaep/v1/events?subscription_id=" + r.subscription(t, "subscriber")
	r.nats.Stop()
	r.nats.Recreate()
	stop, err := follow.Serve(t.Context(), r.nats.JS("correlator"), streams.DefaultShard, subject.Space{Prefix: "gov"}, zerolog.Nop())
	servicetest.OK(t, err)
	t.Cleanup(stop)
	r.addToken("new", servicetest.Tenant, "sam", token.Subscriber, time.Hour)
	servicetest.Eventually(t, "the subscription is gone", func() bool {
		s := r.open(path, "new", "")
		for s.res.StatusCode == 200 && s.lines.Scan() {
		}
		return s.res.StatusCode == 404
	})
}

// sayLong puts n events on the log, each with more than 32,000 bytes of text.
func (r *rig) sayLong(n int) {
	text := strings.Repeat("x", 16000)
	var list []streams.Msg
	for i := range n {
		list = append(list, streams.Msg{Subject: subject.Space{}.Event("acme", "rt1", "aaep", "sess_1", "agent.state.changed"), Body: fmt.Appendf(nil,
			`{"@context":"https://aaep-protocol.org/context/v1","type":"aaep:agent.state.changed","event_id":"evt_%d","session_id":"sess_1","timestamp":"2026-11-20T12:00:00.000Z","producer":{"agent_id":"a"},"from_state":"idle","to_state":"thinking","summary_normal":%q,"summary_detailed":%q}`, i, text, text)})
	}
	r.nats.Publish(servicetest.Runtime, list...)
}

// Streams and WebSockets whose clients read nothing delay no other: one of each kind gets all events while the others
// stand still, and callers are answered. Those that stood still lose nothing when they go on.
func TestStalledReadersDelayNobody(t *testing.T) {
	setUntilEnd(t, &writeTimeout, servicetest.Guard)
	r := startAAEP(t, func(f *Flags) { f.MaxStreams, f.UserStreams = 64, 64 })
	const stalled, n = 2, 360 // 11.5 MB: more than Linux buffers for one connection (4 MiB at the sender, 6 MiB at the reader)
	stream := func(path string) func() string {
		s := r.open(path, "subscriber", "")
		return func() string { _, _, data := s.next(t); return data }
	}
	kinds := map[string]func() func() string{
		"a stream of records": func() func() string { return stream("/v1/follow/aaep") },
		"a subscription over server-sent events": func() func() string {
			return stream("/aaep/v1/events?subscription_id=" + r.subscription(t, "subscriber"))
		},
		"a subscription over WebSocket": func() func() string {
			c := r.dial(t, "subscriber")
			c.SetReadLimit(-1)
			send(t, c, subscribe)
			subscriptionOf(t, []byte(receive(t, c)))
			return func() string { return receive(t, c) }
		},
	}
	live, still := map[string]func() string{}, map[string][]func() string{}
	for kind, open := range kinds {
		for range stalled {
			still[kind] = append(still[kind], open())
		}
		live[kind] = open()
	}
	r.sayLong(n)
	readAll := func(what string, next func() string) {
		t.Helper()
		for i := range n {
			if got, want := next(), fmt.Sprintf(`"event_id":"evt_%d"`, i); !strings.Contains(got, want) {
				t.Fatalf("%s: %.200s, want %s", what, got, want)
			}
		}
	}
	for kind, next := range live {
		readAll(kind, next)
	}
	if res, body := r.do("GET", "/v1/caller", "runtime", nil); res.StatusCode != 200 {
		t.Errorf("another caller: %d %s", res.StatusCode, body)
	}
	for kind, list := range still {
		for _, next := range list {
			readAll(kind+" that stood still", next)
		}
	}
}
