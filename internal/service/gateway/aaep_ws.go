package gateway

import (
	"context"
	"encoding/json"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/countersign-dev/countersign/gateway"
	"github.com/countersign-dev/countersign/gateway/aaep"
	"github.com/countersign-dev/countersign/gateway/endpoint"
	"github.com/countersign-dev/countersign/gateway/token"
)

const (
	socketPattern = "GET /aaep/v1/ws"
	subprotocol   = "aaep.v1"
)

// Codes with which a WebSocket closes (appendix B of AAEP).
const (
	socketClosed       websocket.StatusCode = 4000
	socketRejected     websocket.StatusCode = 4001
	socketUnauthorized websocket.StatusCode = 4002
	socketForbidden    websocket.StatusCode = 4003
	socketViolation    websocket.StatusCode = 4004
	socketBySubscriber websocket.StatusCode = 4005
)

// openSocket is the subscription over WebSocket: one message a text frame, the first one is
// subscription.request. Callers without a token are refused before the upgrade.
func (b *aaepBridge) openSocket(w http.ResponseWriter, r *http.Request) {
	who, id, p := b.server.admitCaller(r, isSubscriber)
	if p == nil && !slices.Contains(subprotocols(r.Header), subprotocol) {
		p = &endpoint.Problem{Status: http.StatusBadRequest, Code: "invalid_message", Message: "offer the WebSocket subprotocol " + subprotocol}
	}
	b.sweep(time.Now())
	if p == nil && !b.count.open(id+" socket") { // before the first message, too
		p = gateway.ProblemOf(gateway.TooManyStreams)
	}
	if p != nil {
		b.server.write(w, socketPattern, p.Response())
		return
	}
	defer b.count.close(id + " socket")
	b.server.taken.Add(1)
	defer b.server.taken.Done()
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{subprotocol}})
	if err != nil {
		return // Accept has answered
	}
	b.server.count.Answered(socketPattern, http.StatusSwitchingProtocols, "")
	defer func() { _ = conn.CloseNow() }()
	conn.SetReadLimit(aaep.MaxMessage)
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	defer cancel()
	k := &socket{bridge: b, conn: conn, r: r, who: who, cancel: cancel}
	code, reason := k.serve(ctx, id)
	k.write.Lock()
	defer k.write.Unlock()
	_ = conn.Close(code, reason)
}

func subprotocols(h http.Header) (list []string) {
	for _, v := range h.Values("Sec-WebSocket-Protocol") {
		for name := range strings.SplitSeq(v, ",") {
			list = append(list, strings.TrimSpace(name))
		}
	}
	return list
}

// socket is an open WebSocket.
type socket struct {
	bridge *aaepBridge
	conn   *websocket.Conn
	r      *http.Request
	who    token.Record
	cancel context.CancelFunc
	write  sync.Mutex
}

// send writes one message; a reader that is too slow loses the connection.
func (k *socket) send(ctx context.Context, text []byte) error {
	k.write.Lock()
	defer k.write.Unlock()
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return k.conn.Write(ctx, websocket.MessageText, text)
}

func (k *socket) sendMessage(ctx context.Context, message any) error {
	b, err := json.Marshal(message)
	if err != nil {
		return err
	}
	return k.send(ctx, b)
}

func (k *socket) read(ctx context.Context) (m aaep.Message, ok bool) {
	typ, body, err := k.conn.Read(ctx)
	if err != nil || typ != websocket.MessageText {
		return m, false
	}
	m, err = aaep.Decode(body)
	return m, err == nil
}

// readFirst reads the first message. A socket that is silent keeps no gateway from stopping.
func (k *socket) readFirst(ctx context.Context) (m aaep.Message, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, aaepPatience)
	defer cancel()
	go func() {
		defer cancel()
		select {
		case <-k.bridge.server.stopped:
		case <-ctx.Done():
		}
	}()
	return k.read(ctx)
}

