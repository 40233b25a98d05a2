// Package client is the package for agent runtimes: it asks for admission, checks the receipt
// in the executor, and publishes events. Begin reading with New and Client.Admit.
//
// It fails closed by construction. Admit always returns a Verdict. In any doubt (no responders,
// a time-out, a reply that does not parse, a receipt that does not verify or binds another
// call) that verdict is deny, with a reason. The zero Verdict is deny as well.
//
//	c, err := client.New(nc, client.Options{Tenant: "acme", Publisher: "acme-runtime", PublicKey: key})
//	...
//	v := c.Admit(ctx, client.Call{Protocol: "agenthook", Body: preToolUse, Tool: "send_email",
//		Session: "sess-1", ToolCallID: "call-1", Arguments: args})
//	return v.Run(ctx, args, func(ctx context.Context) error { return sendEmail(ctx, args) })
//
// An executor in another process checks the receipt with package guard, which needs neither a
// connection nor the admitter.
package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/client/guard"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

// DefaultTimeout is how long Admit waits for a verdict by default.
const DefaultTimeout = 5 * time.Second

// Reasons for a deny that the client gives itself; any other reason is the
// admitter's.
const (
	ReasonNoResponders   = "no_responders"   // no admitter is listening
	ReasonTimeout        = "timeout"         // no answer in time, or its connection was lost
	ReasonCanceled       = "canceled"        // the caller's context ended before an answer
	ReasonNotSent        = "not_sent"        // the request did not leave
	ReasonBadReply       = "bad_reply"       // the answer cannot be read, or contradicts itself
	ReasonReceiptMissing = "receipt_missing" // the answer says allow, but has no receipt
	ReasonReceiptInvalid = "receipt_invalid" // its receipt does not verify or binds something else
	ReasonBadArguments   = "bad_arguments"   // the arguments to bind are not strict JSON
)

// Options configure a Client.
type Options struct {
	Tenant    string
	Publisher string // the publisher token of this runtime: its NATS user
	// PublicKey is the checkpoint key's public half (`public_key` in the ready file,
	// checkpoint.pub on disk). It vouches for the keys that sign receipts; a runtime has to
	// trust nothing else.
	PublicKey string
	Timeout   time.Duration // default DefaultTimeout
	Space     subject.Space

	// ResendAfter is how long Admit waits for an answer before it sends the request again, to
	// another server if the connection knows one; default a quarter of Timeout, negative:
	// never. Only a request that names a tool call is sent again while the first may still be
	// answered: the second decision is a retry of the same call. A mandate's money is reserved
	// once for both. An approval or confirmation is consumed by the first allow: if that answer
	// is lost, the second decision asks for it again. Each allow counts in a limit.
	ResendAfter time.Duration

	// For the verification of receipts; see guard.Options.
	Records [][]byte
	Pinned  bool
	Uses    guard.UseStore
	Now     func() time.Time

	// OnUnreported is called for every fail-mode event that could not be put into the log, from
	// a goroutine of the client; it may be nil. See UnreportedCount.
	OnUnreported func(event []byte, err error)
}

// Client asks for admission and publishes events over a connection that it does not own. If
// that connection knows several servers and no answer comes, the client opens a second
// connection to another server. It is safe for concurrent use. The caller must Close it after
// the last request.
type Client struct {
	nc       *nats.Conn
	opt      Options
	resender *RequestSender
	guard    *guard.Guard
	reports  *reporter
}

// ErrNoPublicKey reports a Client without a key to verify receipts with.
var ErrNoPublicKey = errors.New("client: Options.PublicKey is required: without it a verdict cannot be told from a forgery")

