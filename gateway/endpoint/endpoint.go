// Package endpoint has the types with which the gateway's protocols describe their HTTP endpoints: a
// request becomes a Plan, the answer from NATS becomes a Response, and a failure is a Problem. A
// protocol's package gives a list of Rows; package gateway is the table of them. Everything here is
// pure. Begin reading with Row.
package endpoint

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/cloudevents/sdk-go/v2/event"
)

// Request is an HTTP request after the gateway has bounded its size and identified its caller.
type Request struct {
	Target string // the last segment of the path where the pattern ends with {target}
	Header http.Header
	Body   []byte
}

// Plan is what the gateway does for a request. Exactly one of its members is set.
type Plan struct {
	Admit   *Admission // ask the admitter
	Publish *Events    // put events on the log
	Answer  *Response  // answer without NATS
	Receipt *Receipt   // check a receipt
	Mandate *Principal // ask about a mandate of the caller
}

// Admission is a request for the admitter.
type Admission struct {
	Protocol string
	Body     []byte
}

// Principal is the request of a principal for the admitter. Respond reads the answer; ok is false if it makes no sense.
type Principal struct {
	Body    []byte
	Respond func(answer []byte) (out Response, ok bool)
}

// Receipt is a receipt with the call of the caller that it should permit.
type Receipt struct {
	Receipt, Key              string // as the admitter's answer had them
	Session, ToolCallID, Tool string
	Arguments                 []byte // nil for a protocol without arguments
}

// Events are events for the log.
type Events struct {
	Protocol    string
	Bodies      [][]byte      // events as they were sent, or
	CloudEvents []event.Event // events in CloudEvents
	Stored      Response      // the answer once all are durable
}

// Reply is the admitter's answer.
type Reply struct {
	Status int // HTTP's word for it: 200 for a verdict, 4xx and 5xx for a refused request
	Body   []byte
}

// Response is an HTTP response.
type Response struct {
	Status  int
	Header  http.Header
	Body    []byte
	Refusal string // code of the Problem that it tells; "" for an answer. It is counted, not sent.
}

// JSON is a response with a JSON body.
func JSON(status int, body any) Response {
	b, err := json.Marshal(body)
	if err != nil { // bodies are maps and structs of texts
		return Response{Status: http.StatusInternalServerError, Body: []byte("{}")}
	}
	return Response{Status: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: b}
}

// Document is a text that GET answers without a token. It is part of the program.
type Document struct {
	Pattern, Media string
	Text           func() ([]byte, error)
}

// StatusPage answers what clients of a protocol ask before they send calls, without a token.
type StatusPage struct {
	Patterns []string
	Response func(Service) Response
}

// Service is what a status page tells of the gateway. Nothing in it depends on the tenant.
type Service struct {
	Status  string // "ok", else the answer is 503
	Version string
	Rate    int   // requests per second of one user; 0 for no limit
	MaxBody int64 // bytes
}

// Problem is a failure. It is never an allow.
type Problem struct {
	Status     int
	Code       string // stable
	Message    string // what is wrong and what to do; quotes nothing of the request
	RetryAfter int    // seconds; 0 for none

	Role  string // of the caller, where it is what forbids the request
	Limit int64  // what was exceeded: bytes of a body, or requests per second; 0 if unknown
}

func (p *Problem) Error() string { return p.Code + ": " + p.Message }

// Response is the problem in plain words.
func (p *Problem) Response() Response {
	return p.With(map[string]string{"error": p.Code, "message": p.Message})
}

// With is a response of the problem with the body of a protocol.
func (p *Problem) With(body any) Response {
	r := JSON(p.Status, body)
	r.Refusal = p.Code
	if p.RetryAfter > 0 {
		r.Header.Set("Retry-After", strconv.Itoa(p.RetryAfter))
	}
	if p.Status == http.StatusUnauthorized {
		r.Header.Set("WWW-Authenticate", "Bearer")
	}
	return r
}

// Row is one endpoint.
type Row struct {
	Pattern string // as of net/http
	Plan    func(Request) (Plan, *Problem)
	Reply   func(Reply) Response    // nil: the admitter's answer as it is
	Problem func(*Problem) Response // nil: Problem.Response

	TokenHeader string // a header that may bring the token where there is no Authorization; "" for none

	AllowSubscribers bool // a subscriber may come, too; its plan must be a question about its mandate
	BodyOptional     bool // a request without a body needs no content type
}

// Respond renders the admitter's answer.
func (r Row) Respond(a Reply) Response {
	if r.Reply != nil {
		return r.Reply(a)
	}
	return Response{Status: a.Status, Header: http.Header{"Content-Type": {"application/json"}}, Body: a.Body}
}

// Fail renders a problem.
func (r Row) Fail(p *Problem) Response {
	if r.Problem != nil {
		return r.Problem(p)
	}
	return p.Response()
}

// AdmitTo is the Plan of an endpoint that hands its body to the admitter as it is.
func AdmitTo(protocol string) func(Request) (Plan, *Problem) {
	return func(r Request) (Plan, *Problem) {
		return Plan{Admit: &Admission{Protocol: protocol, Body: r.Body}}, nil
	}
}
