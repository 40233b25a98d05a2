package aaep

import (
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events/aaep"
)

// The decisions of a reply.
const (
	decisionAccept = "accept"
	decisionReject = "reject"
)

// questionStage is the stage of a question (AAEP chapter 6, appendix A.4).
type questionStage uint8

const (
	questionPending questionStage = iota
	questionAccepted
	questionRejected
	questionDefaultedAccept
	questionDefaultedReject
	questionAnswered   // of a clarification
	questionDefaulted  // of a clarification
	questionSuperseded // the agent continued without an answer
	questionClosed     // its session ended
)

// questions holds the questions of a session, at most maxQuestions. What is forgotten for want of room
// permits nothing: otherwise a runtime that asks much could invoke what it likes.
type questions struct {
	list       []*userQuestion
	incomplete bool // the session was forgotten, and they with it
}

func (q *questions) storedItems() int { return len(q.list) }

// userQuestion is one question to the user.
type userQuestion struct {
	token               string
	agent               string // that asks
	event               eventRef
	askedAt, brokerTime time.Time // by the publisher and by the broker
	deadline            time.Time // by the publisher's clock; zero if it has none
	timeout             time.Duration

	clarification                     *clarificationOptions // nil for a confirmation
	actionHash                        uint64                // hash of the action's text
	actionText                        string                // the beginning of the action's text, lower case
	callID                            string                // the call that it names
	tool                              string                // the tool that it names
	irreversible, statesReversibility bool
	risk                              riskLevel
	statesRisk                        bool
	acceptsByDefault                  bool
	allowedReplies                    []string
	replies                           []replyContent
	stage                             questionStage
	resolvedBy                        eventRef  // the reply; zero if it was resolved without one
	resolvedAt                        time.Time // by the broker
	progressShown                     bool
	outcomeNoted                      bool                 // a later event shows that the agent took note of its answer
	noticed                           bool                 // its agent has left awaiting_input for it since it was resolved
	answer                            replyContent         // the reply that counts
	usedBy                            eventRef             // the invocation that used it
	usedByTool                        string               // the tool of that invocation
	earlierInvocation                 *invocation          // the invocation that preceded it
	harmlessInvocation                *invocation          // a later harmless invocation, which may have used it
	refused                           bool                 // admission refused the call that it was accepted for
	actedOnEarly                      bool                 // an invocation used it before it was answered
	acceptedLate                      bool                 // accepted after its deadline
	acceptedSecond                    bool                 // accepted after another answer
	acceptedAfterWithdrawal           bool                 // accepted after it was withdrawn
	atEnd                             []*catalogue.Finding // what the end of the session found to be missing, and may be retracted
}

// Message identifies a message of the log. The zero value means none.
type Message struct {
	ID  string
	Seq uint64
	At  time.Time // broker time
}

// Confirmation returns the question that an invocation used, and the reply that accepted it;
// accepted is zero if the question took its default. explicit says that the question names the
// call. Call it after Apply of the invocation.
func (s *Session) Confirmation(e *Event) (asked, accepted Message, explicit bool) {
	return s.questions.confirmation(e)
}

func (q *questions) confirmation(e *Event) (asked, accepted Message, explicit bool) {
	for _, a := range q.list {
		if a.usedBy == e.eventRef() && a.isConfirmation() {
			return Message{a.event.id, a.event.seq, a.brokerTime}, Message{a.resolvedBy.id, a.resolvedBy.seq, a.resolvedAt}, a.callID != ""
		}
	}
	return Message{}, Message{}, false
}

// clarificationOptions are the permitted answers to a clarification.
type clarificationOptions struct{ kinds, choices []string }

const maxTimeToAnswer = 7 * 86400 // seconds; a question of a longer one has no deadline

const maxList = 32 // kinds, choices or allowed replies of a question

// boundList returns the first maxList elements.
func boundList(list []string) []string {
	var kept []string
	for _, s := range list[:min(len(list), maxList)] {
		kept = append(kept, fact.BoundID(s))
	}
	return kept
}

