package policycmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/admission/replay"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/recorded"
	"github.com/countersign-dev/countersign/storage/conn"
	"github.com/countersign-dev/countersign/storage/records"
)

// ExplainCmd is `countersign explain`.
type ExplainCmd struct {
	target.Flags
	Key string `help:"The public checkpoint key, or a file that holds it (default: the ready file's, from which the variable must not differ)." env:"COUNTERSIGN_PUBLIC_KEY" placeholder:"FILE"`
	system.DigestFlags
	ShowRequest bool   `help:"Print the request as well. It holds the raw arguments."`
	JSON        bool   `name:"json" help:"Print JSON."`
	Decision    string `arg:"" help:"Decision id, as in the reply's header Countersign-Decision-Id."`
}

// explanation is everything known about one decision.
type explanation struct {
	Seq        uint64          `json:"seq"`
	StoredAt   events.Time     `json:"stored_at"`
	Decision   events.Decision `json:"decision"`
	Signature  signatureCheck  `json:"signature"`
	RequestSeq uint64          `json:"request_seq,omitempty"`
	Policies   *policiesThen   `json:"policies,omitempty"`
	Reasons    []reasonThen    `json:"reasons"`
	Approvals  []approvalStep  `json:"approvals,omitempty"`
	Replay     replayed        `json:"replay"`
	Request    json.RawMessage `json:"request,omitempty"`
	RawRequest string          `json:"request_text,omitempty"` // a request that is not JSON
}

// policiesThen describes the policies that were in force.
type policiesThen struct {
	Revision uint64      `json:"revision"`
	Digest   string      `json:"digest,omitempty"`
	Error    string      `json:"error,omitempty"`
	Author   string      `json:"author,omitempty"`
	Message  string      `json:"message,omitempty"`
	PushedAt events.Time `json:"pushed_at,omitzero"`
	Seq      uint64      `json:"seq"` // of the change record
}

// reasonThen is a reason with the rule that gave it, as the rule was written then.
type reasonThen struct {
	events.Reason
	Rule *policy.RuleText `json:"rule,omitempty"`
}

// approvalStep is one record of the decision's workflow.
type approvalStep struct {
	Seq uint64 `json:"seq"`
	events.Approval
}

// replayed is the result of making the decision again.
type replayed struct {
	Same        bool                `json:"same"`
	Verdict     events.Verdict      `json:"verdict,omitempty"` // before approvals
	Differences []replay.Difference `json:"differences,omitempty"`
	Cannot      []string            `json:"cannot_be_replayed,omitempty"`
	Digests     string              `json:"digests"` // recomputed, or why not
}

// Run fails if the signature is invalid or the replay differs.
func (c *ExplainCmd) Run(ctx context.Context, io ui.Stdio) error {
	t, err := c.Resolve()
	if err != nil {
		return err
	}
	l, closeLog, tenant, err := system.OpenLog(ctx, c.Flags)
	if err != nil {
		return err
	}
	defer closeLog()
	e, err := c.find(ctx, l, t, tenant)
	if err != nil {
		return err
	}
	x := &explanation{Seq: e.Message.Seq, StoredAt: events.At(e.Message.Time), Decision: e.Decision, Reasons: []reasonThen{}}
	if x.Signature, err = c.signature(ctx, l, t, e); err != nil {
		return err
	}
	if err := x.fill(ctx, c, l, e); err != nil {
		return err
	}
	if c.JSON {
		err = ui.WriteJSON(io, x)
	} else {
		printExplanation(ui.NewPrinter(io.Out), x, time.Now())
	}
	if err == nil && (!x.Signature.Valid || !x.Replay.Same && len(x.Replay.Cannot) == 0) {
		return ui.ExitCode(ui.ExitFailed)
	}
	return err
}