// serve negotiates and forwards until the subscription ends, and returns with what to close.
func (k *socket) serve(ctx context.Context, id string) (websocket.StatusCode, string) {
	m, ok := k.readFirst(ctx)
	if !ok || m.Type != aaep.TypeRequest {
		return socketViolation, "the first message must be a subscription.request"
	}
	a, refused := k.bridge.subscribe(ctx, m, k.who, id)
	if refused != nil {
		_ = k.sendMessage(ctx, refused)
		return socketRejected, refused.Code
	}
	defer k.bridge.count.close(id)
	if k.sendMessage(ctx, a.sub.Accepted()) != nil {
		return socketClosed, "the connection is lost"
	}
	type end struct {
		code   websocket.StatusCode
		reason string
	}
	ended := make(chan end, 1)
	go func() {
		defer k.cancel()
		e := end{socketClosed, "a failure inside"}
		defer func() {
			if recover() != nil {
				k.bridge.server.env.Log.Error().Str("stack", string(debug.Stack())).Msg("a message of a subscriber made the gateway panic")
			}
			ended <- e
		}()
		e.code, e.reason = k.receive(ctx, a)
	}()
	code, reason := k.forward(ctx, a)
	if ctx.Err() == nil { // the gateway ends it, and says so in AAEP's words
		_ = k.sendMessage(ctx, map[string]string{"type": aaep.TypeClose, "subscription_id": a.sub.ID, "reason_code": aaep.Unknown, "reason_message": reason})
		_ = k.conn.Close(code, reason) // ends receive, too
		<-ended
		return code, reason
	}
	e := <-ended
	return e.code, e.reason
}

// forward sends events until the subscription ends.
func (k *socket) forward(ctx context.Context, a *aaepSubscription) (websocket.StatusCode, string) {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		list, ok := k.bridge.nextEvents(ctx, a, beat.C)
		who, _, p := k.bridge.server.signIn(k.r)
		if code, reason := k.endOf(who, p); code != 0 {
			return code, reason
		}
		if !ok {
			return socketClosed, "the gateway ends the subscription; subscribe again"
		}
		for _, e := range list {
			if k.send(ctx, e.Raw) != nil {
				return socketClosed, "the subscriber reads too slowly"
			}
		}
		if len(list) == 0 && k.ping(ctx) != nil {
			return socketClosed, "the subscriber does not answer"
		}
	}
}

func (k *socket) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return k.conn.Ping(ctx)
}

// endOf is with what the socket closes after its caller was signed in again: 0 if the caller still is the subscriber that
// opened it.
func (k *socket) endOf(who token.Record, p *endpoint.Problem) (websocket.StatusCode, string) {
	switch {
	case p == nil && !isSubscriber(who), p != nil && p.Status == http.StatusForbidden:
		return socketForbidden, "the caller is no longer a subscriber"
	case p == nil && who.User != k.who.User, p != nil && p.Status == http.StatusUnauthorized:
		return socketUnauthorized, "the token is no longer valid"
	case p != nil:
		return websocket.StatusTryAgainLater, p.Code
	}
	return 0, ""
}

// receive takes the subscriber's messages until the connection ends.
func (k *socket) receive(ctx context.Context, a *aaepSubscription) (websocket.StatusCode, string) {
	for {
		m, ok := k.read(ctx)
		if !ok {
			return socketViolation, "not a message of a subscriber"
		}
		who, _, p := k.bridge.server.admitCaller(k.r, isSubscriber)
		if code, reason := k.endOf(who, p); code != 0 {
			return code, reason
		}
		out := a.handle(m)
		switch {
		case out.Violation:
			return socketViolation, "the subscription is open already"
		case out.Closed:
			return socketBySubscriber, "closed"
		case out.Answer != nil:
			if k.sendMessage(ctx, out.Answer) != nil {
				return socketClosed, "the subscriber reads too slowly"
			}
		case out.Reply != nil:
			if p := k.bridge.storeReply(ctx, k.who.User, out.Reply); p != nil {
				return websocket.StatusTryAgainLater, p.Code
			}
		default:
			k.bridge.logIgnored(k.who.User, out)
		}
	}
}
