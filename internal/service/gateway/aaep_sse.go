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
func (s *server) readMessage(r *http.Request) (m aaep.Message, who token.Record, id string, p *endpoint.Problem) {
	if who, id, p = s.admitCaller(r, isSubscriber); p != nil {
		return m, who, id, p
	}
	if !gateway.AcceptsContent("", r.Header) {
		return m, who, id, gateway.ProblemOf(gateway.BadContentType)
	}
	body, p := s.readBody(r)
	if p != nil {
		return m, who, id, p
	}
	m, err := aaep.Decode(body)
	if err != nil {
		return m, who, id, &endpoint.Problem{Status: http.StatusBadRequest, Code: "invalid_message", Message: err.Error()}
	}
	return m, who, id, nil
}

// postSubscription opens a subscription over server-sent events.
func (s *server) postSubscription(w http.ResponseWriter, r *http.Request) {
	m, who, id, p := s.readMessage(r)
	if p == nil && m.Type != aaep.TypeRequest {
		p = &endpoint.Problem{Status: http.StatusBadRequest, Code: "invalid_message", Message: "send a subscription.request"}
	}
	if p != nil {
		s.write(w, subscribePattern, p.Response())
		return
	}
	s.aaep.sweep(time.Now())
	a, refused := s.subscribe(r.Context(), m, who, id)
	if refused != nil {
		s.write(w, subscribePattern, rejected(refused))
		return
	}
	s.aaep.add(a)
	out := endpoint.JSON(http.StatusCreated, a.sub.Accepted())
	out.Header.Set("Location", "/aaep/v1/events?subscription_id="+a.sub.ID)
	s.write(w, subscribePattern, out)
}

// postReply takes what a subscriber says on a subscription. Every reply that can be read is answered
// alike: which check it failed is not told (6.3.4).
func (s *server) postReply(w http.ResponseWriter, r *http.Request) {
	m, who, _, p := s.readMessage(r)
	if p != nil {
		s.write(w, repliesPattern, p.Response())
		return
	}
	out := endpoint.Response{Status: http.StatusNoContent}
	if a := s.aaep.find(m.Subscription, who.User); a != nil {
		outcome := a.handle(m)
		switch {
		case outcome.Reply != nil:
			if p := s.storeReply(r.Context(), who.User, outcome.Reply); p != nil {
				out = p.Response()
			}
		case outcome.Closed:
			s.aaep.end(a)
		case outcome.Answer != nil:
			out = endpoint.JSON(http.StatusOK, outcome.Answer)
		}
	} else if m.IsReply() {
		s.env.Log.Info().Str("user", who.User).Msg("a reply on a subscription that its sender does not have was ignored")
	}
	s.write(w, repliesPattern, out)
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

// getAAEPEvents is the stream of a subscription. A second one takes the place of the first.
func (s *server) getAAEPEvents(w http.ResponseWriter, r *http.Request) {
	who, _, p := s.admitCaller(r, isSubscriber)
	var a *aaepSubscription
	if p == nil {
		if a = s.aaep.find(r.URL.Query().Get("subscription_id"), who.User); a == nil {
			p = gateway.ProblemOf(gateway.NoSuchEndpoint)
		}
	}
	if p != nil {
		s.write(w, aaepEventsPattern, p.Response())
		return
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context())) // a newer stream cancels it, too
	done, ok := a.beginReading(ctx, cancel)
	if !ok { // a newer stream has overtaken this one
		cancel()
		s.write(w, aaepEventsPattern, gateway.ProblemOf(gateway.TooManyStreams).Response())
		return
	}
	a.resume(r.Header.Get("Last-Event-ID"))
	s.openStream(ctx, w, r, aaepEventsPattern, func(ctx context.Context, out *eventStream) { s.showEvents(ctx, out, a) }, func() { cancel(); done() })
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
func (s *server) showEvents(ctx context.Context, out *eventStream, a *aaepSubscription) {
	text := []byte(": " + a.sub.ID + "\n\n")
	for s.holds(out.caller, a.user) && out.write(text) {
		list, ok := s.nextEvents(ctx, a, out.beat.C)
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
