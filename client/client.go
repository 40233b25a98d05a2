// Package client is what an agent runtime imports: it asks for admission,
// checks the receipt in the executor, and publishes events.
//
// It fails closed by construction. Admit always returns a Verdict; whenever
// anything is in doubt (no responders, a time-out, a reply that does not parse,
// a receipt that does not verify or binds something else) that verdict is deny,
// with a reason that says why. The zero Verdict is deny as well.
//
//	c, err := client.New(nc, client.Options{Tenant: "acme", Publisher: "acme-runtime", PublicKey: key})
//	...
//	v := c.Admit(ctx, client.Call{Protocol: "agenthook", Body: preToolUse, Tool: "send_email",
//		Session: "sess-1", ToolCallID: "call-1", Arguments: args})
//	if err := v.Permits(args); err != nil {
//		return err // do not run the tool
//	}
package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/admission/receipt"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
)

// DefaultTimeout is how long Admit waits for a verdict unless told otherwise.
const DefaultTimeout = 5 * time.Second

// Reasons for a deny that this package gives itself; any other reason is the
// admitter's.
const (
	ReasonNoResponders   = "no_responders"   // no admitter is listening
	ReasonTimeout        = "timeout"         // none answered in time
	ReasonCanceled       = "canceled"        // the caller's context ended before an answer
	ReasonNotSent        = "not_sent"        // the request did not leave
	ReasonBadReply       = "bad_reply"       // the answer makes no sense
	ReasonReceiptMissing = "receipt_missing" // the answer says allow, but has no receipt
	ReasonReceiptInvalid = "receipt_invalid" // its receipt does not verify or binds something else
	ReasonBadArguments   = "bad_arguments"   // the arguments to bind are not strict JSON
)

// Options configure a Client.
type Options struct {
	Tenant    string
	Publisher string // the token this runtime publishes under: its NATS user
	// PublicKey is the checkpoint key's public half (`public_key` in the ready
	// file, checkpoint.pub on disk). It vouches for the keys that sign receipts
	// and is the only thing a runtime has to trust.
	PublicKey string
	Timeout   time.Duration // default DefaultTimeout
	Space     subject.Space
}

// Client asks for admission and publishes events over a connection that it
// does not own. It is safe for concurrent use.
type Client struct {
	nc       *nats.Conn
	opt      Options
	vouchers note.Verifiers

	mu   sync.RWMutex
	keys signing.KeySet // vouched for
	used uses
}

// ErrNoPublicKey says that a Client has nothing to check receipts with.
var ErrNoPublicKey = errors.New("client: Options.PublicKey is required: without it a verdict cannot be told from a forgery")

// New makes a client.
func New(nc *nats.Conn, opt Options) (*Client, error) {
	if opt.PublicKey == "" {
		return nil, ErrNoPublicKey
	}
	v, err := evidence.CheckpointVerifier(strings.TrimSpace(opt.PublicKey))
	if err != nil {
		return nil, fmt.Errorf("client: Options.PublicKey: %w", err)
	}
	if opt.Tenant == "" || opt.Publisher == "" {
		return nil, errors.New("client: Options.Tenant and Options.Publisher are required")
	}
	if opt.Timeout == 0 {
		opt.Timeout = DefaultTimeout
	}
	return &Client{nc: nc, opt: opt, vouchers: note.VerifierList(v), keys: signing.KeySet{}}, nil
}

// Call is one tool call that is to be admitted.
type Call struct {
	Protocol string // aaep, agenthook, ...
	Body     []byte // the request in the protocol's own JSON

	// What the receipt must bind, as the executor knows it. Arguments is the JSON
	// the tool will be run with; nil for protocols without arguments (AAEP).
	Tool       string
	Session    string
	ToolCallID string
	Arguments  []byte

	Agent string // sent as a header, for protocols whose body has no field for it
	Trace string // W3C traceparent
}

// Admit asks for admission and checks the answer. The Verdict is deny in any
// doubt; Admit never returns an error beside it.
func (c *Client) Admit(ctx context.Context, call Call) Verdict {
	deny := func(reason string, err error) Verdict {
		return Verdict{Decision: events.Deny, Reason: reason, Err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, c.opt.Timeout)
	defer cancel()
	reply, err := Request(ctx, c.nc, c.opt.Space, c.opt.Tenant, call)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return deny(ReasonNoResponders, err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return deny(ReasonTimeout, err)
	case errors.Is(err, context.Canceled):
		return deny(ReasonCanceled, err)
	case err != nil:
		return deny(ReasonNotSent, err)
	}
	v := Verdict{
		Decision: events.Verdict(reply.Header.Get(events.HeaderVerdict)), DecisionID: reply.Header.Get(events.HeaderDecisionID),
		Receipt: reply.Header.Get(events.HeaderReceipt), Reply: reply.Data, client: c,
		want: receipt.Expectation{Tenant: c.opt.Tenant, Source: c.opt.Publisher, Session: call.Session, ToolCallID: call.ToolCallID, Tool: call.Tool},
	}
	v.Reason = reasonOf(reply)
	if !v.Decision.Valid() {
		return deny(ReasonBadReply, errors.New("client: the reply names no verdict"))
	}
	if v.Decision != events.Allow {
		return v
	}
	c.learn(reply.Header.Get(events.HeaderKey))
	if _, reason, err := v.verify(call.Arguments, time.Now()); err != nil {
		v.Decision, v.Reason, v.Err = events.Deny, reason, err
	}
	return v
}

// Request sends one admission request and returns the raw reply. Most callers
// want Admit, which also decides what an answer is worth.
func Request(ctx context.Context, nc *nats.Conn, space subject.Space, tenant string, call Call) (*nats.Msg, error) {
	msg := nats.NewMsg(space.Admit(tenant, call.Protocol))
	msg.Data = call.Body
	for name, v := range map[string]string{
		events.HeaderSession: call.Session, events.HeaderToolCallID: call.ToolCallID, events.HeaderAgent: call.Agent, events.HeaderTrace: call.Trace,
	} {
		if v != "" {
			msg.Header.Set(name, v)
		}
	}
	return nc.RequestMsgWithContext(ctx, msg)
}

// reasonOf reads the reason out of a native reply, where it has one.
func reasonOf(reply *nats.Msg) string {
	var body struct {
		Reason  string          `json:"reason"`
		Reasons []events.Reason `json:"reasons"`
	}
	if json.Unmarshal(reply.Data, &body) == nil {
		if body.Reason != "" {
			return body.Reason
		}
		if len(body.Reasons) > 0 {
			return body.Reasons[0].Code
		}
	}
	return reply.Header.Get("Nats-Service-Error")
}

// learn takes a receipt key that came with a reply, if the checkpoint key
// vouches for it.
func (c *Client) learn(record string) {
	k, err := events.DecodeRecord[events.KeyRecord]([]byte(record))
	if err != nil {
		return
	}
	c.mu.RLock()
	_, known := c.keys[k.KeyID]
	c.mu.RUnlock()
	if known || !evidence.CheckVouch(c.vouchers, k) {
		return
	}
	pub, err := signing.DecodePublic(k.PublicKey)
	if err != nil || signing.KeyID(pub) != k.KeyID {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keys[k.KeyID] = pub
}

func canonical(args []byte) ([]byte, error) {
	if args == nil {
		return nil, nil
	}
	tree, err := strictjson.Parse(args, strictjson.DefaultLimits)
	if err != nil {
		return nil, err
	}
	return strictjson.Canonical(tree)
}
