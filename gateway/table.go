// Package gateway maps HTTP to the pipeline's subjects and back: a request to what is sent on NATS
// (endpoint.Plan), the admitter's reply to a status and a body, and every failure to an HTTP error.
// It decides nothing, and it is pure; internal/service/gateway has the connections. Begin reading
// with Rows, Failures and ProblemOf.
package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/protocol"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/gateway/aana"
	"github.com/countersign-dev/countersign/gateway/agenthook"
	"github.com/countersign-dev/countersign/gateway/aioc"
	"github.com/countersign-dev/countersign/gateway/aump"
	"github.com/countersign-dev/countersign/gateway/endpoint"
)

// Rows lists the endpoints of runtimes. Every one needs the role runtime.
func Rows() []endpoint.Row {
	generic := []endpoint.Row{
		{Pattern: "POST /v1/admit/{target}", Plan: planAdmit},
		{Pattern: "POST /v1/events/{target}", Plan: planEvents},
		{Pattern: "POST /v1/receipts:verify", Plan: planReceipt},
	}
	return slices.Concat(generic, agenthook.Rows, aana.Rows, aump.Rows, aioc.Rows)
}

// Documents lists the documents of protocols.
func Documents() []endpoint.Document { return []endpoint.Document{aump.Document} }

// StatusPages lists the status pages of protocols.
func StatusPages() []endpoint.StatusPage { return []endpoint.StatusPage{aana.StatusPage} }

// Failure is a way in which a request fails before there is an answer.
type Failure string

// The failures.
const (
	BadToken       Failure = "unauthorized"
	WrongRole      Failure = "forbidden"
	BadContentType Failure = "unsupported_media_type"
	BodyTooLarge   Failure = "request_too_large"
	BadBody        Failure = "unreadable_body"
	SlowBody       Failure = "body_timeout"
	NoSuchEndpoint Failure = "not_found"
	BadEvent       Failure = "invalid_cloudevent"
	RateLimited    Failure = "rate_limited"
	Overloaded     Failure = "overloaded"
	NATSAway       Failure = "unavailable"
	LogFull        Failure = "not_stored"
	TimedOut       Failure = "timeout"
	InDoubt        Failure = "in_doubt"
	Stopping       Failure = "stopping"
	Panicked       Failure = "internal_error"
	TooManyStreams Failure = "too_many_streams"
	BadPosition    Failure = "unknown_position"
	BadReply       Failure = "bad_reply"
	BadRequest     Failure = "invalid_request"
	Unverifiable   Failure = "unverifiable"
	NoSuchWorkflow Failure = "unknown_workflow"
	BadQuery       Failure = "invalid_query"
)

// problems has one line for each failure: the status, the seconds after which a try makes sense, and
// the message. A header that is too large is answered 431 by net/http itself.
var problems = map[Failure]endpoint.Problem{
	BadToken:       {Status: 401, Message: "no valid bearer token: send Authorization: Bearer TOKEN (countersign token create)"},
	WrongRole:      {Status: 403, Message: "the token's role does not permit this"},
	BadContentType: {Status: 415, Message: "send application/json, in UTF-8 and not compressed"},
	BodyTooLarge:   {Status: 413, Message: "the body is larger than the gateway accepts, or has more than 10000 events"},
	BadBody:        {Status: 400, Message: "the body could not be read"},
	SlowBody:       {Status: 408, Message: "the body did not come in time"},
	NoSuchEndpoint: {Status: 404, Message: "there is no such protocol or endpoint"},
	BadEvent:       {Status: 400, Message: "not CloudEvents in binary, structured or batch mode"},
	RateLimited:    {Status: 429, RetryAfter: 1, Message: "too many requests of this publisher; send more slowly"},
	Overloaded:     {Status: 503, RetryAfter: 1, Message: "the gateway works on as many requests as it may"},
	NATSAway:       {Status: 503, RetryAfter: 1, Message: "no admitter, or no ingest, answers; nothing is allowed"},
	LogFull:        {Status: 503, RetryAfter: 5, Message: "the log did not store it; send it again"},
	TimedOut:       {Status: 504, Message: "no answer in time; nothing is allowed"},
	InDoubt:        {Status: 504, Message: "it is not known whether the log stored it; send the same event again, with its event_id: it counts once"},
	Stopping:       {Status: 503, RetryAfter: 1, Message: "the gateway is stopping; send it again"},
	Panicked:       {Status: 500, Message: "the gateway failed on this request; its log says where"},
	TooManyStreams: {Status: 429, RetryAfter: 5, Message: "too many streams are open"},
	BadPosition:    {Status: 410, Message: "Last-Event-ID is not a position of this log; begin anew without it"},
	BadRequest:     {Status: 400, Message: "the body is not what the endpoint reads; see docs/gateway.md"},
	Unverifiable:   {Status: 503, RetryAfter: 60, Message: "this gateway has no checkpoint key (--checkpoint-key), or cannot read which receipt keys are retired, so it checks no receipt"},
	NoSuchWorkflow: {Status: 404, Message: "there is no such approval workflow of yours"},
	BadQuery:       {Status: 400, Message: "the query has a parameter or a value that the endpoint does not read; see docs/gateway.md"},
	BadReply:       {Status: 502, Message: "the answer makes no sense; nothing is allowed"},
}

