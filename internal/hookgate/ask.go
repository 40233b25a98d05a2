package hookgate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/countersign-dev/countersign/client/guard"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/hook"
	"github.com/countersign-dev/countersign/internal/retry"
)

// maxReply is the largest reply that is read, in bytes.
const maxReply = 4 << 20

// reply is the gateway's answer to a proposal.
type reply struct {
	verdict              events.Verdict
	reason               string
	receipt, key         string
	workflow             string
	expires, approvalURL string
}

// asker sends events to the gateway.
type asker struct {
	peer   peer
	client http.Client
}

func newAsker(p peer) *asker {
	return &asker{p, http.Client{
		// A redirect would carry the token to another address.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// post sends an event and returns the answer's header and body.
func (a *asker) post(ctx context.Context, event []byte, workflow string) (http.Header, []byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, a.peer.gateway+"/event", bytes.NewReader(event))
	if err != nil {
		return nil, nil, errors.New("the gateway's address is no URL")
	}
	r.Header.Set("Authorization", "Bearer "+a.peer.token)
	r.Header.Set("Content-Type", "application/json")
	if workflow != "" {
		r.Header.Set(events.HeaderWorkflow, workflow)
	}
	answer, err := a.client.Do(r)
	if err != nil {
		return nil, nil, unreachable(ctx, err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxReply))
	if err != nil {
		return nil, nil, unreachable(ctx, err)
	}
	if answer.StatusCode != http.StatusOK {
		return nil, nil, problem(answer.StatusCode, body)
	}
	return answer.Header, body, nil
}

// unreachable says why there is no answer, without the address, which the model would read.
func unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errTooLate
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the gateway's answer was cut off")
	}
	return errors.New("the gateway does not answer")
}

// problem is a refusal by HTTP. The gateway's message quotes nothing of a request.
func problem(status int, body []byte) error {
	var p struct {
		Error, Message, Reason string
	}
	if json.Unmarshal(body, &p) == nil && p.Error != "" {
		return fmt.Errorf("the gateway refused: %s: %s", clean(p.Error), clean(p.Message))
	}
	if p.Reason != "" {
		return fmt.Errorf("the gateway refused: %s", clean(p.Reason))
	}
	return fmt.Errorf("the gateway answered with status %d", status)
}

// propose asks once whether a call may run.
func (a *asker) propose(ctx context.Context, event []byte, workflow string) (reply, error) {
	h, body, err := a.post(ctx, event, workflow)
	if err != nil {
		return reply{}, err
	}
	native, err := agenthook.ParseReply(body)
	if err != nil {
		return reply{}, errors.New("the gateway's answer makes no sense")
	}
	r := reply{
		verdict: events.Verdict(h.Get(events.HeaderVerdict)), reason: native.Reason,
		receipt: h.Get(events.HeaderReceipt), key: h.Get(events.HeaderKey), workflow: h.Get(events.HeaderWorkflow),
	}
	if w := native.Metadata.Approval; w != nil {
		r.expires, r.approvalURL = w.ExpiresAt, w.ApprovalURL
		if r.workflow == "" {
			r.workflow = w.WorkflowID
		}
	}
	if string(r.verdict) != native.Decision && r.verdict != events.Defer {
		return reply{}, errors.New("the gateway's answer contradicts itself")
	}
	return r, nil
}

// Pauses between two looks whether a person has decided.
const (
	firstPause = 300 * time.Millisecond
	maxPause   = 2 * time.Second
	lastAnswer = time.Second // kept of the budget for the refusal
)

// await asks until there is a decision, or until the budget is nearly used up.
func (a *asker) await(ctx context.Context, event []byte, workflow string) (reply, error) {
	deadline, _ := ctx.Deadline()
	pauses := retry.New(firstPause, maxPause)
	for {
		r, err := a.propose(ctx, event, workflow)
		if err != nil || r.verdict != events.Ask || r.workflow == "" {
			return r, err
		}
		if workflow != "" && r.workflow != workflow {
			return reply{verdict: events.Deny, reason: "the approval was not given in time", workflow: r.workflow}, nil
		}
		workflow = r.workflow
		pause := pauses.Next()
		if time.Until(deadline) < pause+lastAnswer {
			return r, nil
		}
		if err := retry.Sleep(ctx, pause); err != nil {
			return reply{}, errTooLate
		}
	}
}

// checkReceipt holds the receipt of an allow against the call that is about to run.
func (a *asker) checkReceipt(ctx context.Context, e hook.Event, callID string, r reply) error {
	g, err := guard.New(guard.Options{Tenant: a.peer.tenant, PublicKey: a.peer.publicKey})
	if err != nil {
		return errors.New("the public key is none: run countersign hook install")
	}
	err = g.Run(ctx, guard.Execution{
		Receipt: r.receipt, Key: r.key, Source: a.peer.publisher, Session: e.Session, ToolCallID: callID, Tool: e.Tool, Arguments: e.Input,
	}, func(context.Context) error { return nil })
	if err != nil {
		return fmt.Errorf("the permission does not hold for this call: %s", guard.Code(err))
	}
	return nil
}
