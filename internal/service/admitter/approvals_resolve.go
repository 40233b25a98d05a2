package admitter

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/admission/approval"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/streams"
)

// reviewRequest is an authenticated request to resolve something.
type reviewRequest struct {
	tenant, user string
	body         []byte
	at           time.Time
}

// acceptRequest hands a reviewer's request to a worker, like an admission.
func (a *approvalStore) acceptRequest(ctx context.Context, r micro.Request) {
	refuse := func(code, message string) {
		a.sendReply(r, approval.Reply{Code: approval.Code(code), Message: message})
	}
	a.s.answerByWorker(r, "a resolve request", "look with show", refuse, func() { a.sendReply(r, a.answerReviewer(ctx, r)) })
}

// answerReviewer carries out a reviewer's request and returns the reply.
func (a *approvalStore) answerReviewer(ctx context.Context, r micro.Request) approval.Reply {
	p, err := a.s.space.Parse(r.Subject())
	id, identityErr := streams.RequestIdentity(map[string][]string(r.Headers()))
	if err != nil || identityErr != nil || !id.IsOfTenant(p.Tenant) {
		a.s.env.Log.Warn().Str("subject", r.Subject()).Msg("resolve request of a user that may not review for that tenant")
		return approval.Reply{Code: codeUnknownReviewer, Message: "you are no reviewer of that tenant"}
	}
	if a.s.overQuota(a.s.reviewQuota, kindReviews, p.Tenant, id.User, r.Headers(), r.Data()) {
		return approval.Reply{Code: codeQuota, Message: "too many requests of this user; send more slowly"}
	}
	// A shutdown must not separate a change from its record.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.s.flags.Timeout)
	defer cancel()
	who := reviewRequest{tenant: p.Tenant, user: id.User, body: r.Data(), at: time.Now()}
	req, err := approval.DecodeRequest(who.body)
	if err != nil {
		return a.recordAttempt(ctx, who, req, approval.CodeInvalid)
	}
	// A reviewer may name a workflow that another admitter opened a moment ago.
	if err := a.follower.caughtUp(ctx); err != nil {
		return a.unavailableReply(ctx, err)
	}
	switch req.Action {
	case approval.CommandList:
		return a.listPending(who, req)
	case approval.CommandShow:
		return a.showWorkflow(ctx, who, req)
	}
	return a.resolveWorkflow(ctx, who, req)
}

// codeUnknownReviewer is the code of an answer that no workflow gives.
const codeUnknownReviewer = "unknown_reviewer" // the user may not review for that tenant

// recordAttempt records and refuses a request that concerns no known workflow.
func (a *approvalStore) recordAttempt(ctx context.Context, who reviewRequest, req approval.Request, code approval.Code) approval.Reply {
	record := events.ResolveAttempt{
		Tenant: who.tenant, User: who.user, RequestDigest: digest.Keyed(a.s.master.Tenant(who.tenant), who.body), Refused: string(code), At: events.At(who.at),
	}
	if _, known := approval.Acts[req.Action]; known || req.Action == approval.CommandShow {
		record.Action = req.Action
	}
	if approval.ValidID(req.WorkflowID) {
		record.WorkflowID = req.WorkflowID
	}
	msg, err := a.s.signedRecord(a.s.space.Control(a.s.flags.Stream, events.ControlResolve), "resolve-"+uuid.NewString(), events.TypeControl, who.at, record)
	if err == nil {
		_, err = a.s.committer.Append(ctx, msg)
	}
	if err != nil {
		return a.unavailableReply(ctx, err)
	}
	return approval.NewReply(code, nil)
}

func (a *approvalStore) unavailableReply(ctx context.Context, err error) approval.Reply {
	a.reportRetry(ctx, fmt.Errorf("a reviewer's word could not be recorded: %w", err))
	return approval.NewReply(approval.CodeUnavailable, nil)
}

// newCommand builds a reviewer's command with the current policies and group memberships.
func (a *approvalStore) newCommand(who reviewRequest, req approval.Request) approval.Command {
	c := approval.Command{
		Act: approval.Acts[req.Action], Reviewer: who.user, Reason: req.Reason, PreviewDigest: req.PreviewDigest, At: who.at,
		IsMember: func(string, string) bool { return false }, CurrentPolicy: a.policyInForce(),
	}
	if config := a.s.config.Load(); config != nil && config.PolicyErr == nil {
		c.IsMember = func(group, user string) bool {
			return slices.Contains(config.Policies.Members(who.tenant, group), user)
		}
	}
	return c
}

// policyInForce is the policy snapshot in force, zero if there is none that compiles.
func (a *approvalStore) policyInForce() events.PolicyRef {
	config := a.s.config.Load()
	if config == nil || config.PolicyErr != nil {
		return events.PolicyRef{}
	}
	return events.PolicyRef{Revision: config.Revision, Digest: config.Policies.Digest()}
}

// maxAttempts is how often a reviewer's command is judged again because another one came first.
const maxAttempts = 8

