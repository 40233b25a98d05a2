package gateway

import (
	"io"
	"log"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/countersign-dev/countersign/gateway"
	"github.com/countersign-dev/countersign/gateway/endpoint"
	"github.com/countersign-dev/countersign/gateway/token"
	"github.com/countersign-dev/countersign/internal/buildinfo"
	"github.com/countersign-dev/countersign/internal/service/daemon"
)

// routes are all endpoints. What no pattern matches is answered like a bad token to callers without
// one, so that it does not tell what exists.
func (s *server) routes() *router {
	mux := &router{ServeMux: http.NewServeMux(), panicked: s.answerPanic}
	for _, row := range gateway.Rows() {
		mux.HandleFunc(row.Pattern, func(w http.ResponseWriter, r *http.Request) { s.write(w, row.Pattern, s.answer(r, row)) })
	}
	mux.HandleFunc("GET /v1/follow/{kind}", s.streams.followOutputs)
	mux.HandleFunc(approvalPattern, func(w http.ResponseWriter, r *http.Request) { s.write(w, approvalPattern, s.approvals.answer(w, r)) })
	mux.HandleFunc(callerPattern, s.reportCaller)
	describe(mux, gateway.SignIn{Certificates: s.flags.ClientCA != "", Issuer: s.flags.Issuer}, s.write)
	s.aaep.routes(mux)
	mux.Handle("GET /healthz", s.env.Health)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { daemon.WriteReport(w, s.readiness()) })
	for _, page := range gateway.StatusPages() {
		for _, pattern := range page.Patterns {
			mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
				s.write(w, pattern, page.Response(endpoint.Service{Status: s.readiness().Status, Version: buildinfo.Version(), Rate: s.flags.Rate, MaxBody: s.flags.MaxBody}))
			})
		}
	}
	mux.Handle("GET /metrics", s.env.Metrics)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		p := gateway.ProblemOf(gateway.NoSuchEndpoint)
		if _, _, refused := s.signIn(r); refused != nil {
			p = refused
		}
		s.write(w, "other", p.Response())
	})
	return mux
}

// readiness is ok while requests can be handed on: the admitter confirms the tokens, so there are none long without it.
func (s *server) readiness() daemon.Report {
	if s.stopping.Load() || !s.nc.IsConnected() || s.tokens.current() == nil {
		return daemon.Report{Status: daemon.StatusUnhealthy}
	}
	return daemon.Report{Status: daemon.StatusOK}
}

// quietLog drops what net/http logs about connections: it may quote what a client sent.
func quietLog() *log.Logger { return log.New(io.Discard, "", 0) }

// answerPanic answers a request that made an endpoint panic, if nothing of an answer was sent.
func (s *server) answerPanic(w http.ResponseWriter, r *http.Request) {
	s.logPanic()
	s.write(w, r.Pattern, gateway.ProblemOf(gateway.Panicked).Response())
}

// logPanic logs where a request made the gateway panic. The panic's text may quote the request and is not logged.
func (s *server) logPanic() {
	s.env.Log.Error().Str("stack", string(debug.Stack())).Msg("a request made the gateway panic")
}

// answer carries out one request of a runtime. A panic is a refusal in the protocol's words.
func (s *server) answer(r *http.Request, row endpoint.Row) (out endpoint.Response) {
	defer func() {
		if recover() != nil {
			s.logPanic()
			out = row.Fail(gateway.ProblemOf(gateway.Panicked))
		}
	}()
	readToken(r.Header, row.TokenHeader)
	who, _, p := s.admitCaller(r, func(t token.Record) bool {
		return t.Role == token.Runtime || row.AllowSubscribers && t.Role == token.Subscriber
	})
	if p != nil {
		return row.Fail(p)
	}
	if bare := row.BodyOptional && r.ContentLength == 0 && r.Header["Content-Type"] == nil; !bare && !gateway.AcceptsContent(row.Pattern, r.Header) {
		return row.Fail(gateway.ProblemOf(gateway.BadContentType))
	}
	body, release, p := s.readBody(r, who, s.flags.MaxBody)
	if p != nil {
		return row.Fail(p)
	}
	defer release()
	select { // after the body was read: a slow sender takes no place
	case s.inflight <- struct{}{}:
		defer func(begun time.Time) { <-s.inflight; s.count.Worked(begun) }(time.Now())
	default:
		return row.Fail(gateway.ProblemOf(gateway.Overloaded))
	}
	plan, p := row.Plan(endpoint.Request{Target: r.PathValue("target"), Header: r.Header, Body: body})
	switch {
	case p != nil:
		return row.Fail(p)
	case plan.Mandate == nil && who.Role != token.Runtime:
		return row.Fail(gateway.ProblemOf(gateway.WrongRole))
	case plan.Answer != nil:
		return *plan.Answer
	case plan.Receipt != nil:
		return s.verifyReceipt(who, row, *plan.Receipt)
	case !s.nc.IsConnected(): // a message must not wait in the connection's buffer until its caller has gone
		return row.Fail(gateway.ProblemOf(gateway.NATSAway))
	case plan.Admit != nil:
		return s.admit(r, who, row, *plan.Admit)
	case plan.Mandate != nil:
		return s.askAsPrincipal(r, who, row, *plan.Mandate)
	}
	return s.publish(r, who, row, *plan.Publish)
}

// write sends a response.
func (s *server) write(w http.ResponseWriter, pattern string, out endpoint.Response) {
	for name, values := range out.Header {
		w.Header()[http.CanonicalHeaderKey(name)] = values
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(out.Status)
	_, _ = w.Write(out.Body)
	s.count.Answered(pattern, out.Status, out.Refusal)
}