// replyContent is the content of a reply, to recognise a second delivery. Once it is kept, the response is an answerKey.
type replyContent struct {
	subscription, response, kind string
	time                         time.Time
	modified                     bool // it accepts a changed action
}

func (a *userQuestion) isRisky() bool { return a.irreversible || a.risk == riskHigh }

func (a *userQuestion) isConfirmation() bool { return a.clarification == nil }

func (q *questions) askConfirmation(r *reports, t *tools, e *Event, p *aaep.AwaitingConfirmation) {
	a := newQuestion(e, p.ReplyToken, p.TimeoutSeconds)
	h := fnv.New64a()
	h.Write([]byte(p.Action))
	a.actionHash, a.actionText = h.Sum64(), strings.ToLower(p.Action[:min(len(p.Action), maxText)])
	a.callID, a.tool, a.irreversible, a.risk = fact.BoundID(e.questionCallID), fact.BoundID(e.questionTool), p.IsIrreversible(), riskLevels[p.RiskLevel]
	a.statesReversibility, a.statesRisk = p.Irreversible != nil || p.Reversibility != "", p.RiskLevel != ""
	a.acceptsByDefault, a.allowedReplies = p.DefaultDecision == decisionAccept, boundList(p.AllowedReplies)
	for _, other := range q.list {
		if other.isConfirmation() && other.stage == questionPending && other.callID == a.callID && (a.callID != "" || other.actionHash == a.actionHash) {
			r.add("AAEP-C-108", "", other.event, a.event).Call = a.callID
		}
	}
	t.linkLateQuestion(r, a)
	q.add(a)
}

func (q *questions) askClarification(e *Event, p *aaep.AwaitingClarification) {
	a := newQuestion(e, p.ReplyToken, p.TimeoutSeconds)
	a.clarification = &clarificationOptions{kinds: boundList(p.AcceptedResponseKinds), choices: boundList(p.Choices)}
	q.add(a)
}

func newQuestion(e *Event, token string, seconds *int64) *userQuestion {
	a := &userQuestion{token: fact.BoundID(token), agent: e.agent, event: e.eventRef(), askedAt: e.producerTime(), brokerTime: e.At}
	if seconds != nil && *seconds > 0 && *seconds <= maxTimeToAnswer {
		a.timeout = time.Duration(*seconds) * time.Second
		a.deadline = a.askedAt.Add(a.timeout)
	}
	return a
}

func (q *questions) add(a *userQuestion) {
	if len(q.list) >= maxQuestions {
		drop := q.nextForgotten()
		q.list = slices.Delete(q.list, drop, drop+1)
	}
	q.list = append(q.list, a)
}

// nextForgotten returns the index of the question to forget: the oldest that permits nothing, else
// the oldest one.
func (q *questions) nextForgotten() int {
	return max(slices.IndexFunc(q.list, func(a *userQuestion) bool { return !a.mayPermit() }), 0)
}

// mayPermit reports whether a later invocation may use the question.
func (a *userQuestion) mayPermit() bool {
	open := a.stage == questionPending || a.stage == questionAccepted || a.stage == questionDefaultedAccept
	return open && a.isConfirmation() && a.usedBy == (eventRef{})
}

// expire lets questions take their default after their deadline.
func (q *questions) expire(r *reports, st *states, e *Event) {
	for _, a := range q.list {
		if a.stage != questionPending || !a.isTimeOver(e) {
			continue
		}
		switch {
		case !a.isConfirmation():
			a.stage = questionDefaulted
		case a.acceptsByDefault:
			a.resolve(r, st, questionDefaultedAccept, eventRef{}, a.deadline)
		default:
			a.resolve(r, st, questionDefaultedReject, eventRef{}, a.deadline)
		}
	}
}

