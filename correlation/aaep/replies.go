package aaep

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aaep"
)

// handleReply applies a reply (AAEP 6.3.4). A reply that does not count changes nothing.
func (q *questions) handleReply(r *reports, st *states, e *Event, token string, c replyContent) {
	i := len(q.list) - 1
	for ; i >= 0 && q.list[i].token != fact.BoundID(token); i-- {
	}
	if i < 0 {
		return
	}
	a := q.list[i]
	c.subscription, c.response = fact.BoundID(c.subscription), answerKey(c.response)
	if slices.Contains(a.replies, c) || a.isAnswer(c) {
		return // a second delivery
	}
	if len(a.replies) < maxReplies {
		a.replies = append(a.replies, c)
	}
	yes := a.isConfirmation() && c.response == decisionAccept
	switch a.stage {
	case questionAccepted, questionRejected, questionAnswered:
		a.handleSecondReply(r, e, c, yes)
		return
	case questionSuperseded, questionClosed:
		asHint(r.add("AAEP-C-109", "", a.event, e.eventRef()))
		a.acceptedAfterWithdrawal = a.acceptedAfterWithdrawal || yes
		return
	}
	dated := !e.Time.IsZero() && !a.deadline.IsZero() && !e.Time.Before(a.deadline)
	if a.stage != questionPending || a.isTimeOver(e) {
		r.add("AAEP-C-111", "its time was over", a.event, e.eventRef()).Case = "late"
		a.acceptedLate = a.acceptedLate || yes
		return
	}
	switch {
	case dated:
		found := r.add("AAEP-C-111", "it is dated after its time, in which it came", a.event, e.eventRef())
		found.Case, found.Severity = "dated", events.SeverityLow
	case !e.Time.IsZero() && e.Time.Add(clockSkew).Before(a.askedAt):
		r.add("AAEP-C-111", "it is dated before its question", a.event, e.eventRef()).Severity = events.SeverityLow
	}
	a.applyReply(r, st, e, c)
}

// handleSecondReply judges a reply to an answered question. The first valid reply counts (AAEP
// 6.3.5). A second one of another subscriber is only late.
func (a *userQuestion) handleSecondReply(r *reports, e *Event, c replyContent, yes bool) {
	found := r.add("AAEP-C-110", "it has been answered", a.event, e.eventRef())
	found.Case = "consumed"
	if a.answer.subscription != c.subscription {
		asHint(found)
	}
	a.acceptedSecond = a.acceptedSecond || (yes && a.stage == questionRejected)
}

// isAnswer reports whether a reply is the one that counts. A subscriber that sends it again, since it does
// not know that it was stored, dates it anew.
func (a *userQuestion) isAnswer(c replyContent) bool {
	c.time = a.answer.time
	return c == a.answer && a.resolvedBy != (eventRef{})
}

func (a *userQuestion) applyReply(r *reports, st *states, e *Event, c replyContent) {
	switch {
	case !a.isConfirmation() && !a.acceptsResponse(c):
		r.add("AAEP-C-117", "", a.event, e.eventRef())
	case !a.isConfirmation():
		a.resolve(r, st, questionAnswered, e.eventRef(), e.producerTime())
	case !a.allowsDecision(c.response):
		r.add("AAEP-C-113", "", a.event, e.eventRef())
	case c.response == decisionAccept:
		a.resolve(r, st, questionAccepted, e.eventRef(), e.producerTime())
	case c.response == decisionReject:
		a.resolve(r, st, questionRejected, e.eventRef(), e.producerTime())
	}
	if a.stage != questionPending {
		a.answer, a.resolvedAt = c, e.At
	}
	st.noteActivity(a.agent)
}

func (a *userQuestion) allowsDecision(decision string) bool {
	if len(a.allowedReplies) == 0 {
		return decision == decisionAccept || decision == decisionReject
	}
	return offers(a.allowedReplies, decision)
}

// offers reports whether one of the answers that a question offers has a key.
func offers(list []string, key string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return answerKey(s) == key })
}

// answerKeyPrefix begins a key that is a digest.
const answerKeyPrefix = "~r"