// Failures lists all failures, sorted.
func Failures() (list []Failure) {
	for f := range problems {
		list = append(list, f)
	}
	slices.Sort(list)
	return list
}

// Refusals lists the codes of all failures, as metrics count them.
func Refusals() (list []string) {
	for _, f := range Failures() {
		list = append(list, string(f))
	}
	return list
}

// ProblemOf is the HTTP error of a failure.
func ProblemOf(f Failure) *endpoint.Problem {
	p := problems[f]
	p.Code = string(f)
	return &p
}

// badQuery is BadQuery with what the endpoint reads. The text names only parameters of the endpoint.
func badQuery(reads string) *endpoint.Problem {
	p := ProblemOf(BadQuery)
	p.Message = "the query has a parameter or a value that the endpoint does not read: " + reads
	return p
}

// noSuchProtocol is NoSuchEndpoint with the protocols that there are.
func noSuchProtocol(known []string) *endpoint.Problem {
	p := ProblemOf(NoSuchEndpoint)
	p.Message = "there is no such protocol; there are " + strings.Join(known, ", ")
	return p
}

// planAdmit hands the body to the admitter in the protocol of the path.
func planAdmit(r endpoint.Request) (endpoint.Plan, *endpoint.Problem) {
	if !slices.Contains(subject.Protocols, r.Target) {
		return endpoint.Plan{}, noSuchProtocol(subject.Protocols)
	}
	return endpoint.AdmitTo(r.Target)(r)
}

// planEvents publishes events in the protocol of the path: one JSON object, a JSON array, JSON Lines,
// or CloudEvents in binary, structured or batch mode.
func planEvents(r endpoint.Request) (endpoint.Plan, *endpoint.Problem) {
	if !slices.Contains(protocol.Published(), r.Target) {
		return endpoint.Plan{}, noSuchProtocol(protocol.Published())
	}
	out := &endpoint.Events{Protocol: r.Target}
	switch media := mediaType(r.Header); {
	case strings.HasPrefix(media, "application/cloudevents"), r.Header.Get("Ce-Specversion") != "":
		if p := readCloudEvents(r, out); p != nil {
			return endpoint.Plan{}, p
		}
	case media == mediaLines:
		out.Bodies = splitLines(r.Body)
	default:
		out.Bodies = splitArray(r.Body)
	}
	n := max(len(out.Bodies), len(out.CloudEvents))
	if n > maxEvents {
		return endpoint.Plan{}, ProblemOf(BodyTooLarge)
	}
	out.Stored = endpoint.JSON(http.StatusOK, map[string]int{"stored": n})
	return endpoint.Plan{Publish: out}, nil
}

// readCloudEvents decodes the request by the SDK.
func readCloudEvents(r endpoint.Request, out *endpoint.Events) *endpoint.Problem {
	m := cehttp.NewMessage(r.Header, io.NopCloser(bytes.NewReader(r.Body)))
	req := &http.Request{Header: r.Header, Body: m.BodyReader}
	if mediaType(r.Header) == mediaBatch {
		list, err := cehttp.NewEventsFromHTTPRequest(req)
		if err != nil {
			return ProblemOf(BadEvent)
		}
		out.CloudEvents = list
	} else {
		e, err := cehttp.NewEventFromHTTPRequest(req)
		if err != nil {
			return ProblemOf(BadEvent)
		}
		out.CloudEvents = append(out.CloudEvents, *e)
	}
	for _, e := range out.CloudEvents {
		if e.Validate() != nil {
			return ProblemOf(BadEvent)
		}
	}
	return nil
}

const (
	mediaJSON   = "application/json"
	mediaLines  = "application/x-ndjson"
	mediaEvent  = "application/cloudevents+json"
	mediaBatch  = "application/cloudevents-batch+json"
	mediaStream = "text/event-stream"
)

// isUTF8 reports whether a request's charset, if it names one, is UTF-8, of which ASCII is a part.
func isUTF8(h http.Header) bool {
	_, parameters, err := mime.ParseMediaType(h.Get("Content-Type"))
	charset, named := parameters["charset"]
	return err == nil && (!named || strings.EqualFold(charset, "utf-8") || strings.EqualFold(charset, "us-ascii"))
}

