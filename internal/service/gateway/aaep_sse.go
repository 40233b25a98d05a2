package gateway

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/countersign-dev/countersign/gateway"
	"github.com/countersign-dev/countersign/gateway/aaep"
	"github.com/countersign-dev/countersign/gateway/endpoint"
	"github.com/countersign-dev/countersign/gateway/token"
)

const (
	subscribePattern  = "POST /aaep/v1/subscriptions"
	aaepEventsPattern = "GET /aaep/v1/events"
	repliesPattern    = "POST /aaep/v1/replies"
)

// rejectionStatus are the statuses of rejections.
var rejectionStatus = map[string]int{aaep.RateLimit: http.StatusTooManyRequests, aaep.TransportUnavailable: http.StatusServiceUnavailable}

func rejected(r *aaep.Rejection) endpoint.Response {
	p := endpoint.Problem{Status: http.StatusBadRequest, RetryAfter: r.RetryAfter}
	if status := rejectionStatus[r.Code]; status != 0 {
		p.Status = status
	}
	return p.With(r)
}

// readMessage signs the caller in and reads a message.
func (b *aaepBridge) readMessage(r *http.Request) (m aaep.Message, who token.Record, id string, p *endpoint.Problem) {
	if who, id, p = b.server.admitCaller(r, isSubscriber); p != nil {
		return m, who, id, p
	}
	if !gateway.AcceptsContent("", r.Header) {
		return m, who, id, gateway.ProblemOf(gateway.BadContentType)
	}
	body, release, p := b.server.readBody(r, who, min(aaep.MaxMessage, b.server.flags.MaxBody))
	if p != nil {
		return m, who, id, p
	}
	defer release()
	m, err := aaep.Decode(body)
	if err != nil {
		return m, who, id, &endpoint.Problem{Status: http.StatusBadRequest, Code: "invalid_message", Message: err.Error()}
	}
	return m, who, id, nil
}

// postSubscription opens a subscription over server-sent events.
func (b *aaepBridge) postSubscription(w http.ResponseWriter, r *http.Request) {
	m, who, id, p := b.readMessage(r)
	if p == nil && m.Type != aaep.TypeRequest {
		p = &endpoint.Problem{Status: http.StatusBadRequest, Code: "invalid_message", Message: "send a subscription.request"}
	}
	if p != nil {
		b.server.write(w, subscribePattern, p.Response())
		return
	}
	b.sweep(time.Now())
	a, refused := b.subscribe(r.Context(), m, who, id)
	if refused != nil {
		b.server.write(w, subscribePattern, rejected(refused))
		return
	}
	b.add(a)
	out := endpoint.JSON(http.StatusCreated, a.sub.Accepted())
	out.Header.Set("Location", "/aaep/v1/events?subscription_id="+a.sub.ID)
	b.server.write(w, subscribePattern, out)
}

// postReply takes what a subscriber says on a subscription. Every reply that can be read is answered
// alike: which check it failed is not told (6.3.4), nor that the subscription is another gateway's.
func (b *aaepBridge) postReply(w http.ResponseWriter, r *http.Request) {
	m, who, _, p := b.readMessage(r)
	if p != nil {
		b.server.write(w, repliesPattern, p.Response())
		return
	}
	out := endpoint.Response{Status: http.StatusNoContent}
	if a := b.find(m.Subscription, who.User); a != nil {
		outcome := a.handle(m)
		switch {
		case outcome.Reply != nil:
			if p := b.storeReply(r.Context(), who.User, outcome.Reply); p != nil {
				out = p.Response()
			}
		case outcome.Closed:
			b.end(a)
		case outcome.Answer != nil:
			out = endpoint.JSON(http.StatusOK, outcome.Answer)
		default:
			b.logIgnored(who.User, outcome)
		}
	} else if m.IsReply() {
		b.logIgnored(who.User, aaep.Outcome{Ignored: "its sender does not have the subscription at this gateway"})
	} else {
		out = gateway.ProblemOf(gateway.NoSuchEndpoint).Response()
	}
	b.server.write(w, repliesPattern, out)
}

// logIgnored tells the operator of a message that is ignored.
func (b *aaepBridge) logIgnored(user string, out aaep.Outcome) {
	b.log.Warn().Str("user", user).Str("because", out.Ignored).Msg("a message of a subscriber was ignored (at most one line a second)")
}

// end ends a subscription and the stream that reads it.
func (b *aaepBridge) end(a *aaepSubscription) {
	b.remove(a)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stop != nil {
		a.stop()
	}
}

// getEvents is the stream of a subscription. A second one takes the place of the first.
func (b *aaepBridge) getEvents(w http.ResponseWriter, r *http.Request) {
	who, _, p := b.server.admitCaller(r, isSubscriber)
	var a *aaepSubscription
	if p == nil {
		if a = b.find(r.URL.Query().Get("subscription_id"), who.User); a == nil {
			p = gateway.ProblemOf(gateway.NoSuchEndpoint)
		}
	}
	if p != nil {
		b.server.write(w, aaepEventsPattern, p.Response())
		return
	}
	if r.Method == http.MethodHead { // it takes no place and reads nothing
		b.server.openStream(r.Context(), w, r, aaepEventsPattern, nil, func() {})
		return
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context())) // a newer stream cancels it, too
	done, ok := a.beginReading(ctx, cancel)
	if !ok { // a newer stream has overtaken this one
		cancel()
		b.server.write(w, aaepEventsPattern, gateway.ProblemOf(gateway.TooManyStreams).Response())
		return
	}
	a.resume(r.Header.Get("Last-Event-ID"))
	b.server.openStream(ctx, w, r, aaepEventsPattern, func(ctx context.Context, out *eventStream) { b.showEvents(ctx, out, a) }, func() { cancel(); done() })
}

// beginReading ends the streams that read the subscription or wait to, and takes their place until the
// returned function is called. ok is false if the context ends before that.
func (a *aaepSubscription) beginReading(ctx context.Context, cancel context.CancelFunc) (done func(), ok bool) {
	a.mu.Lock()
	if a.stop != nil {
		a.stop()
	}
	a.turn++
	mine := a.turn
	a.stop = cancel
	a.mu.Unlock()
	leave := func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.used = time.Now()
		if a.turn == mine {
			a.stop = nil
		}
	}
	select {
	case a.reading <- struct{}{}:
		return func() { leave(); <-a.reading }, true
	case <-ctx.Done():
		leave()
		return nil, false
	}
}

// showEvents sends the events of a subscription until the stream ends. The subscription stays: another token of
// its user may go on with it.
func (b *aaepBridge) showEvents(ctx context.Context, out *eventStream, a *aaepSubscription) {
	text := []byte(": " + a.sub.ID + "\n\n")
	for b.holds(out.caller, a.user) && out.write(text) {
		list, ok := b.nextEvents(ctx, a, out.beat.C)
		if !ok {
			return
		}
		text = nil
		for _, e := range list {
			text = fmt.Appendf(text, "event: aaep.event\nid: %s\ndata: %s\n\n", e.ID, e.Raw)
		}
		if text == nil {
			text = []byte(":\n\n")
		}
	}
}
