package gateclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/countersign-dev/countersign/client/guard"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/agenthook"
)

// MaxReply is the largest reply that is read, in bytes.
const MaxReply = 4 << 20

// Reply is the gateway's answer to a proposal.
type Reply struct {
	Verdict              events.Verdict
	Reason               string
	Receipt, Key         string
	Workflow             string
	Expires, ApprovalURL string
	DecisionRef          string // of the approval that was used
	Mode                 string // events.ModeObserve: the policies were not enforced
	Cause                Cause  // of a verdict that is no allow
}

// Waits reports whether the call waits for a person.
func (r Reply) Waits() bool { return r.Verdict == events.Ask && r.Workflow != "" }

// KeepCalls is how long a call is remembered. No approval stays open longer.
const KeepCalls = 48 * time.Hour

// WaitsUntil is when the wait for a person ends.
func (r Reply) WaitsUntil(now time.Time) time.Time {
	if t, err := time.Parse(time.RFC3339Nano, r.Expires); err == nil {
		return t
	}
	return now.Add(KeepCalls)
}

// Refusal is what a client and its model are told of a refused call.
func Refusal(code string, err error) string {
	return fmt.Sprintf("Countersign refused this call: %s (%s)", Clean(err.Error()), code)
}

// Asker sends events to the gateway and checks receipts. It is safe for concurrent use. A receipt
// counts once for each Asker.
type Asker struct {
	peer   Peer
	client http.Client
	guard  *guard.Guard  // nil if the peer's public key is none
	most   time.Duration // for one request
}

// requestTime bounds one request: the connection may be dead, as after a laptop slept, and nothing says so. A gateway
// waits 10 s for its admitter unless its operator says otherwise.
const requestTime = 15 * time.Second

// transport speaks HTTP/1.1, as gateways do: over HTTP/2 a request that was given up would leave its dead connection to
// the next.
var transport = func() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // the documented type
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(true)
	return t
}()

// NewAsker returns an asker for a peer.
func NewAsker(p Peer) *Asker {
	g, err := guard.New(guard.Options{Tenant: p.tenant, PublicKey: p.publicKey})
	if err != nil {
		g = nil // CheckReceipt says so
	}
	return &Asker{p, http.Client{
		Transport: transport,
		// A redirect would carry the token to another address.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, g, requestTime}
}

// MaxProposal is the largest event that asks for a call, in bytes. The gateway takes 1 MiB unless its operator says less,
// and the event with which the call is reported can be a little larger than the one that asks.
const MaxProposal = 1<<20 - 16<<10

// ErrTooLarge reports a call that the gateway would not take.
var ErrTooLarge = errors.New("its arguments are too large")

// CheckSize reports an event that is too large to ask with.
func CheckSize(event []byte) error {
	if len(event) > MaxProposal {
		return fmt.Errorf("%w: %d bytes of an event, of %d at most", ErrTooLarge, len(event), MaxProposal)
	}
	return nil
}

// Post sends an event and returns the answer's header and body.
func (a *Asker) Post(ctx context.Context, event []byte, workflow string) (http.Header, []byte, error) {
	header := map[string]string{}
	if workflow != "" {
		header[events.HeaderWorkflow] = workflow
	}
	return a.send(ctx, a.most, http.MethodPost, "/event", event, header)
}

// Ask posts to an endpoint other than the one of events and returns the answer's header and body. The answer is no
// permission, because no receipt is checked.
func (a *Asker) Ask(ctx context.Context, path string, body []byte, header map[string]string) (http.Header, []byte, error) {
	return a.send(ctx, a.most, http.MethodPost, path, body, header)
}

// get reads what the gateway answers, which may wait for so long before it does.
func (a *Asker) get(ctx context.Context, path string, wait time.Duration) ([]byte, error) {
	_, answer, err := a.send(ctx, wait+a.most, http.MethodGet, path, nil, nil)
	return answer, err
}

func (a *Asker) send(ctx context.Context, most time.Duration, method, path string, body []byte, header map[string]string) (http.Header, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, a.peer.gateway+path, bytes.NewReader(body))
	if err != nil {
		return nil, nil, errors.New("the gateway's address is no URL")
	}
	r.Header.Set("Authorization", "Bearer "+a.peer.token)
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	for name, value := range header {
		r.Header.Set(name, value)
	}
	answer, err := a.client.Do(r)
	if err != nil {
		return nil, nil, unreachable(ctx, err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, MaxReply))
	if err != nil {
		return nil, nil, unreachable(ctx, err)
	}
	if answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusCreated {
		code, err := problem(answer.StatusCode, text)
		return nil, nil, refusedError{answer.StatusCode, code, err}
	}
	return answer.Header, text, nil
}

// refusedError is an answer with another status than 200 and 201.
type refusedError struct {
	status int
	code   string // of the gateway or the admitter; "" if there is none
	error
}

// IsPassing reports whether an error may be over soon: the gateway restarts, or has no place. The event may be on record
// all the same: send the same one again, of which the second counts for nothing while its id is remembered.
func IsPassing(err error) bool {
	cause := CauseOf(err)
	return cause == CauseOutage || cause == CauseBusy
}

// notSentError is a connection that did not come about.
type notSentError struct{ error }

// IsNotStored reports whether the error says that an event was not stored, and one like it may be later: there was no
// connection, or the gateway refused the token, had no place or was stopping. An admitter that could not record its
// verdict in time may have stored the request. A proxy that answers so for an event that the gateway has stored makes
// it untrue.
func IsNotStored(err error) bool {
	var n notSentError
	var r refusedError
	if errors.As(err, &r) && slices.Contains(inDoubt, r.code) {
		return false
	}
	return errors.As(err, &n) || isRefused(err, http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests, http.StatusServiceUnavailable)
}

// inDoubt are the codes of an admitter that does not know whether the request is on the log, with its verdict.
var inDoubt = []string{"audit_unavailable", "internal_error"}

// unreachable says why there is no answer. It leaves out the address, because the model reads the text.
func unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ErrTooLate
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the gateway's answer was cut off")
	}
	away := errors.New("the gateway does not answer")
	var dialed *net.OpError
	if errors.As(err, &dialed) && dialed.Op == "dial" {
		return notSentError{away}
	}
	return away
}

