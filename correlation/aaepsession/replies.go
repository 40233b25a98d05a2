package aaepsession

import (
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aaep"
)

// reply takes an answer (6.3.4). One that does not count changes nothing.
func (s *Session) reply(e *Event, token string, r answer) {
	i := len(s.asks) - 1
	for ; i >= 0 && s.asks[i].token != bounded(token); i-- {
	}
	if i < 0 {
		return
	}
	a := s.asks[i]
	r.subscription, r.response = bounded(r.subscription), bounded(r.response)
	if slices.Contains(a.answers, r) {
		return // delivered again
	}
	if len(a.answers) < maxAnswers {
		a.answers = append(a.answers, r)
	}
	yes := a.isConfirmation() && r.response == accept
	switch a.stage {
	case accepted, rejected, answered:
		s.again(e, a, r, yes)
		return
	case superseded, closed:
		hint(s.breach("AAEP-C-109", "", a.ref, e.ref()))
		a.tooLate = a.tooLate || yes
		return
	}
	dated := !e.Time.IsZero() && !a.deadline.IsZero() && !e.Time.Before(a.deadline)
	if a.stage != pending || a.over(e) {
		s.breach("AAEP-C-111", "its time was over", a.ref, e.ref()).Case = "late"
		a.lateAccept = a.lateAccept || yes
		return
	}
	switch {
	case dated:
		b := s.breach("AAEP-C-111", "it is dated after its time, in which it came", a.ref, e.ref())
		b.Case, b.Severity = "dated", events.SeverityLow
	case !e.Time.IsZero() && e.Time.Add(clockSkew).Before(a.when):
		s.breach("AAEP-C-111", "it is dated before its question", a.ref, e.ref()).Severity = events.SeverityLow
	}
	s.answer(e, a, r)
}

// again takes an answer to a question that has one: the first valid one counts
// (6.3.5). From another subscriber it only came second.
func (s *Session) again(e *Event, a *ask, r answer, yes bool) {
	b := s.breach("AAEP-C-110", "it has been answered", a.ref, e.ref())
	b.Case = "consumed"
	if a.by != r.subscription {
		hint(b)
	}
	a.notFirst = a.notFirst || (yes && a.stage == rejected)
}

func (s *Session) answer(e *Event, a *ask, r answer) {
	switch {
	case !a.isConfirmation() && !a.accepts(r):
		s.breach("AAEP-C-117", "", a.ref, e.ref())
	case !a.isConfirmation():
		s.resolve(a, answered, e.ref(), e.when())
	case !a.allows(r.response):
		s.breach("AAEP-C-113", "", a.ref, e.ref())
	case r.response == accept:
		s.resolve(a, accepted, e.ref(), e.when())
	case r.response == reject:
		s.resolve(a, rejected, e.ref(), e.when())
	}
	if a.stage != pending {
		a.by, a.resolvedAt = r.subscription, e.At
	}
	s.explained = true
}

func (a *ask) allows(decision string) bool {
	if len(a.allowed) == 0 {
		return decision == accept || decision == reject
	}
	return slices.Contains(a.allowed, decision)
}

// accepts tells whether a response is of a kind that the question asks for
// (6.5.5).
func (a *ask) accepts(r answer) bool {
	kinds := a.question.kinds
	if len(kinds) == 0 && len(a.question.choices) == 0 {
		return true
	}
	isText := r.kind == "string"
	chosen := isText && slices.Contains(a.question.choices, r.response)
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

// automatic: that a program answers for the user is allowed only where the user
// wanted it, which is nowhere on the log.
func (s *Session) automatic(e *Event, decidedBy string) {
	if automatic(decidedBy) {
		s.breach("AAEP-C-118", "", e.ref())
	}
}

// UnknownReply is the breach of a reply whose token its publisher does not know
// (AAEP-C-110).
func UnknownReply(e *Event) *catalogue.Breach {
	s := Session{}
	b := s.breach("AAEP-C-110", "nobody asked under this token", e.ref())
	b.Case = "unknown"
	return b
}

// Reply is what is kept of a reply whose question is not known yet.
type Reply struct {
	token, decidedBy string
	clarifies        bool
	answer           answer
}

// Reply gives what to keep of a reply.
func (e *Event) Reply() Reply {
	switch p := e.Payload.(type) {
	case *aaep.ConfirmationReply:
		return Reply{bounded(p.ReplyToken), bounded(p.DecidedBy), false, answer{bounded(p.SubscriptionID), bounded(p.Decision), "", e.Time}}
	case *aaep.ClarificationReply:
		return Reply{bounded(p.ReplyToken), bounded(p.DecidedBy), true, answer{bounded(p.SubscriptionID), bounded(p.Response), p.ResponseKind, e.Time}}
	}
	return Reply{}
}

// Event makes the reply of what was kept, which has its place in the log and the
// broker's time.
func (r Reply) Event(seq uint64, at time.Time) *Event {
	e := &Event{Type: "confirmation.reply", Time: r.answer.time, Seq: seq, At: at}
	e.Payload = &aaep.ConfirmationReply{ReplyToken: r.token, SubscriptionID: r.answer.subscription, Decision: r.answer.response, DecidedBy: r.decidedBy}
	if r.clarifies {
		e.Type = "clarification.reply"
		e.Payload = &aaep.ClarificationReply{ReplyToken: r.token, SubscriptionID: r.answer.subscription, Response: r.answer.response,
			ResponseKind: r.answer.kind, DecidedBy: r.decidedBy}
	}
	return e
}

// Follows tells whether a reply was sent when its question had been asked, by what
// both say of the time.
func Follows(reply, question *Event) bool {
	return !reply.Time.IsZero() && !question.Time.IsZero() && !reply.Time.Add(clockSkew).Before(question.Time)
}
