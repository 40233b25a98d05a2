package admitter

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/micro"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/admission/approval"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/streams"
)

// serveResolve adds the reviewers' endpoint to the micro service.
func (s *service) serveResolve(ctx context.Context, svc micro.Service) error {
	for _, p := range s.parts {
		if a, is := p.(*approvals); is {
			return svc.AddEndpoint("resolve", micro.HandlerFunc(func(r micro.Request) { a.accept(ctx, r) }),
				micro.WithEndpointSubject(s.space.All(subject.Resolve)))
		}
	}
	return nil
}

// reviewer is an authenticated request to resolve something.
type reviewer struct {
	tenant, user string
	body         []byte
	at           time.Time
}

// accept hands a request to a worker, like an admission.
func (a *approvals) accept(ctx context.Context, r micro.Request) {
	if !streams.Answerable(r.Reply()) {
		a.s.env.Log.Warn().Str("subject", r.Subject()).Msg("resolve request without a usable reply subject, dropped")
		return
	}
	if code := a.s.begin(); code != "" {
		a.reply(r, approval.Reply{Code: approval.Code(code), Message: "the admitter has no worker for this now; try again"})
		return
	}
	go func() {
		defer a.s.inflight.Done()
		defer func() { <-a.s.slots }()
		defer func() {
			if recover() != nil {
				a.s.env.Log.Error().Str("stack", string(debug.Stack())).Msg("a resolve request made the admitter panic")
				a.reply(r, approval.Reply{Code: admission.CodeInternal, Message: "an internal error; nothing was changed for certain, look with show"})
			}
		}()
		a.reply(r, a.answer(ctx, r))
	}()
}

// answer does what a reviewer asks for.
func (a *approvals) answer(ctx context.Context, r micro.Request) approval.Reply {
	p, err := a.s.space.Parse(r.Subject())
	id, identityErr := streams.RequestIdentity(map[string][]string(r.Headers()))
	if err != nil || identityErr != nil || !id.Of(p.Tenant) {
		a.s.env.Log.Warn().Str("subject", r.Subject()).Msg("resolve request of nobody who may review for that tenant")
		return approval.Reply{Code: codeUnknownReviewer, Message: "you are no reviewer of that tenant"}
	}
	// A stop must not tear a change apart from its record.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.s.flags.Timeout)
	defer cancel()
	who := reviewer{tenant: p.Tenant, user: id.User, body: r.Data(), at: time.Now()}
	req, err := approval.DecodeRequest(who.body)
	if err != nil {
		return a.attempt(ctx, who, req, approval.CodeInvalid)
	}
	if err := a.catchUp(ctx); err != nil {
		return a.unavailable(ctx, err)
	}
	switch req.Action {
	case approval.ActionList:
		return a.list(who, req)
	case approval.ActionShow:
		return a.show(ctx, who, req)
	}
	return a.resolve(ctx, who, req)
}

// catchUp waits until the view has everything that is in the bucket now: a
// reviewer may come with a workflow that another admitter opened a moment ago.
func (a *approvals) catchUp(ctx context.Context) error {
	st, err := a.js.Stream(ctx, "KV_"+streams.BucketApprovals)
	if err != nil {
		return fmt.Errorf("asking for the state of the approvals: %w", err)
	}
	return a.view.upTo.await(ctx, st.CachedInfo().State.LastSeq)
}

const codeUnknownReviewer = "unknown_reviewer"

// attempt records a request that concerns no workflow, and refuses it.
func (a *approvals) attempt(ctx context.Context, who reviewer, req approval.Request, code approval.Code) approval.Reply {
	record := events.ResolveAttempt{
		Tenant: who.tenant, User: who.user, RequestDigest: digest.Keyed(a.s.master.Tenant(who.tenant), who.body), Refused: string(code), At: events.At(who.at),
	}
	if _, known := approval.Acts[req.Action]; known || req.Action == approval.ActionShow {
		record.Action = req.Action
	}
	if approval.ValidID(req.WorkflowID) {
		record.WorkflowID = req.WorkflowID
	}
	msg, err := a.s.signed(a.s.space.Control(a.s.flags.Stream, events.ControlResolve), "resolve-"+uuid.NewString(), events.TypeControl, who.at, record)
	if err == nil {
		_, err = a.s.committer.Append(ctx, msg)
	}
	if err != nil {
		return a.unavailable(ctx, err)
	}
	return approval.Answer(code, nil)
}

func (a *approvals) unavailable(ctx context.Context, err error) approval.Reply {
	a.problem(ctx, "approval_records", fmt.Errorf("a reviewer's word could not be recorded: %w", err))
	return approval.Answer(approval.CodeUnavailable, nil)
}

// command is what a reviewer wants, with what is known now.
func (a *approvals) command(who reviewer, req approval.Request) approval.Command {
	c := approval.Command{
		Act: approval.Acts[req.Action], Reviewer: who.user, Reason: req.Reason, PreviewDigest: req.PreviewDigest, At: who.at,
		Member: func(string, string) bool { return false },
	}
	if snap := a.s.snapshot.Load(); snap != nil && snap.PolicyErr == nil {
		c.InForce = events.PolicyRef{Revision: snap.Revision, Digest: snap.Policies.Digest()}
		c.Member = func(group, user string) bool {
			return slices.Contains(snap.Policies.Members(who.tenant, group), user)
		}
	}
	return c
}

