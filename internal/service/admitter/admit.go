package admitter

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/micro"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/admission/receipt"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/cloudevents"
	"github.com/countersign-dev/countersign/events/protocol"
	"github.com/countersign-dev/countersign/streams"
)

// Reason codes of denials that are not recorded decisions, beside audit_unavailable, internal_error
// and policy_deadline. The caller gets the denial and no receipt.
const (
	codeOverloaded = "overloaded" // the admitter works on as many requests as it may, has no memory left for this one, or other calls kept changing what it depends on
	codeStopping   = "stopping"   // the admitter is stopping; another one answers the next request
	codeQuota      = ruleQuota    // the publisher, the reviewer or the tenant asks more often than its quota allows

	// statusUnavailable is the error code of such an answer, no reason code.
	statusUnavailable = "503"
)

const (
	saltBytes  = 16
	nonceBytes = 16
)

// loggedHeaders are the request headers that the logged copy keeps. The content-type is left out:
// a request is its protocol's own JSON, and no header may make a reader of the log interpret it
// as anything other than what the decision saw.
var loggedHeaders = append([]string{events.HeaderSession, events.HeaderToolCallID, events.HeaderAgent, events.HeaderTrace, events.HeaderWorkflow},
	protocol.Headers()...)

// parseRequest builds the request from a message. ofTenant is false without a valid stamp of the
// server, or if the caller's account belongs to no user of the subject's tenant.
func (s *service) parseRequest(r micro.Request, received time.Time) (req admission.Request, ofTenant bool) {
	p, _ := s.space.Parse(r.Subject())
	req = admission.Request{Tenant: p.Tenant, Protocol: p.Protocol, Header: map[string][]string(r.Headers()), Body: r.Data(), ReceivedAt: received}
	id, err := streams.RequestIdentity(req.Header)
	if err != nil {
		return req, false
	}
	if id.IsGatewayOf(p.Tenant) {
		req.Gateway = id.User
		req.Source = s.spokenFor(id, req)
		return req, true
	}
	req.Source = id.User
	return req, id.IsOfTenant(p.Tenant)
}

// spokenFor is the publisher that a gateway speaks for: the only one that the request names, if it is
// registered as reached through this gateway. Otherwise it is "", which is denied (unknown_source).
func (s *service) spokenFor(id streams.Identity, req admission.Request) string {
	named := call.HeaderValues(req.Header, events.HeaderPublisher)
	if len(named) != 1 || !s.publishers.reachedThrough(req.Tenant, named[0], id.User) {
		return ""
	}
	return named[0]
}

// drawInputs draws the inputs of a decision that are not a function of the request: id, salt and
// nonce.
func (s *service) drawInputs(req admission.Request, ofTenant bool) (admission.Inputs, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return admission.Inputs{}, err
	}
	random := make([]byte, saltBytes+nonceBytes)
	if _, err := rand.Read(random); err != nil {
		return admission.Inputs{}, err
	}
	return admission.Inputs{
		Now:         time.Now(),
		DecisionID:  id.String(),
		Salt:        random[:saltBytes],
		Nonce:       base64.RawURLEncoding.EncodeToString(random[saltBytes:]),
		TenantKey:   s.master.Tenant(req.Tenant),
		Durability:  s.durability.Load().(string),
		KnownTenant: ofTenant,
	}, nil
}

// recordedAnswer is what the caller gets back for a recorded decision.
type recordedAnswer struct {
	body    []byte
	receipt string
	key     string // JSON record of the key that signed the receipt
	seq     uint64
}

// recordDecision signs the receipt and the decision. It returns once the request, the decision
// and the messages that go with them are durable, in that order.
func (s *service) recordDecision(ctx context.Context, req admission.Request, out *admission.Outcome, beside []streams.Msg) (recordedAnswer, error) {
	d := &out.Decision
	d.Occurrence = s.calls.currentOccurrence(*d)
	by := s.keys.current() // the reply must name the key that signed the receipt
	var token string
	if !out.NoReceipt {
		var err error
		if token, d.ReceiptHash, err = receipt.Issue(by.key, out.Claims); err != nil {
			return recordedAnswer{}, fmt.Errorf("signing the receipt: %w", err)
		}
	}
	body, err := out.Reply()
	if err != nil {
		return recordedAnswer{}, fmt.Errorf("rendering the reply: %w", err)
	}
	msgs, err := s.logMessages(req, *d)
	if err != nil {
		return recordedAnswer{}, err
	}
	accompanying, err := s.accompanyingEvents(out)
	if err != nil {
		return recordedAnswer{}, err
	}
	seqs, err := s.committer.Append(ctx, slices.Concat(msgs, accompanying, beside)...)
	if err != nil {
		return recordedAnswer{}, err
	}
	if len(seqs) != len(msgs)+len(accompanying)+len(beside) || seqs[0] >= seqs[1] {
		return recordedAnswer{}, errors.New("the log did not keep request and decision in order")
	}
	return recordedAnswer{body: body, receipt: token, key: by.record, seq: seqs[1]}, nil
}