// isCompressed reports whether a request names an encoding of its body besides identity, which is none.
func isCompressed(h http.Header) bool {
	return slices.ContainsFunc(h.Values("Content-Encoding"), func(v string) bool { return !strings.EqualFold(v, "identity") })
}

// mediaType is the media type of a request, in lower case and without parameters.
func mediaType(h http.Header) string {
	t, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return t
}

// maxEvents bounds the events of a request: the smallest has two bytes there, and some hundred on the log.
const maxEvents = 10_000

// AcceptsContent reports whether an endpoint reads a request's content type. Only the endpoint of
// events reads more than JSON. CloudEvents in binary mode have the media type of their data. Bodies are read as
// they are: one that says to be compressed, or in another charset than UTF-8, would be read otherwise than it is meant.
func AcceptsContent(pattern string, h http.Header) bool {
	switch media := mediaType(h); {
	case len(h.Values("Content-Type")) > 1 || isCompressed(h) || !isUTF8(h):
		return false
	case media == mediaJSON:
		return true
	case strings.HasPrefix(pattern, "POST /v1/events/"):
		return media == mediaLines || media == mediaBatch || media == mediaEvent
	}
	return false
}

// splitArray returns the members of a JSON array, byte for byte, and anything else as one event: what
// cannot be read is evidence, too.
func splitArray(body []byte) [][]byte {
	var list []json.RawMessage
	if trimmed := bytes.TrimLeft(body, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '[' || json.Unmarshal(body, &list) != nil {
		return [][]byte{body}
	}
	out := make([][]byte, len(list))
	for i, raw := range list {
		out[i] = raw
	}
	return out
}

func splitLines(body []byte) (out [][]byte) {
	for line := range bytes.Lines(body) {
		if line = bytes.TrimSpace(line); len(line) > 0 {
			out = append(out, line)
		}
	}
	return out
}

// forwarded are the headers that go from HTTP to NATS: what a request says where its protocol's body
// has no field for it. No header names the caller: the token does.
var forwarded = slices.Concat([]string{events.HeaderSession, events.HeaderToolCallID, events.HeaderAgent, events.HeaderTrace, events.HeaderWorkflow},
	protocol.Headers())

// MessageHeaders are the headers of the message on NATS.
func MessageHeaders(h http.Header) map[string][]string {
	out := map[string][]string{}
	for _, name := range forwarded {
		if v := h.Values(name); len(v) > 0 {
			out[name] = v
		}
	}
	return out
}

// returned are the headers of the admitter's answer that go into the HTTP response.
var returned = []string{events.HeaderVerdict, events.HeaderDecisionID, events.HeaderDecisionSeq, events.HeaderReceipt, events.HeaderKey,
	events.HeaderWorkflow, events.HeaderWarning, events.HeaderMode}

// asciiJSON writes a JSON text in ASCII: HTTP clients read other bytes of a header in their own ways.
func asciiJSON(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r < utf8.RuneSelf:
			b.WriteByte(byte(r))
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// Headers of the micro protocol.
const (
	headerErrorCode = "Nats-Service-Error-Code"
	headerError     = "Nats-Service-Error"
)

// unrecorded are the refusals without a record that have another status than 503.
var unrecorded = map[string]Failure{"quota_exceeded": RateLimited}

// ReadReply turns the admitter's answer into a response of an endpoint. An answer without a verdict is
// an error. A refusal without a record is an error, too, and keeps the admitter's body.
func ReadReply(row endpoint.Row, header map[string][]string, body []byte) endpoint.Response {
	get := func(name string) string {
		if v := header[name]; len(v) > 0 {
			return v[0]
		}
		return ""
	}
	verdict, refused := events.Verdict(get(events.HeaderVerdict)), get(headerErrorCode)
	if !slices.Contains([]events.Verdict{events.Allow, events.Ask, events.Defer, events.Deny}, verdict) || refused != "" && verdict != events.Deny {
		return row.Fail(ProblemOf(BadReply))
	}
	status := http.StatusOK
	if refused != "" {
		status = statusOf(refused)
	}
	out := row.Respond(endpoint.Reply{Status: status, Body: body})
	if f, ok := unrecorded[get(headerError)]; ok && get(events.HeaderDecisionID) == "" {
		out = row.Fail(ProblemOf(f))
	}
	if out.Header == nil {
		out.Header = http.Header{}
	}
	for _, name := range returned {
		for _, v := range header[name] {
			if name == events.HeaderKey {
				v = asciiJSON(v)
			}
			out.Header.Add(name, v)
		}
	}
	return out
}

// statusOf reads the micro error code: an HTTP status that is no success.
func statusOf(code string) int {
	if n, err := strconv.Atoi(code); err == nil && n >= 400 && n < 600 {
		return n
	}
	return http.StatusBadGateway
}
