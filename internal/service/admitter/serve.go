package admitter

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/streams"
)

// serve registers the micro service. Its endpoint takes every tenant and
// protocol, known or not: what nobody knows is denied, not left unanswered.
func (s *service) serve(ctx context.Context, nc *nats.Conn) (micro.Service, error) {
	svc, err := micro.AddService(nc, micro.Config{
		Name:         ServiceName,
		Version:      Version,
		Description:  "Countersign admission: verdicts with durable evidence",
		QueueGroup:   ServiceName,
		StatsHandler: func(*micro.Endpoint) any { return s.env.Health.Report() },
		ErrorHandler: func(_ micro.Service, e *micro.NATSError) {
			s.env.Log.Error().Str("subject", e.Subject).Str("error", e.Description).Msg("micro service")
		},
	})
	if err != nil {
		return nil, fmt.Errorf("registering the micro service: %w", err)
	}
	err = svc.AddEndpoint("admit", micro.HandlerFunc(func(r micro.Request) { s.accept(ctx, r) }),
		micro.WithEndpointSubject(s.space.All(subject.Admit)))
	if err == nil {
		err = s.serveResolve(ctx, svc)
	}
	if err == nil { // the server must know of it before anybody is told that this service answers
		err = nc.FlushTimeout(flushTimeout)
	}
	if err != nil {
		return nil, errors.Join(err, svc.Stop())
	}
	return svc, nil
}

// job is a request on its way to a worker.
type job struct {
	request  micro.Request
	received time.Time
	reserved int64 // of memory
}

// accept hands a request to a worker; the subscription's own goroutine never
// waits for the disk. When every worker is busy, or the memory for one more request
// of this size is not there, the answer is deny at once.
func (s *service) accept(ctx context.Context, r micro.Request) {
	reserved, fits := s.memory.reserve(len(r.Data()))
	if !fits {
		s.refuse(r, codeOverloaded, nil)
		return
	}
	j := job{r, time.Now(), reserved}
	if code := s.begin(); code != "" {
		s.memory.release(reserved)
		s.refuse(r, code, nil)
		return
	}
	select {
	case s.jobs <- j:
	default: // nobody is free, and begin says that there may be one more
		go s.work(ctx, j)
	}
}

// work does one job after the other until ctx ends. A worker that is kept has the
// stack that a decision needs; a new one would have to grow it each time.
func (s *service) work(ctx context.Context, j job) {
	for {
		s.admit(ctx, j.request, j.received)
		s.memory.release(j.reserved)
		<-s.slots
		s.inflight.Done()
		select {
		case j = <-s.jobs:
		case <-ctx.Done():
			return
		}
	}
}

// begin takes a worker's place, or says why there is none.
func (s *service) begin() (code string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return codeStopping
	}
	select {
	case s.slots <- struct{}{}:
		s.inflight.Add(1)
		return ""
	default:
		return codeOverloaded
	}
}

// admit decides one request, records it and answers. A panic is a deny, too; its
// text may quote the request and is not logged.
func (s *service) admit(ctx context.Context, r micro.Request, received time.Time) {
	defer func() {
		if recover() != nil {
			s.env.Log.Error().Str("stack", string(debug.Stack())).Msg("a request made the admitter panic")
			s.refuse(r, admission.CodeInternal, nil)
		}
	}()
	if !streams.Answerable(r.Reply()) {
		s.metrics.Dropped()
		s.env.Log.Warn().Str("subject", r.Subject()).Msg("request without a usable reply subject, dropped: nobody can be told a verdict")
		return
	}
	req, known := s.request(r, received)
	if known && s.overQuota(req.Tenant, req.Source, req.Body) {
		s.refuse(r, codeQuota, nil)
		return
	}
	out, reply, err := s.decide(ctx, req, known)
	if err != nil {
		s.env.Log.Error().Err(err).Str("decision_id", out.Decision.DecisionID).Msg("the decision could not be recorded; the answer is deny")
		if !errors.Is(err, streams.ErrTooLarge) && !errors.Is(err, errNoInputs) && !errors.Is(err, errExpired) { // the log is not at fault
			s.env.Health.Set("log", "decisions cannot be recorded")
		}
		s.refuse(r, failureCode(err), denial(&out, failureCode(err)))
		return
	}
	s.env.Health.Set("log", "")
	if err := s.respond(r, out, reply); err != nil {
		s.env.Log.Warn().Err(err).Str("decision_id", out.Decision.DecisionID).Msg("the answer could not be sent")
	}
	s.metrics.Admitted(req.Protocol, out.Decision.Verdict, received)
}

// denial renders the native refusal of a request whose decision could not be
// recorded; nil if even that fails.
func denial(out *admission.Outcome, code string) []byte {
	out.Fail(code)
	body, err := out.Reply()
	if err != nil {
		return nil
	}
	return body
}
