package ingest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/protocol"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/streams"
)

// refusal is an answer saying that nothing was stored: the error part of a JetStream publish
// acknowledgement, which every JetStream client understands. Its text depends only on the message
// and the configured limits, never on the content of the log.
type refusal struct {
	Code        int    `json:"code"`     // like an HTTP status
	ErrCode     int    `json:"err_code"` // JetStream's code if it has one
	Description string `json:"description"`

	reason string // for the metric
}

// Error codes of refusals, JetStream's own; those of this service are in package streams.
const (
	codeUnavailable = 10008 // JetStream system temporarily unavailable
	codeTooLarge    = 10054 // message size exceeds maximum allowed
	codeWrongStream = 10060 // expected stream does not match
	codeBusy        = 10167 // too many requests
)

// Reasons of refusals, as countersign_events_refused_total counts them.
const (
	reasonIdentity    = "identity"    // the event does not come from the publisher that its subject names
	reasonSubject     = "subject"     // the event has the type of a request, or its subject is too long
	reasonHeader      = "header"      // a header steers the server, names another stream, or has a name that cannot be sent
	reasonSize        = "size"        // the event is too large
	reasonQuota       = "quota"       // the publisher, or its tenant, exceeds a quota
	reasonBusy        = "busy"        // too many events wait
	reasonUnavailable = "unavailable" // the log does not answer, or the instance is stopping
	reasonAmbiguous   = "doubt"       // the log did not answer in time: the event may be stored, and the publisher gets no answer
)

var (
	refusedIdentity = &refusal{400, streams.CodeSender, "the event does not come from the publisher that its subject names", reasonIdentity}
	refusedType     = &refusal{400, streams.CodeSender, "a publisher cannot publish events of type " + subject.TypeRequest + "; ask for admission instead", reasonSubject}
	refusedSubject  = &refusal{400, streams.CodeSender, fmt.Sprintf("the subject is longer than %d bytes", maxSubject), reasonSubject}
	refusedStream   = &refusal{400, codeWrongStream, "expected stream does not match", reasonHeader}
	refusedName     = &refusal{400, streams.CodeHeader, "a header's name has a character that is not printable ASCII, or one of \"()/,:;<=>?@[\\]{}", reasonHeader}
	refusedSize     = &refusal{400, codeTooLarge, "message size exceeds maximum allowed", reasonSize}
	refusedBusy     = &refusal{429, codeBusy, "too many requests", reasonBusy}
	refusedForNow   = &refusal{503, codeUnavailable, "JetStream system temporarily unavailable", reasonUnavailable}
)

// maxSubject bounds a subject, in bytes. The server closes a connection that sends a protocol
// line of more than 4 KB, and a line also holds a reply subject and sizes.
const maxSubject = 2048

// eventAddress is the origin and the destination of an event, from its subject and the server's
// stamp.
type eventAddress struct {
	tenant, publisher string
	gateway           string // the gateway that speaks for the publisher; "" for a direct connection
	subject           string // subject on the log
}

// GatewayCheck reports whether a publisher of a tenant is registered as reached through a gateway.
type GatewayCheck func(tenant, publisher, gateway string) bool

// senderOf returns the publisher of an event and, if a gateway speaks for the publisher, the gateway.
// ok is false unless the server's stamp agrees with the subject's tokens: the publisher's own user,
// or the gateway through which the publisher is registered as reached.
func senderOf(id streams.Identity, tenantToken, publisherToken string, reached GatewayCheck) (publisher, gateway string, ok bool) {
	if !id.IsGatewayOfToken(tenantToken) {
		return id.User, "", id.IsOfTenantToken(tenantToken) && publisherToken == subject.Escape(id.User)
	}
	tenant, knownTenant := subject.Unescape(tenantToken)
	publisher, known := subject.Unescape(publisherToken)
	return publisher, id.User, knownTenant && known && reached != nil && reached(tenant, publisher, id.User)
}

