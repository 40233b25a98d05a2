package approval

import (
	"slices"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/countersign-dev/countersign/events"
)

// Code is the outcome of a reviewer's command, stable, in snake_case.
type Code string

// Outcomes that changed the workflow.
const (
	CodeApproved  Code = "approved"
	CodeRecorded  Code = "approval_recorded" // more reviewers must approve
	CodeDenied    Code = "denied"
	CodeCancelled Code = "cancelled"
)

// Refusals.
const (
	CodeInvalid          Code = "invalid_request"
	CodeUnknown          Code = "unknown_workflow"
	CodeSelf             Code = "self_approval"      // the reviewer is the requester
	CodeNotReviewer      Code = "not_a_reviewer"     // in none of the groups that the policy names
	CodePreviewRequired  Code = "preview_required"   // an approval must name the preview
	CodePreviewMismatch  Code = "preview_mismatch"   // the command names another preview
	CodeVoted            Code = "already_approved"   // by the same reviewer
	CodeResolved         Code = "already_resolved"   // it is decided: the command can change nothing any more
	CodeExpired          Code = "workflow_expired"   // its time is up
	CodeStalePolicy      Code = "policy_changed"     // the approval could not be used any more
	CodeUnapprovable     Code = "not_approvable"     // the verdict has a part that no approval lifts
	CodeReasonNotAllowed Code = "reason_not_allowed" // too long, or not plain text
	CodeUnavailable      Code = "audit_unavailable"  // it may be recorded or not: the log did not answer in time
)

// Command is a reviewer's command.
type Command struct {
	Act           Act    // ActApprove, ActDeny or ActCancel
	Reviewer      string // the authenticated user
	Reason        string
	PreviewDigest string
	At            time.Time

	// IsMember reports whether a user is in one of the tenant's reviewer groups.
	IsMember func(group, user string) bool
	// CurrentPolicy is the policy snapshot in force.
	CurrentPolicy events.PolicyRef
}

// refusals are the reasons to refuse a command, in the order of the checks: a user that may not
// review a workflow learns nothing about it.
var refusals = []struct {
	code    Code
	refuses func(Workflow, Command) bool
}{
	{CodeInvalid, func(_ Workflow, c Command) bool {
		return c.Reviewer == "" || !slices.Contains([]Act{ActApprove, ActDeny, ActCancel}, c.Act)
	}},
	{CodeSelf, func(w Workflow, c Command) bool { return w.isRequester(c.Reviewer) }}, // AH-C-110
	{CodeNotReviewer, func(w Workflow, c Command) bool { return !w.MayReview(c.Reviewer, c.IsMember) }},
	{CodeReasonNotAllowed, func(_ Workflow, c Command) bool { return !ReasonOK(c.Reason) }},
	{CodeExpired, func(w Workflow, c Command) bool { return w.StatusAt(c.At) == Expired }},
	{CodeResolved, func(w Workflow, c Command) bool { return !canTransition(w.StatusAt(c.At), c.Act) }},
	{CodeUnapprovable, func(w Workflow, c Command) bool { return c.Act == ActApprove && w.Unapprovable }},
	{CodePreviewMismatch, func(w Workflow, c Command) bool { return c.PreviewDigest != "" && c.PreviewDigest != w.PreviewDigest }},
	{CodePreviewRequired, func(_ Workflow, c Command) bool { return c.Act == ActApprove && c.PreviewDigest == "" }},
	{CodeStalePolicy, func(w Workflow, c Command) bool { return c.Act == ActApprove && !samePolicy(w.Policy, c.CurrentPolicy) }},
	{CodeVoted, func(w Workflow, c Command) bool { return c.Act == ActApprove && w.hasVoteOf(c.Reviewer) }},
}

func canTransition(s Status, act Act) bool {
	_, yes := transitions[s][act]
	return yes
}

// Resolve applies a reviewer's command. changed is false for a refusal; next is then the
// unchanged workflow.
func (w Workflow) Resolve(c Command) (next Workflow, code Code, changed bool) {
	for _, r := range refusals {
		if r.refuses(w, c) {
			return w, r.code, false
		}
	}
	act, code := c.Act, map[Act]Code{ActApprove: CodeApproved, ActDeny: CodeDenied, ActCancel: CodeCancelled}[c.Act]
	votes := w.Votes
	if c.Act == ActApprove {
		votes = append(slices.Clone(w.Votes), Vote{c.Reviewer, events.At(c.At), c.Reason})
		if w.countValidVotes(votes, c.IsMember) < w.Terms.Quorum {
			act, code = ActVote, CodeRecorded
		}
	}
	if len(votes) > maxVotes {
		return w, CodeInvalid, false
	}
	next, err := w.applyAct(act, c.Reviewer, c.Reason, c.At)
	if err != nil { // cannot happen: CodeResolved was checked
		return w, CodeResolved, false
	}
	next.Votes = votes
	return next, code, true
}

// MayReview reports whether the policy's groups let a user review the workflow.
func (w Workflow) MayReview(user string, member func(group, user string) bool) bool {
	if len(w.Terms.Reviewers) == 0 {
		return true
	}
	return member != nil && slices.ContainsFunc(w.Terms.Reviewers, func(group string) bool { return member(group, user) })
}

// isRequester reports whether a user is the publisher or one of the agents that asked.
func (w Workflow) isRequester(user string) bool { return user == w.Source || w.hasAgent(user) }

// hasAgent reports whether an agent asked for the workflow.
func (w Workflow) hasAgent(agent string) bool {
	return agent == w.Preview.Agent || slices.Contains(w.Agents, agent)
}

// countValidVotes counts the votes of users that may still review: a user that has left the
// group since does not count, nor does one whose agent has joined since.
func (w Workflow) countValidVotes(votes []Vote, member func(group, user string) bool) (n int) {
	for _, v := range votes {
		if w.MayReview(v.Reviewer, member) && !w.isRequester(v.Reviewer) {
			n++
		}
	}
	return n
}

func (w Workflow) hasVoteOf(user string) bool {
	return slices.ContainsFunc(w.Votes, func(v Vote) bool { return v.Reviewer == user })
}

func samePolicy(a, b events.PolicyRef) bool { return a.Revision == b.Revision && a.Digest == b.Digest }

// ReasonOK reports whether a reviewer's reason may go into a record.
func ReasonOK(s string) bool {
	if !utf8.ValidString(s) || utf8.RuneCountInString(s) > MaxReason {
		return false
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}