// resolve changes a workflow by a reviewer's word. The reply goes out when the
// record is durable. Whoever loses a race is judged again by what the winner
// left.
func (a *approvals) resolve(ctx context.Context, who reviewer, req approval.Request) approval.Reply {
	for range maxAttempts {
		w := a.view.Find(who.tenant, req.WorkflowID)
		if w == nil {
			return a.attempt(ctx, who, req, approval.CodeUnknown)
		}
		key := approval.StoreKey(w.Tenant, w.Slot)
		held := a.view.at(key)
		if held.w == nil || held.w.ID != w.ID {
			continue // it has just made room for another
		}
		c := a.command(who, req)
		next, code, changed := held.w.Resolve(c)
		if !changed {
			err := a.unchanged(ctx, key, held.revision)
			if err == nil {
				err = a.logged(ctx, key, held)
			}
			if errors.Is(err, errAgain) {
				continue
			}
			if err == nil {
				err = a.append(ctx, held.w.Refusal(printable(c), code))
			}
			if err != nil {
				return a.unavailable(ctx, err)
			}
			return approval.Answer(code, a.visible(*held.w, c, code))
		}
		switch err := a.change(ctx, key, next, held); {
		case errors.Is(err, errAgain):
			continue
		case err != nil:
			return a.unavailable(ctx, err)
		}
		v := next.View(events.At(who.at), false)
		return approval.Answer(code, &v)
	}
	return approval.Answer(approval.CodeUnavailable, nil)
}

// printable is a command whose reason may go into a record.
func printable(c approval.Command) approval.Command {
	if !approval.ReasonOK(c.Reason) {
		c.Reason = ""
	}
	return c
}

// visible is what a refused reviewer may see of a workflow: nothing of one that
// is not theirs.
func (a *approvals) visible(w approval.Workflow, c approval.Command, code approval.Code) *approval.View {
	if code == approval.CodeSelf || code == approval.CodeNotReviewer {
		return nil
	}
	v := w.View(events.At(c.At), false)
	return &v
}

// mine are the workflows that a reviewer may decide, or might have.
func (a *approvals) mine(w *approval.Workflow, who reviewer, c approval.Command) bool {
	return w != nil && w.Tenant == who.tenant && w.MayReview(who.user, c.Member)
}

func (a *approvals) show(ctx context.Context, who reviewer, req approval.Request) approval.Reply {
	w, c := a.view.Find(who.tenant, req.WorkflowID), a.command(who, req)
	switch {
	case w == nil:
		return a.attempt(ctx, who, req, approval.CodeUnknown)
	case !a.mine(w, who, c):
		return a.attempt(ctx, who, req, approval.CodeNotReviewer)
	}
	v := w.View(events.At(who.at), true)
	return approval.Answer(approval.CodeShown, &v)
}

// list gives the workflows that wait for a decision, the oldest first.
func (a *approvals) list(who reviewer, req approval.Request) approval.Reply {
	c := a.command(who, req)
	var all []*approval.Workflow
	a.view.each(func(_ string, h heldApproval) {
		if a.mine(h.w, who, c) && (req.All || h.w.At(who.at) == approval.Pending) {
			all = append(all, h.w)
		}
	})
	slices.SortFunc(all, byAge)
	if from := a.view.Find(who.tenant, req.After); from != nil {
		i, _ := slices.BinarySearchFunc(all, from, byAge)
		for i < len(all) && byAge(all[i], from) <= 0 {
			i++
		}
		all = all[i:]
	}
	reply := approval.Answer(approval.CodeListed, nil)
	for i, w := range all {
		if i == cmp.Or(req.Limit, approval.DefaultLimit) {
			reply.Next = all[i-1].ID
			break
		}
		reply.Workflows = append(reply.Workflows, w.View(events.At(who.at), false))
	}
	return reply
}

func byAge(a, b *approval.Workflow) int {
	return cmp.Or(a.RequestedAt.Compare(b.RequestedAt.Time), cmp.Compare(a.ID, b.ID))
}

// reply sends a reply; a refusal has the micro error headers, too.
func (a *approvals) reply(r micro.Request, reply approval.Reply) {
	body, err := json.Marshal(reply)
	switch {
	case err != nil:
		err = r.Error("500", admission.CodeInternal, nil)
	case reply.OK:
		err = r.Respond(body)
	default:
		err = r.Error(cmp.Or(resolveErrors[reply.Code], "409"), string(reply.Code), body)
	}
	if err != nil {
		a.s.env.Log.Warn().Err(err).Msg("a reviewer's answer could not be sent")
	}
}

var resolveErrors = map[approval.Code]string{
	approval.CodeInvalid: "400", approval.CodePreviewRequired: "400", approval.CodeReasonTooLong: "400",
	approval.CodeSelf: "403", approval.CodeNotReviewer: "403", codeUnknownReviewer: "403", approval.CodeUnknown: "404",
	approval.CodeUnavailable: errorUnavailable, codeOverloaded: errorUnavailable, codeStopping: errorUnavailable, admission.CodeInternal: "500",
}