// problem is a refusal by HTTP, with its code. The gateway's message quotes nothing of a request.
func problem(status int, body []byte) (code string, err error) {
	var p struct {
		Error, Message, Reason string
	}
	if json.Unmarshal(body, &p) == nil && p.Error != "" {
		return p.Error, fmt.Errorf("the gateway refused: %s: %s", Clean(p.Error), Clean(p.Message))
	}
	if p.Reason != "" {
		return p.Reason, fmt.Errorf("the gateway refused: %s", Clean(p.Reason))
	}
	return "", fmt.Errorf("the gateway answered with status %d", status)
}

// ErrCaller reports a token that the gateway does not know, or that may not ask for admission.
var ErrCaller = errors.New("the gateway does not accept this token")

// ErrRole reports a token that is known, and not a runtime's. It is an ErrCaller.
var ErrRole = fmt.Errorf("%w: its role is another one", ErrCaller)

// Identify asks the gateway for the user of the peer's token, and returns the peer as that user. The error
// is ErrCaller, or ErrRole, unless the token is a runtime's of the peer's tenant. Nothing is recorded.
func (a *Asker) Identify(ctx context.Context) (Peer, error) {
	var who struct{ Tenant, User, Role string }
	text, err := a.get(ctx, "/v1/caller", 0)
	switch {
	case isRefused(err, http.StatusUnauthorized):
		return Peer{}, ErrCaller
	case err != nil:
		return Peer{}, err
	case json.Unmarshal(text, &who) != nil:
		return Peer{}, errors.New("the gateway's answer makes no sense")
	case who.Tenant != a.peer.tenant || who.User == "":
		return Peer{}, ErrCaller
	case who.Role != "runtime":
		return Peer{}, ErrRole
	}
	return a.peer.As(a.peer.token, who.User), nil
}

// Propose asks once whether a call may run. workflow is the one that the call waits for, if it does; an
// answer that opens another is a denial, whose cause says what has become of the first.
func (a *Asker) Propose(ctx context.Context, event []byte, workflow string) (Reply, error) {
	h, body, err := a.Post(ctx, event, workflow)
	if err != nil {
		return Reply{}, err
	}
	native, err := agenthook.ParseReply(body)
	if err != nil {
		return Reply{}, errors.New("the gateway's answer makes no sense")
	}
	r := Reply{
		Verdict: events.Verdict(h.Get(events.HeaderVerdict)), Reason: native.Reason,
		Receipt: h.Get(events.HeaderReceipt), Key: h.Get(events.HeaderKey), Workflow: h.Get(events.HeaderWorkflow), Mode: h.Get(events.HeaderMode),
	}
	status := ""
	if w := native.Metadata.Approval; w != nil {
		r.Expires, r.ApprovalURL, r.DecisionRef, status = w.ExpiresAt, w.ApprovalURL, w.DecisionRef, w.Status
		if r.Workflow == "" {
			r.Workflow = w.WorkflowID
		}
	}
	if string(r.Verdict) != native.Decision && r.Verdict != events.Defer {
		return Reply{}, errors.New("the gateway's answer contradicts itself")
	}
	if workflow != "" && r.Waits() && r.Workflow != workflow {
		return a.replaced(ctx, workflow)
	}
	r.Cause = r.cause(status)
	return r, nil
}

// CheckReceipt holds the receipt of an allow against the call that is about to run, and uses it. The
// asker names the publisher.
func (a *Asker) CheckReceipt(ctx context.Context, r Reply, call guard.Execution) error {
	call.Receipt, call.Key, call.Source = r.Receipt, r.Key, a.peer.publisher
	if a.guard == nil {
		return errors.New("the public key is none: run countersign hook install")
	}
	if err := a.guard.Run(ctx, call, func(context.Context) error { return nil }); err != nil {
		return fmt.Errorf("the permission does not hold for this call: %s", guard.Code(err))
	}
	return nil
}

// ErrTooLate reports that the budget, or the time of one request, ended before there was an answer.
var ErrTooLate = errors.New("there was no answer in time")

// Clean makes text from outside safe to show: one line, no control characters, of bounded length.
func Clean(text string) string {
	const most = 400
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if r := []rune(text); len(r) > most {
		text = string(r[:most]) + "…"
	}
	return text
}