// find searches the decision in the log by the time in its id and, without success, in the
// evidence, which knows its sequence.
func (c *ExplainCmd) find(ctx context.Context, l recorded.Log, t *target.Target, tenant string) (recorded.Entry, error) {
	e, err := l.FindDecision(ctx, tenant, c.Decision)
	if !errors.Is(err, recorded.ErrNoDecision) {
		return e, err
	}
	dsn, dsnErr := t.DSN()
	if dsnErr != nil {
		return e, err
	}
	pool, dbErr := conn.Open(ctx, dsn)
	if dbErr != nil {
		return e, err
	}
	defer func() { _ = pool.Close() }()
	found, dbErr := records.New(pool).DecisionPlaces(ctx, tenant, c.Decision)
	if dbErr != nil || len(found) == 0 {
		return e, err
	}
	e, atErr := l.DecisionAt(ctx, found[len(found)-1].Seq)
	if atErr != nil || e.Decision.DecisionID != c.Decision {
		return e, fmt.Errorf("%w: the evidence has it as record %d of %s, and the log no longer has it: its session was erased, or the log began anew", recorded.ErrNoDecision,
			found[0].Seq, found[0].Shard)
	}
	return e, nil
}

// fill adds policies, reasons, approvals and the replay.
func (x *explanation) fill(ctx context.Context, c *ExplainCmd, l recorded.Log, e recorded.Entry) error {
	policies, err := l.Policies(ctx)
	if err != nil {
		return err
	}
	in, err := policies.ForDecision(ctx, e.Decision, e.Message.Seq)
	if err != nil && !errors.Is(err, recorded.ErrNoPolicies) {
		return err
	}
	x.rules(in)
	if x.Approvals, err = approvalSteps(ctx, l, e.Decision); err != nil {
		return err
	}
	if e.Request != nil {
		x.RequestSeq = e.Request.Seq
		if c.ShowRequest {
			x.show(e.Request.Body)
		}
	}
	return x.replay(ctx, c, l, e, in)
}

func (x *explanation) show(body []byte) {
	if json.Valid(body) {
		x.Request = body
	} else {
		x.RawRequest = string(body)
	}
}

// rules adds the text of the rule to every reason.
func (x *explanation) rules(in *recorded.PolicyInForce) {
	texts := map[string]policy.RuleText{}
	if in != nil {
		c := in.Change
		x.Policies = &policiesThen{Revision: c.Revision, Digest: c.Digest, Error: c.Error, Author: c.Author, Message: c.Message, PushedAt: c.PushedAt, Seq: in.Seq}
		if rules, err := policy.Rules(in.Docs); err == nil {
			for _, r := range rules {
				texts[r.ID()] = r
			}
		}
	}
	for _, r := range x.Decision.Reasons {
		then := reasonThen{Reason: r}
		if text, known := texts[r.Policy]; known {
			then.Rule = &text
		}
		x.Reasons = append(x.Reasons, then)
	}
}

func (x *explanation) replay(ctx context.Context, c *ExplainCmd, l recorded.Log, e recorded.Entry, in *recorded.PolicyInForce) error {
	r := &x.Replay
	r.Digests = "not recomputed: they are keyed (--keys DIR with master.key, --keys-user)"
	switch {
	case e.Request == nil:
		r.Cannot = []string{recorded.ErrNoRequest.Error()}
	case in == nil:
		r.Cannot = []string{recorded.ErrNoPolicies.Error()}
	case in.GoneErr != nil:
		r.Cannot = []string{in.GoneErr.Error()}
	}
	if len(r.Cannot) > 0 {
		return nil
	}
	t, err := c.Resolve()
	if err != nil {
		return err
	}
	k, err := c.SessionDigests(ctx, t, e.Decision.Tenant, e.Decision.Session)
	if err != nil {
		return err
	}
	if _, can := digest.InFormOf(e.Decision.RequestDigest, k, nil); can {
		r.Digests = "recomputed"
	}
	stores := newPastStores(ctx, l.JS)
	again := replay.Decide(recordOf(e), configOf(in), stores.known(k))
	r.Verdict, r.Cannot = again.Decision.Verdict, again.Unknown
	if stores.failed != nil {
		r.Cannot = append(r.Cannot, stores.failed.Error())
	}
	if len(r.Cannot) == 0 {
		r.Differences = replay.Compare(e.Decision, again.Decision)
		r.Same = len(r.Differences) == 0
	}
	return nil
}