// addressOf returns a message's publisher and its subject on the log. The subject must agree with
// the server's stamp of the sender. Tokens after the publisher's are not checked: a meaningless
// subject is evidence.
func addressOf(space subject.Space, m *nats.Msg, reached GatewayCheck) (eventAddress, *refusal) {
	id, err := streams.RequestIdentity(m.Header)
	if err != nil {
		return eventAddress{}, refusedIdentity
	}
	rest, ours := strings.CutPrefix(m.Subject, strings.TrimSuffix(space.All(subject.Ingest), ">"))
	tokens := strings.Split(rest, ".")
	if !ours || len(tokens) < 3 {
		return eventAddress{}, refusedIdentity
	}
	tenant, _ := subject.Unescape(tokens[0])
	publisher, gateway, ok := senderOf(id, tokens[0], tokens[1], reached)
	if !ok {
		return eventAddress{}, refusedIdentity
	}
	// This is the form of the admitter's copy of a request.
	const typ = 4 // the index behind tenant, publisher, protocol and session
	if len(tokens) > typ && tokens[typ] == subject.TypeRequest {
		return eventAddress{}, refusedType
	}
	if len(m.Subject) > maxSubject {
		return eventAddress{}, refusedSubject
	}
	return eventAddress{tenant, publisher, gateway, strings.TrimSuffix(space.All(subject.Events), ">") + rest}, nil
}

// keptHeaders are the event headers that the log keeps, in lower case, beside those that begin
// with "ce-": the ones that decoding and correlation read. Headers that only Countersign's
// services write are not among them.
var keptHeaders = lowerSet(append([]string{"content-type", events.HeaderTrace, "tracestate",
	events.HeaderSession, events.HeaderToolCallID, events.HeaderAgent, events.HeaderWorkflow, events.HeaderDecisionID, events.HeaderDecisionSeq,
	events.HeaderVerdict, events.HeaderReceipt, events.HeaderKey}, protocol.Headers()...)...)

// Headers of the NATS server, in lower case. Any other header with their prefix is refused: it
// asks the server for something that a publisher may not have (a condition on the log's content,
// an atomic batch, a roll-up, a schedule, an expiry), and dropping it silently would make the
// acknowledgement false.
const (
	serverPrefix   = "nats-"
	expectedStream = "nats-expected-stream" // checked here
	requestInfo    = "nats-request-info"    // the server's stamp; not kept
	messageID      = "nats-msg-id"          // dropped: the log removes no duplicates
)

const cloudEventPrefix = "ce-"

func lowerSet(names ...string) map[string]bool {
	out := map[string]bool{}
	for _, n := range names {
		out[strings.ToLower(n)] = true
	}
	return out
}

// logHeaders returns the headers for the log, or the refusal of a header that steers the server.
// Names are compared without regard to case.
func logHeaders(h nats.Header, stream string) (map[string][]string, *refusal) {
	var out map[string][]string
	var steering []string
	for name, values := range h {
		small := strings.ToLower(name)
		switch {
		case small == expectedStream:
			if slices.ContainsFunc(values, func(v string) bool { return v != stream }) {
				return nil, refusedStream
			}
		case small == requestInfo, small == messageID:
		case strings.HasPrefix(small, serverPrefix):
			steering = append(steering, name)
		case keptHeaders[small], strings.HasPrefix(small, cloudEventPrefix):
			if out == nil {
				out = make(map[string][]string, len(h))
			}
			out[name] = values
		}
	}
	if len(steering) > 0 {
		return nil, &refusal{400, streams.CodeHeader, fmt.Sprintf("the header %.64q is not for publishers of events; send the event without it", slices.Min(steering)), reasonHeader}
	}
	return out, nil
}

// logMessage builds the log's message from an event. It names the gateway that an event came
// through.
func logMessage(space subject.Space, stream string, m *nats.Msg, reached GatewayCheck) (streams.Msg, eventAddress, *refusal) {
	at, no := addressOf(space, m, reached)
	if no != nil {
		return streams.Msg{}, at, no
	}
	h, no := logHeaders(m.Header, stream)
	if no != nil {
		return streams.Msg{}, at, no
	}
	if at.gateway != "" {
		if h == nil {
			h = map[string][]string{}
		}
		h[events.HeaderGateway] = []string{at.gateway}
	}
	return streams.Msg{Subject: at.subject, Header: h, Body: m.Data}, at, nil
}

// encodeAck is the acknowledgement of a message.
func encodeAck(stream string, seq uint64) []byte {
	out := make([]byte, 0, 64)
	out = append(out, `{"stream":"`...)
	out = append(out, stream...) // needs no escaping
	out = append(out, `","seq":`...)
	out = strconv.AppendUint(out, seq, 10)
	return append(out, '}')
}

// encodeAck is the acknowledgement with the refusal.
func (r *refusal) encodeAck(stream string) []byte {
	out, _ := json.Marshal(struct {
		Type   string   `json:"type"`
		Error  *refusal `json:"error"`
		Stream string   `json:"stream"`
		Seq    uint64   `json:"seq"`
	}{"io.nats.jetstream.api.v1.pub_ack_response", r, stream, 0})
	return out
}