// answerKey is what is kept of an answer: a word with a meaning of its own, else a digest, since it may be a person's own
// words. The key of a key is the key itself.
func answerKey(s string) string {
	hash, isKey := strings.CutPrefix(s, answerKeyPrefix)
	if isKey && len(hash) == 2*len(fact.Sum{}) || slices.Contains([]string{"", decisionAccept, decisionReject, "yes", "no"}, strings.ToLower(s)) {
		return s
	}
	return fmt.Sprintf("%s%x", answerKeyPrefix, fact.SumOf(fact.BoundID(s)))
}

// acceptsResponse reports whether a response is of a kind that the question permits (AAEP
// 6.5.5).
func (a *userQuestion) acceptsResponse(r replyContent) bool {
	kinds := a.clarification.kinds
	if len(kinds) == 0 && len(a.clarification.choices) == 0 {
		return true
	}
	isText := r.kind == "string"
	chosen := isText && offers(a.clarification.choices, r.response)
	if len(kinds) == 0 {
		return chosen
	}
	return slices.ContainsFunc(kinds, func(kind string) bool {
		switch kind {
		case "yes_no":
			return r.kind == "boolean" || (isText && slices.Contains([]string{"yes", "no"}, strings.ToLower(r.response)))
		case "numeric":
			return r.kind == "number"
		case "multiple_choice":
			return chosen
		}
		return isText
	})
}

// checkAutomaticReply reports a program that answers for the user. The user must have
// permitted that, and the log has no record of it.
func (r *reports) checkAutomaticReply(e *Event, decidedBy string) {
	if aaep.IsAutomatic(decidedBy) {
		r.add("AAEP-C-118", "", e.eventRef())
	}
}

// unknownReplyFinding is the finding of a reply whose token its publisher never used
// (AAEP-C-110).
func unknownReplyFinding(e *Event) *catalogue.Finding {
	found := newFinding("AAEP-C-110", "no question has this token", e.eventRef())
	found.Case = "unknown"
	return found
}

// sharedTokenFinding is the finding of a reply whose token several publishers use (AAEP-C-110): a hint, since AAEP 6.2.2
// recommends more than it demands.
func sharedTokenFinding(e *Event, question eventRef) *catalogue.Finding {
	found := newFinding("AAEP-C-110", "another publisher asked under this token, too, and its time to answer is not over by 15 minutes, so that it is for neither", question, e.eventRef())
	found.Case = "shared"
	return asHint(found)
}

// keptReply is what is kept of a reply until its question comes.
type keptReply struct {
	token, decidedBy string
	clarifies        bool
	content          replyContent
}

// KeepReply returns what to keep of a reply.
func (e *Event) KeepReply() keptReply {
	switch p := e.Payload.(type) {
	case *aaep.ConfirmationReply:
		return keptReply{fact.BoundID(p.ReplyToken), fact.BoundID(p.DecidedBy), false, replyContent{fact.BoundID(p.SubscriptionID), answerKey(p.Decision), "", e.Time, p.ModifiedAction != nil}}
	case *aaep.ClarificationReply:
		return keptReply{fact.BoundID(p.ReplyToken), fact.BoundID(p.DecidedBy), true, replyContent{fact.BoundID(p.SubscriptionID), answerKey(p.Response), p.ResponseKind, e.Time, false}}
	}
	return keptReply{}
}

// Event rebuilds the reply, with its sequence and the broker's time.
func (r keptReply) Event(seq uint64, at time.Time) *Event {
	e := &Event{Type: "confirmation.reply", Time: r.content.time, Seq: seq, At: at}
	confirms := &aaep.ConfirmationReply{ReplyToken: r.token, SubscriptionID: r.content.subscription, Decision: r.content.response, DecidedBy: r.decidedBy}
	if r.content.modified {
		confirms.ModifiedAction = map[string]any{}
	}
	e.Payload = confirms
	if r.clarifies {
		e.Type = "clarification.reply"
		e.Payload = &aaep.ClarificationReply{ReplyToken: r.token, SubscriptionID: r.content.subscription, Response: r.content.response,
			ResponseKind: r.content.kind, DecidedBy: r.decidedBy}
	}
	return e
}

// replyFollows reports whether a reply was sent after its question was asked, by the times in
// both.
func replyFollows(reply, question *Event) bool {
	return !reply.Time.IsZero() && !question.Time.IsZero() && !reply.Time.Add(clockSkew).Before(question.Time)
}