// isTimeOver reports whether a question's deadline has passed. Both clocks count: the
// publisher's, and the broker's with a tolerance for messages on their way (A-20, A-26 of the
// digest). A publisher that sets its clock can neither end a wait early nor extend it.
func (a *userQuestion) isTimeOver(e *Event) bool {
	passed, tolerance := e.At.Sub(a.brokerTime), min(replyGrace, a.timeout/2)
	switch {
	case a.deadline.IsZero():
		return false
	case e.FromRecording:
	case passed > a.timeout+replyGrace:
		return true
	case passed < a.timeout-tolerance:
		return false
	case e.Time.IsZero():
		return passed >= a.timeout
	}
	return !e.producerTime().Before(a.deadline)
}

// leaveAwaiting applies a change of state by which an agent leaves awaiting_input. It is the notice of the oldest question
// of that agent that was resolved without one (AAEP 6.7.2), of all of them if no other one waits. If there is none, it withdraws
// the agent's pending questions (AAEP 6.8); one that was asked later waits on. The questions of an agent for which it speaks (see
// states) are its own. The admitter decides by the same: see package confirm.
func (q *questions) leaveAwaiting(st *states, e *Event) {
	own := func(a *userQuestion) bool { return st.areOne(a.agent, e.agent) }
	before := func(a *userQuestion) bool { return own(a) && !e.producerTime().Before(a.askedAt) }
	waits := slices.ContainsFunc(q.list, func(a *userQuestion) bool { return before(a) && a.waits() })
	noticed := false
	for _, a := range q.list {
		if own(a) && a.lacksNotice() && !(noticed && waits) {
			a.noticed, noticed = true, true
		}
	}
	for _, a := range q.list {
		if !noticed && a.stage == questionPending && before(a) {
			a.stage = questionSuperseded
		}
	}
}

// waits reports whether a question waits for its answer. For a clarification, any reply is one.
func (a *userQuestion) waits() bool {
	return a.stage == questionPending && (a.isConfirmation() || len(a.replies) == 0)
}

// lacksNotice reports whether a question was resolved, and its agent has not left awaiting_input for it.
func (a *userQuestion) lacksNotice() bool {
	return a.stage != questionSuperseded && a.stage != questionClosed && !a.noticed && !a.waits()
}

// resolve ends the wait for an answer.
func (a *userQuestion) resolve(r *reports, st *states, to questionStage, by eventRef, when time.Time) {
	a.stage, a.resolvedBy = to, by
	st.noteResolved(a.agent, a.event)
	if !a.isConfirmation() {
		return
	}
	if a.timeout > time.Minute && !a.progressShown && when.Sub(a.askedAt) > a.timeout*3/5 {
		r.add("AAEP-C-122", "", a.event)
	}
	if !st.isAwaiting(a.agent) {
		reportQuiet(r, a.event)
	}
}

// noteProgress records progress, which may be a countdown for the pending questions.
func (q *questions) noteProgress() {
	for _, a := range q.list {
		a.progressShown = a.progressShown || a.stage == questionPending
	}
}

// noteOutcomesSeen records that the agent took note of the answers so far (AAEP 4.5.3, 6.1).
func (q *questions) noteOutcomesSeen(e *Event) {
	if !showsOutcomes(e) {
		return
	}
	for _, a := range q.list {
		a.outcomeNoted = a.outcomeNoted || a.stage != questionPending
	}
}

// showsOutcomes reports whether an event shows that its agent took note of the answers so far.
func showsOutcomes(e *Event) bool {
	switch e.Payload.(type) {
	case *aaep.StateChanged, *aaep.ProgressUpdated, *aaep.OutputStreaming, *aaep.AwaitingConfirmation,
		*aaep.AwaitingClarification, *aaep.HandoffRequested:
		return true
	}
	return false
}