// New returns a client. nc MUST have the inbox prefix of its user (nats.CustomInboxPrefix): the user may subscribe to no
// other, and every verdict would be deny with ReasonTimeout. The caller MUST NOT change nc's handlers while New runs; later it may. While nc is reconnecting,
// the client sends nothing over it, whatever nats.ReconnectBufSize is: Admit denies with ReasonNotSent unless another
// server answers, and Publish refuses.
func New(nc *nats.Conn, opt Options) (*Client, error) {
	if opt.PublicKey == "" {
		return nil, ErrNoPublicKey
	}
	if opt.Tenant == "" || opt.Publisher == "" {
		return nil, errors.New("client: Options.Tenant and Options.Publisher are required")
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	g, err := guard.New(guard.Options{
		Tenant: opt.Tenant, PublicKey: opt.PublicKey, Records: opt.Records, Pinned: opt.Pinned, Uses: opt.Uses, Now: opt.Now,
	})
	if err != nil {
		return nil, err
	}
	if opt.Timeout == 0 {
		opt.Timeout = DefaultTimeout
	}
	if opt.ResendAfter == 0 {
		opt.ResendAfter = opt.Timeout / resendShare
	}
	c := &Client{nc: nc, opt: opt, resender: NewRequestSender(nc), guard: g}
	c.reports = newReporter(c.publishReport, opt.OnUnreported)
	return c, nil
}

// Guard returns the guard that verifies this client's receipts: for Trust, and for receipts
// that did not come by Admit. Client and guard share one UseStore.
func (c *Client) Guard() *guard.Guard { return c.guard }

// Call is one tool call to be admitted.
type Call struct {
	Protocol string // aaep, agenthook, ...
	Body     []byte // the request in the protocol's own JSON

	// The receipt must bind these, as the executor knows them. Arguments is the JSON that the
	// tool will run with; nil for protocols without arguments (AAEP).
	Tool       string
	Session    string
	ToolCallID string
	Arguments  []byte

	Agent       string // sent as a header, for protocols without it in the body
	Traceparent string // W3C traceparent

	// Workflow names the approval workflow that the call waited for, where its resume policy
	// demands it (Verdict.Workflow).
	Workflow string
}

// Admit asks for admission and checks the answer. In any doubt the Verdict is deny; there is no
// separate error. A deny of the client's own, because no valid verdict came, is AgentHook's
// fail mode, and is reported as such (see UnreportedCount).
func (c *Client) Admit(ctx context.Context, call Call) Verdict {
	v := c.requestVerdict(ctx, call)
	if v.isFailMode() {
		c.reportFailMode(call, v.Reason)
	}
	return v
}

func (c *Client) requestVerdict(ctx context.Context, call Call) Verdict {
	deny := func(reason string, err error) Verdict {
		return Verdict{Decision: events.Deny, Reason: reason, Err: err}
	}
	reply, err := c.resender.request(ctx, requestMsg(c.opt.Space, c.opt.Tenant, call), c.opt.Timeout, c.opt.ResendAfter)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return deny(ReasonNoResponders, err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout), errors.Is(err, nats.ErrDisconnected):
		return deny(ReasonTimeout, err)
	case errors.Is(err, context.Canceled):
		return deny(ReasonCanceled, err)
	case err != nil:
		return deny(ReasonNotSent, err)
	}
	v := Verdict{
		Decision: events.Verdict(reply.Header.Get(events.HeaderVerdict)), DecisionID: reply.Header.Get(events.HeaderDecisionID),
		Receipt: reply.Header.Get(events.HeaderReceipt), Key: reply.Header.Get(events.HeaderKey), Reply: reply.Data,
		Workflow: reply.Header.Get(events.HeaderWorkflow),
		guard:    c.guard, source: c.opt.Publisher, session: call.Session, toolCallID: call.ToolCallID, tool: call.Tool,
	}
	v.Reason = replyReason(reply)
	if !v.Decision.Valid() {
		return deny(ReasonBadReply, errors.New("client: the reply names no verdict"))
	}
	if v.Decision != events.Allow {
		return v
	}
	if err := c.guard.Check(v.Execution(call.Arguments)); err != nil {
		v.Decision, v.Reason, v.Err = events.Deny, refusalReason(err), err
	}
	return v
}

// Request sends one admission request and returns the raw reply. Most callers need Admit, which
// also verifies the answer.
func Request(ctx context.Context, nc *nats.Conn, space subject.Space, tenant string, call Call) (*nats.Msg, error) {
	return nc.RequestMsgWithContext(ctx, requestMsg(space, tenant, call))
}

// RequestResending is Request with a time-out. It sends the request again as Admit does: see
// Options.ResendAfter.
func RequestResending(ctx context.Context, nc *nats.Conn, space subject.Space, tenant string, call Call, timeout time.Duration) (*nats.Msg, error) {
	s := NewRequestSender(nc)
	defer s.Close()
	return s.Request(ctx, requestMsg(space, tenant, call), timeout)
}

func requestMsg(space subject.Space, tenant string, call Call) *nats.Msg {
	msg := nats.NewMsg(space.Admit(tenant, call.Protocol))
	msg.Data = call.Body
	for name, v := range map[string]string{
		events.HeaderSession: call.Session, events.HeaderToolCallID: call.ToolCallID, events.HeaderAgent: call.Agent, events.HeaderTrace: call.Traceparent,
		events.HeaderWorkflow: call.Workflow,
	} {
		if v != "" {
			msg.Header.Set(name, v)
		}
	}
	return msg
}

// replyReason reads the reason from a native reply, if it has one: a text, or the first of its codes.
func replyReason(reply *nats.Msg) string {
	var body struct {
		Reason   string          `json:"reason"`
		Blockers []string        `json:"hard_blockers"` // AANA
		Codes    []string        `json:"reason_codes"`  // AUMP
		Reasons  json.RawMessage `json:"reasons"`       // AAEP, whose reply is the record; AANA has texts there
	}
	var recorded []events.Reason
	unreadable := json.Unmarshal(reply.Data, &body) != nil
	if !unreadable && json.Unmarshal(body.Reasons, &recorded) == nil && len(recorded) > 0 {
		body.Codes = append(body.Codes, recorded[0].Code)
	}
	failure := reply.Header.Get("Nats-Service-Error")
	if unreadable {
		return failure
	}
	return cmp.Or(append(slices.Concat([]string{body.Reason}, body.Blockers, body.Codes), failure)...)
}

// refusalReason is the reason of a deny for an allow that Guard.Check refused.
func refusalReason(err error) string {
	switch code := guard.Code(err); code {
	case guard.CodeNoReceipt, guard.CodeBadArgs: // the client's own codes are the same
		return code
	default:
		return ReasonReceiptInvalid
	}
}