// logMessages returns the log's copy of the request, byte for byte, and its decision.
func (s *service) logMessages(req admission.Request, d events.Decision) ([]streams.Msg, error) {
	record, err := events.Encode(d)
	if err != nil {
		return nil, err
	}
	header := map[string][]string{events.HeaderDecisionID: {d.DecisionID}}
	for _, name := range loggedHeaders {
		if v := seenValues(call.HeaderValues(req.Header, name)); len(v) > 0 {
			header[name] = v
		}
	}
	if req.Gateway != "" {
		header[events.HeaderGateway] = []string{req.Gateway}
	}
	decision := cloudevents.Binary(cloudevents.Attributes{
		ID: d.DecisionID, Source: sourceName(s.flags.Stream), Type: events.TypeDecision, Time: d.DecidedAt.Time,
	})
	return []streams.Msg{
		{Subject: s.space.Request(d.Tenant, d.Source, d.Protocol, d.Session), Header: header, Body: req.Body},
		{Subject: s.space.Decision(d.Tenant, string(d.Verdict), d.Session), Header: decision, Body: record, Sign: true},
	}, nil
}

// accompanyingEvents returns the events that the protocol requires on the log beside a decision. They
// stand on the subject of the request's publisher; as CloudEvents they are the admitter's, which
// signs them.
func (s *service) accompanyingEvents(out *admission.Outcome) ([]streams.Msg, error) {
	list, err := out.AccompanyingEvents()
	if err != nil {
		return nil, err
	}
	d := out.Decision
	msgs := make([]streams.Msg, 0, len(list))
	for _, e := range list {
		header := cloudevents.Binary(cloudevents.Attributes{
			ID: e.ID, Source: sourceName(s.flags.Stream), Type: e.EventType, Time: d.DecidedAt.Time,
		})
		header[events.HeaderDecisionID] = []string{d.DecisionID}
		msgs = append(msgs, streams.Msg{Subject: s.space.Event(d.Tenant, d.Source, d.Protocol, d.Session, e.Type), Header: header, Body: e.Body, Sign: true})
	}
	return msgs, nil
}

// withheldRequest replaces the logged copy of a request that is too large for the log. The
// request itself can have the server's maximal message size, and the copy adds headers. The
// replacement names the request's digest.
func withheldRequest(req admission.Request, d events.Decision) admission.Request {
	req.Body = fmt.Appendf(nil, `{"withheld":{"bytes":%d,"reason":"%s","request_digest":"%s"}}`, len(req.Body), admission.CodeTooLarge, d.RequestDigest)
	req.Header = nil
	return req
}

// seenValues returns the header values that the decision looked at: the first value and, if there
// is one, the first value that differs from it, under any spelling of the name. The logged copy
// must not hold other values.
func seenValues(values []string) []string {
	for _, v := range values {
		if v != values[0] {
			return []string{values[0], v}
		}
	}
	return values[:min(len(values), 1)]
}

func sendAnswer(r micro.Request, out admission.Outcome, answer recordedAnswer) error {
	h := micro.Headers{
		events.HeaderVerdict:     {string(out.Decision.Verdict)},
		events.HeaderDecisionID:  {out.Decision.DecisionID},
		events.HeaderDecisionSeq: {strconv.FormatUint(answer.seq, 10)},
	}
	if answer.receipt != "" {
		h[events.HeaderReceipt], h[events.HeaderKey] = []string{answer.receipt}, []string{answer.key}
	}
	if approval := out.Decision.Approval; approval != nil {
		h[events.HeaderWorkflow] = []string{approval.WorkflowID}
	}
	if out.Decision.Mode != "" {
		h[events.HeaderMode] = []string{out.Decision.Mode}
	}
	if list := out.Warnings(); len(list) > 0 {
		h[events.HeaderWarning] = list
	}
	if out.Malformed {
		return r.Error(out.ErrorCode, out.ErrorDescription, answer.body, micro.WithHeaders(h))
	}
	return r.Respond(answer.body, micro.WithHeaders(h))
}

// denyUnrecorded answers deny without a record. This is the only verdict without evidence of its
// own, and it permits nothing. body is the native refusal, nil for the generic one.
func (s *service) denyUnrecorded(r micro.Request, code string, body []byte) {
	if !streams.IsAnswerable(r.Reply()) {
		return
	}
	s.metrics.Refused(code)
	if body == nil {
		body = admission.Refusal(code)
	}
	h := micro.Headers{events.HeaderVerdict: {string(events.Deny)}}
	if err := r.Error(statusUnavailable, code, body, micro.WithHeaders(h)); err != nil {
		s.env.Log.Warn().Err(err).Str("reason", code).Msg("a refusal could not be sent")
	}
}
