package admitter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/buildinfo"
	"github.com/countersign-dev/countersign/internal/service/quota"
	"github.com/countersign-dev/countersign/internal/service/shares"
	"github.com/countersign-dev/countersign/streams"
)

// registerService registers the micro service. Its endpoint accepts every tenant and protocol:
// unknown ones are denied instead of left unanswered.
func (s *service) registerService(ctx context.Context, nc *nats.Conn) (micro.Service, error) {
	svc, err := micro.AddService(nc, micro.Config{
		Name:         ServiceName,
		Version:      buildinfo.SemVer(),
		Description:  "Countersign admission: verdicts with durable evidence",
		QueueGroup:   ServiceName,
		Metadata:     map[string]string{events.ModeObserve: strings.Join(slices.Sorted(maps.Keys(s.observed)), ",")}, // only operators can ask
		StatsHandler: func(*micro.Endpoint) any { return s.env.Health.Report() },
		ErrorHandler: func(_ micro.Service, e *micro.NATSError) {
			s.env.Log.Error().Str("subject", e.Subject).Str("error", e.Description).Msg("micro service")
		},
	})
	if err != nil {
		return nil, fmt.Errorf("registering the micro service: %w", err)
	}
	err = s.addEndpoint(svc, nc, "admit", subject.Admit, func(r micro.Request) { s.acceptRequest(ctx, r) },
		micro.WithEndpointPendingLimits(maxArrived, s.memory.pendingLimit()))
	if err == nil {
		err = s.addEndpoint(svc, nc, "resolve", subject.Resolve, func(r micro.Request) { s.approvals.acceptRequest(ctx, r) })
	}
	if err == nil {
		err = s.addEndpoint(svc, nc, "mandates", subject.Mandates, func(r micro.Request) { s.mandates.acceptRequest(ctx, r) })
	}
	if err == nil { // the server must know the subscription before this service is announced as answering
		err = nc.FlushTimeout(flushTimeout)
	}
	if err != nil {
		return nil, errors.Join(err, svc.Stop())
	}
	return svc, nil
}

// addEndpoint adds an endpoint of one class of subjects, for every tenant and protocol, to the micro service.
func (s *service) addEndpoint(svc micro.Service, nc *nats.Conn, name string, class subject.Class, handle func(micro.Request), options ...micro.EndpointOpt) error {
	options = append(options, micro.WithEndpointSubject(s.space.All(class)))
	return svc.AddEndpoint(name, micro.HandlerFunc(func(r micro.Request) { handle(laterRequest{r, nc, &s.requests}) }), options...)
}

// laterRequest is a request that may be answered by another goroutine, after its handler has
// returned. The library's request stores in itself what became of an answer, and the library reads
// that when the handler returns, without a lock; so the answers here do not go through it. The
// numbers of errors in the statistics of micro stay 0; the service's own metrics count refusals.
type laterRequest struct {
	micro.Request
	nc       *nats.Conn                 // the request came over it
	requests *atomic.Pointer[nats.Conn] // service.requests
}

// Respond sends the answer to a request.
func (r laterRequest) Respond(body []byte, options ...micro.RespondOpt) error {
	return r.send(&nats.Msg{Data: body}, options)
}

// Error sends an answer with the headers of an error of a micro service.
func (r laterRequest) Error(code, description string, body []byte, options ...micro.RespondOpt) error {
	return r.send(&nats.Msg{Header: nats.Header{micro.ErrorHeader: {description}, micro.ErrorCodeHeader: {code}}, Data: body}, options)
}

func (r laterRequest) send(m *nats.Msg, options []micro.RespondOpt) error {
	m.Subject = r.Reply()
	for _, set := range options {
		set(m)
	}
	// The admitter may have left the queue group and joined it again since the request came: its
	// connection is closed then. The server takes an answer over any connection of the admitter.
	for nc := r.nc; ; {
		err := nc.PublishMsg(m)
		now := r.requests.Load()
		if err == nil || now == nc {
			return err
		}
		nc = now
	}
}

// maxArrived is how many requests may wait for acceptRequest.
const maxArrived = 65536

// acceptRequest hands a request to a worker; the subscription's goroutine never waits for the
// disk. If the caller's share of workers is in use, or there is no memory for a request of this
// size, the answer is deny at once.
func (s *service) acceptRequest(ctx context.Context, r micro.Request) {
	from := s.callerOf(r)
	reserved, fits := s.memory.reserve(from, quota.HeaderBytes(r.Headers()), len(r.Data()))
	if !fits {
		s.denyUnrecorded(r, codeOverloaded, nil)
		return
	}
	j := job{r, from, time.Now(), reserved}
	if code := s.workers.acquire(from); code != "" {
		s.memory.release(from, reserved)
		s.denyUnrecorded(r, code, nil)
		return
	}
	if !s.workers.handOver(j) { // no worker is idle, and acquire permits one more
		go s.runWorker(ctx, j)
	}
}