// judgeOvertaken judges an invocation that the session's end has overtaken, as if it had come before the end.
func (q *questions) judgeOvertaken(r *reports, e *Event, i *invocation) {
	q.judgeInvocation(r, e, i)
	for _, a := range q.list {
		if a.usedBy == i.event {
			q.retractAtEnd(r, e, a, "AAEP-C-107", "AAEP-C-121")
		}
		if a.outcomeNoted {
			q.retractAtEnd(r, e, a, "AAEP-C-106", "AAEP-C-121")
		}
	}
}

// retractAtEnd retracts what the end of the session found of one question, nil for all, under some checks. An event
// that came before the question says nothing of it.
func (q *questions) retractAtEnd(r *reports, e *Event, of *userQuestion, checks ...string) {
	for _, a := range q.list {
		if of != nil && of != a || e.producerTime().Before(a.askedAt) {
			continue
		}
		a.atEnd = slices.DeleteFunc(a.atEnd, func(found *catalogue.Finding) bool {
			is := slices.Contains(checks, found.Check)
			if is {
				r.retract(found, overtakenReason, e)
			}
			return is
		})
	}
}

// closeAll closes the questions at the end of the session.
func (q *questions) closeAll(r *reports, e *Event, cancelled bool) {
	for _, a := range q.list {
		a.close(r, e, cancelled)
	}
}

// close closes one question at the end of the session.
func (a *userQuestion) close(r *reports, e *Event, cancelled bool) {
	shown := a.outcomeNoted || a.usedBy != (eventRef{}) || a.harmlessInvocation != nil || a.earlierInvocation != nil
	switch {
	case cancelled:
	case a.stage == questionPending:
		r.add("AAEP-C-124", "", a.event, e.eventRef())
	case a.stage == questionAccepted || a.stage == questionDefaultedAccept:
		a.reportUnusedAcceptance(r, e)
	case (a.stage == questionRejected || a.stage == questionDefaultedReject) && !a.outcomeNoted:
		a.reportAtEnd(r, "AAEP-C-106", e)
	}
	if !cancelled && a.resolvedBy != (eventRef{}) && !shown {
		a.reportAtEnd(r, "AAEP-C-121", e)
	}
	if a.stage == questionPending {
		a.stage = questionClosed
	}
	a.earlierInvocation, a.harmlessInvocation = nil, nil
}

// noteDecided records a verdict on a call for the accepted question that names it, else for the latest one that
// may be about it.
func (q *questions) noteDecided(callID, tool string, allowed bool) {
	var meant *userQuestion
	for _, a := range q.list {
		switch {
		case !a.isConfirmation() || a.stage != questionAccepted && a.stage != questionDefaultedAccept || a.usedBy != (eventRef{}):
		case a.callID != "" && a.callID == callID:
			a.refused = !allowed
			return
		case a.callID == "" && (a.tool == "" || a.tool == tool):
			meant = a
		}
	}
	if meant != nil {
		meant.refused = !allowed
	}
}

// reportUnusedAcceptance reports an accepted question that no invocation used. An invocation is owed neither
// for a call that admission refused nor for a changed action, which a producer may take for a rejection (AAEP 6.3.2).
func (a *userQuestion) reportUnusedAcceptance(r *reports, e *Event) {
	switch {
	case a.usedBy != (eventRef{}) || a.earlierInvocation != nil || a.actedOnEarly:
	case a.harmlessInvocation != nil:
		a.reportUnderstated(r, a.harmlessInvocation, "it is invoked as harmless")
	case a.refused || a.answer.modified:
	default:
		a.reportAtEnd(r, "AAEP-C-107", e)
	}
}

// reportAtEnd reports what the end of the session finds to be missing. An event that the end has overtaken may retract it.
func (a *userQuestion) reportAtEnd(r *reports, check string, e *Event) {
	a.atEnd = append(a.atEnd, r.add(check, "", a.event, a.resolvedBy, e.eventRef()))
}

func (a *userQuestion) reportUnderstated(r *reports, i *invocation, what string) *catalogue.Finding {
	found := r.add("AAEP-C-119", what, a.event, i.event)
	found.Call = i.id
	return found
}
