package gateway

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"

	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/client"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/protocol"
	"github.com/countersign-dev/countersign/gateway"
	"github.com/countersign-dev/countersign/gateway/endpoint"
	"github.com/countersign-dev/countersign/gateway/token"
	"github.com/countersign-dev/countersign/internal/service/metrics"
	"github.com/countersign-dev/countersign/streams"
)

// ask sends a request to the admitter, and sends it again as the Go client does: another admitter may answer.
// It goes on if the caller hangs up: a decision may be recorded already.
func (s *server) ask(r *http.Request, msg *nats.Msg) (*nats.Msg, *endpoint.Problem) {
	reply, err := s.asking.Request(context.WithoutCancel(r.Context()), msg, s.flags.Timeout)
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout), errors.Is(err, nats.ErrDisconnected):
		return nil, gateway.ProblemOf(gateway.TimedOut)
	case err != nil:
		return nil, gateway.ProblemOf(gateway.NATSAway)
	}
	return reply, nil
}

// admit asks the admitter for the caller's publisher.
func (s *server) admit(r *http.Request, who token.Record, row endpoint.Row, a endpoint.Admission) endpoint.Response {
	msg := nats.NewMsg(s.flags.Space().Admit(s.flags.Tenant, a.Protocol))
	msg.Data = a.Body
	maps.Copy(msg.Header, gateway.MessageHeaders(r.Header))
	msg.Header[events.HeaderPublisher] = []string{who.User}
	reply, p := s.ask(r, msg)
	if p != nil {
		s.count.Admitted(a.Protocol, metrics.Failed)
		return row.Fail(p)
	}
	out := gateway.ReadReply(row, reply.Header, reply.Data)
	s.count.Admitted(a.Protocol, outcomeOf(out))
	return out
}

// outcomeOf is the outcome of an admission in its metric. The header has a decision id only if the admitter gave one.
func outcomeOf(out endpoint.Response) string {
	switch {
	case out.Header.Get(events.HeaderDecisionID) != "":
		return out.Header.Get(events.HeaderVerdict)
	case out.Refusal == string(gateway.BadReply):
		return metrics.Failed
	}
	return metrics.Unrecorded
}

// askAsPrincipal asks the admitter about a mandate for the caller.
func (s *server) askAsPrincipal(r *http.Request, who token.Record, row endpoint.Row, request endpoint.Principal) endpoint.Response {
	msg := nats.NewMsg(s.flags.Space().Mandates(s.flags.Tenant))
	msg.Data = request.Body
	msg.Header[events.HeaderPublisher] = []string{who.User}
	reply, p := s.ask(r, msg)
	if p != nil {
		return row.Fail(p)
	}
	out, ok := request.Respond(reply.Data)
	if !ok {
		return row.Fail(gateway.ProblemOf(gateway.BadReply))
	}
	return out
}

// publish puts the caller's events on the log and answers once all are durable.
func (s *server) publish(r *http.Request, who token.Record, row endpoint.Row, e endpoint.Events) endpoint.Response {
	msgs, err := s.messages(r.Header, who, e)
	if err != nil {
		return row.Fail(gateway.ProblemOf(gateway.BadEvent))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), s.flags.Timeout)
	defer cancel()
	err = streams.PublishEvents(ctx, s.nc, msgs)
	if err == nil {
		s.count.Stored(e.Protocol, len(msgs))
		return e.Stored
	}
	p := gateway.ProblemOf(publishFailure(err))
	var parts *streams.PublishError
	if errors.As(err, &parts) {
		s.count.Stored(e.Protocol, len(msgs)-len(parts.Failed))
	}
	if row.Problem != nil || len(msgs) < 2 || parts == nil {
		return row.Fail(p)
	}
	return p.With(map[string]any{"error": p.Code, "message": p.Message, "failed": slices.Sorted(maps.Keys(parts.Failed))})
}

func (s *server) messages(h http.Header, who token.Record, e endpoint.Events) (msgs []streams.Msg, err error) {
	sender := client.Sender{Space: s.flags.Space(), Tenant: s.flags.Tenant, Publisher: who.User, Session: h.Get(events.HeaderSession)}
	if len(e.CloudEvents) > 0 {
		return sender.CloudEventMessages(e.Protocol, e.CloudEvents...)
	}
	msgs, err = sender.Messages(e.Protocol, e.Bodies...)
	header := gateway.MessageHeaders(h)
	if protocol.Rows[e.Protocol].NamesNoSession {
		delete(header, events.HeaderSession) // the subject has it
	}
	for i := range msgs {
		maps.Copy(msgs[i].Header, header)
	}
	return msgs, err
}

// publishFailures are the reasons why events are not stored, the gravest first.
var publishFailures = []struct {
	is   error
	what gateway.Failure
}{
	{streams.ErrAmbiguous, gateway.InDoubt}, {streams.ErrTooLarge, gateway.BodyTooLarge}, {streams.ErrSender, gateway.WrongRole}, {streams.ErrQuota, gateway.RateLimited},
}

func publishFailure(err error) gateway.Failure {
	errs := []error{err}
	var parts *streams.PublishError
	if errors.As(err, &parts) {
		errs = slices.Collect(maps.Values(parts.Failed))
	}
	for _, f := range publishFailures {
		if slices.ContainsFunc(errs, func(e error) bool { return errors.Is(e, f.is) }) {
			return f.what
		}
	}
	return gateway.LogFull
}