// answerByWorker answers a request other than an admission on a worker of its own. If there is none, or the answer
// panics, refuse sends a code and a message. what names the request in the service's log; advice says what its sender
// can do after a panic.
func (s *service) answerByWorker(r micro.Request, what, advice string, refuse func(code, message string), answer func()) {
	if !streams.IsAnswerable(r.Reply()) {
		s.dropped.Warn().Str("subject", r.Subject()).Msg(what + " without a usable reply subject, dropped (at most one line a second)")
		return
	}
	from := s.callerOf(r)
	if code := s.workers.acquire(from); code != "" {
		refuse(code, "the admitter has no worker for this now; try again")
		return
	}
	go func() {
		defer s.workers.release(from)
		defer func() {
			if recover() != nil {
				s.env.Log.Error().Str("stack", string(debug.Stack())).Msg(what + " made the admitter panic")
				refuse(admission.CodeInternal, "an internal error; nothing was changed for certain, "+advice)
			}
		}()
		answer()
	}()
}

// callerOf is the caller to which a request's use of shared capacity is attributed. The tenant is
// that of the subject, which the caller's account permits. Behind a gateway each publisher has a
// share. Requests without a valid stamp of the server count as one user's. The worker reads the
// request again, by what is registered then.
func (s *service) callerOf(r micro.Request) shares.Caller {
	req, _ := s.parseRequest(r, time.Time{})
	return shares.Caller{Tenant: req.Tenant, User: cmp.Or(req.Source, req.Gateway)}
}

// runWorker works on jobs until ctx ends. Workers are kept because their stack has already grown
// to what a decision needs.
func (s *service) runWorker(ctx context.Context, j job) {
	for more := true; more; j, more = s.workers.next(ctx) {
		s.admitRequest(ctx, j.request, j.received)
		s.memory.release(j.from, j.reserved)
		s.workers.release(j.from)
	}
}

// admitRequest decides one request, records it and answers. A panic leads to a deny; its text may
// quote the request and is not logged.
func (s *service) admitRequest(ctx context.Context, r micro.Request, received time.Time) {
	defer func() {
		if recover() != nil {
			s.env.Log.Error().Str("stack", string(debug.Stack())).Msg("a request made the admitter panic")
			s.denyUnrecorded(r, admission.CodeInternal, nil)
		}
	}()
	req, ofTenant := s.parseRequest(r, received)
	over := ofTenant && s.overQuota(s.admissionQuota, kindAdmissions, req.Tenant, cmp.Or(req.Source, req.Gateway), req.Header, req.Body)
	switch {
	case !streams.IsAnswerable(r.Reply()):
		s.metrics.Dropped()
		s.dropped.Warn().Str("subject", r.Subject()).Msg("request without a usable reply subject, dropped: the verdict has no address (at most one line a second)")
		return
	case over:
		s.denyUnrecorded(r, codeQuota, nil)
		return
	}
	out, reply, err := s.decide(ctx, req, ofTenant)
	if err != nil {
		s.unrecorded.Error().Err(err).Str("decision_id", out.Decision.DecisionID).Msg("the decision could not be recorded; the answer is deny (at most one line a second)")
		logAtFault := !slices.ContainsFunc([]error{streams.ErrTooLarge, errNoInputs, errDeadlineExceeded, errConflict}, func(other error) bool { return errors.Is(err, other) })
		if logAtFault {
			s.env.Health.Set("log", "the last decision, at "+received.UTC().Format(time.RFC3339)+", could not be recorded")
		}
		s.denyUnrecorded(r, failureCode(err), denialBody(&out, failureCode(err)))
		return
	}
	s.env.Health.Set("log", "")
	if err := sendAnswer(r, out, reply); err != nil {
		s.env.Log.Warn().Err(err).Str("decision_id", out.Decision.DecisionID).Msg("the answer could not be sent")
	}
	s.metrics.Admitted(req.Protocol, out.Decision.Verdict, received)
}

// denialBody renders the native refusal of a request after its decision could not be recorded; nil if
// that fails, too.
func denialBody(out *admission.Outcome, code string) []byte {
	out.Fail(code)
	body, err := out.Reply()
	if err != nil {
		return nil
	}
	return body
}