// resolveWorkflow applies a reviewer's decision to a workflow. It returns once the record is
// durable. After a lost compare-and-set the command is judged again against the new state.
func (a *approvalStore) resolveWorkflow(ctx context.Context, who reviewRequest, req approval.Request) approval.Reply {
	for range maxAttempts {
		w := a.index.Find(who.tenant, req.WorkflowID)
		if w == nil {
			return a.recordAttempt(ctx, who, req, approval.CodeUnknown)
		}
		key := approval.StoreKey(w.Tenant, w.Slot)
		held := a.index.lookup(key)
		if held.workflow == nil || held.workflow.ID != w.ID {
			continue // another workflow has just replaced it
		}
		c := a.newCommand(who, req)
		next, code, changed := held.workflow.Resolve(c)
		if !changed {
			err := a.checkUnchanged(ctx, key, held.revision)
			if err == nil {
				err = a.ensureLogged(ctx, key, held)
			}
			if errors.Is(err, errConflict) {
				continue
			}
			if err == nil {
				err = a.appendRecords(ctx, held.workflow.Refusal(printableCommand(c), code))
			}
			if err != nil {
				return a.unavailableReply(ctx, err)
			}
			return approval.NewReply(code, visibleView(*held.workflow, c, code))
		}
		switch err := a.changeWorkflow(ctx, key, next, held); {
		case errors.Is(err, errConflict):
			continue
		case err != nil:
			return a.unavailableReply(ctx, err)
		}
		v := next.View(events.At(who.at), false)
		return approval.NewReply(code, &v)
	}
	return approval.NewReply(approval.CodeUnavailable, nil)
}

// printableCommand returns c without a reason that may not go into a record.
func printableCommand(c approval.Command) approval.Command {
	if !approval.ReasonOK(c.Reason) {
		c.Reason = ""
	}
	return c
}

// visibleView is what a refused reviewer may see of a workflow: nothing if it is not the
// reviewer's to review.
func visibleView(w approval.Workflow, c approval.Command, code approval.Code) *approval.View {
	if code == approval.CodeSelf || code == approval.CodeNotReviewer {
		return nil
	}
	v := w.View(events.At(c.At), false)
	return &v
}

// mayReview reports whether a reviewer may decide a workflow, or could have decided it.
func mayReview(w *approval.Workflow, who reviewRequest, c approval.Command) bool {
	return w != nil && w.Tenant == who.tenant && w.MayReview(who.user, c.IsMember)
}

func (a *approvalStore) showWorkflow(ctx context.Context, who reviewRequest, req approval.Request) approval.Reply {
	w, c := a.index.Find(who.tenant, req.WorkflowID), a.newCommand(who, req)
	switch {
	case w == nil:
		return a.recordAttempt(ctx, who, req, approval.CodeUnknown)
	case !mayReview(w, who, c):
		return a.recordAttempt(ctx, who, req, approval.CodeNotReviewer)
	}
	v := w.View(events.At(who.at), true)
	return approval.NewReply(approval.CodeShown, &v)
}

// maxListed is how many bytes of workflows a list holds about: the server takes no answer of more than 8 MiB,
// and names that publishers choose can be long.
const maxListed = 512 << 10

// listPending lists the workflows that wait for a decision, oldest first.
func (a *approvalStore) listPending(who reviewRequest, req approval.Request) approval.Reply {
	c := a.newCommand(who, req)
	var all []*approval.Workflow
	a.index.eachKey(func(_ string, h cachedApproval) {
		if mayReview(h.workflow, who, c) && (req.All || h.workflow.StatusAt(who.at) == approval.Pending) {
			all = append(all, h.workflow)
		}
	})
	slices.SortFunc(all, byAge)
	if from := a.index.Find(who.tenant, req.After); from != nil {
		i, _ := slices.BinarySearchFunc(all, from, byAge)
		for i < len(all) && byAge(all[i], from) <= 0 {
			i++
		}
		all = all[i:]
	}
	reply := approval.NewReply(approval.CodeListed, nil)
	for i, size := 0, 0; i < len(all); i++ {
		if i == cmp.Or(req.Limit, approval.DefaultLimit) || size > maxListed {
			reply.Next = all[i-1].ID
			break
		}
		v := all[i].View(events.At(who.at), false)
		reply.Workflows, size = append(reply.Workflows, v), size+encodedSize(v)
	}
	return reply
}

// encodedSize is how many bytes a view takes in a reply.
func encodedSize(v approval.View) int {
	body, _ := json.Marshal(v) // an error would be one of the reply, too
	return len(body)
}

func byAge(a, b *approval.Workflow) int {
	return cmp.Or(a.RequestedAt.Compare(b.RequestedAt.Time), cmp.Compare(a.ID, b.ID))
}

// sendReply sends a reply. A refusal also carries the micro error headers.
func (a *approvalStore) sendReply(r micro.Request, reply approval.Reply) {
	body, err := json.Marshal(reply)
	switch {
	case err != nil:
		err = r.Error("500", admission.CodeInternal, nil)
	case reply.OK:
		err = r.Respond(body)
	default:
		err = r.Error(cmp.Or(resolveErrors[reply.Code], "409"), string(reply.Code), body)
	}
	if errors.Is(err, nats.ErrMaxPayload) {
		err = r.Error("500", admission.CodeInternal, nil)
	}
	if err != nil {
		a.s.env.Log.Warn().Err(err).Msg("a reviewer's answer could not be sent")
	}
}

var resolveErrors = map[approval.Code]string{
	approval.CodeInvalid: "400", approval.CodePreviewRequired: "400", approval.CodeReasonNotAllowed: "400",
	approval.CodeSelf: "403", approval.CodeNotReviewer: "403", codeUnknownReviewer: "403", approval.CodeUnknown: "404",
	approval.CodeUnavailable: statusUnavailable, codeQuota: "429", codeOverloaded: statusUnavailable, codeStopping: statusUnavailable, admission.CodeInternal: "500",
}
