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

// Decisions.
const (
	decisionAccept = "accept"
	decisionReject = "reject"
)

// questionStage is where a question stands (AAEP chapter 6, appendix A.4).
type questionStage uint8

const (
	questionPending questionStage = iota
	questionAccepted
	questionRejected
	questionDefaultedAccept
	questionDefaultedReject
	questionAnswered   // a clarification
	questionDefaulted  // a clarification
	questionSuperseded // the agent went on without an answer
	questionClosed     // with its session
)

// questions is what the user was asked in the session: at most maxQuestions.
type questions struct {
	list []*userQuestion
}

func (q *questions) storedItems() int { return len(q.list) }

// userQuestion is one question to the user.
type userQuestion struct {
	token               string
	event               eventRef
	askedAt, brokerTime time.Time // of the publisher and the broker
	deadline            time.Time // publisher's time; zero if there is none
	timeout             time.Duration

	clarification                     *clarificationOptions // nil for a confirmation
	actionHash                        uint64                // hash of the action's text
	actionText                        string                // the beginning of the action's text, lower case
	callID                            string                // the call that it is about
	tool                              string                // the tool that it is about
	irreversible, statesReversibility bool
	risk                              riskLevel
	statesRisk                        bool
	acceptsByDefault                  bool
	allowedReplies                    []string
	replies                           []replyContent
	stage                             questionStage
	resolvedBy                        eventRef  // the reply; zero if it was resolved otherwise
	resolvedAt                        time.Time // the broker's time of the reply
	progressShown                     bool
	outcomeNoted                      bool        // an event since shows that it was taken note of
	subscription                      string      // the subscription from which an answer counts
	usedBy                            eventRef    // the invocation that it was for
	usedByTool                        string      // its tool
	earlierInvocation                 *invocation // the invocation that came before it
	harmlessInvocation                *invocation // a harmless invocation since, which may have been for it
	actedOnEarly                      bool        // it was acted on before it was answered
	acceptedLate                      bool        // accepted when its time was over
	acceptedSecond                    bool        // accepted after another answer
	acceptedAfterWithdrawal           bool        // accepted after it was withdrawn
}

// Message is a message of the log. The zero value is none.
type Message struct {
	ID  string
	Seq uint64
	At  time.Time // the broker's
}

// Confirmation gives the question that an invocation used, and the reply that
// accepted it; there is none where the question took its default. explicit tells
// that the question names the call. It is to be asked after the invocation was
// applied.
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

// clarificationOptions is what may be answered to a clarification.
type clarificationOptions struct{ kinds, choices []string }

const maxList = 32 // of kinds, choices, allowed replies

// boundList keeps the beginning of a list.
func boundList(list []string) []string {
	var kept []string
	for _, s := range list[:min(len(list), maxList)] {
		kept = append(kept, fact.BoundID(s))
	}
	return kept
}

// replyContent is a reply, to tell it from another.
type replyContent struct {
	subscription, response, kind string
	time                         time.Time
}

func (a *userQuestion) isRisky() bool { return a.irreversible || a.risk == riskHigh }

func (a *userQuestion) isConfirmation() bool { return a.clarification == nil }

func (q *questions) askConfirmation(r *reports, t *tools, e *Event, p *aaep.AwaitingConfirmation) {
	a := newQuestion(e, p.ReplyToken, p.TimeoutSeconds)
	h := fnv.New64a()
	h.Write([]byte(p.Action))
	a.actionHash, a.actionText = h.Sum64(), strings.ToLower(p.Action[:min(len(p.Action), maxText)])
	a.callID, a.tool, a.irreversible, a.risk = fact.BoundID(e.questionCallID), fact.BoundID(e.questionTool), isIrreversible(p), riskLevels[p.RiskLevel]
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
	a.clarification = &clarificationOptions{kinds: boundList(p.AcceptedResponseKinds)}
	for _, c := range p.Choices[:min(len(p.Choices), maxList)] {
		a.clarification.choices = append(a.clarification.choices, fact.BoundID(c.Value))
	}
	q.add(a)
}

func newQuestion(e *Event, token string, seconds *int64) *userQuestion {
	a := &userQuestion{token: fact.BoundID(token), event: e.eventRef(), askedAt: e.producerTime(), brokerTime: e.At}
	if seconds != nil && *seconds > 0 && *seconds <= 7*86400 {
		a.timeout = time.Duration(*seconds) * time.Second
		a.deadline = a.askedAt.Add(a.timeout)
	}
	return a
}

func (q *questions) add(a *userQuestion) {
	if len(q.list) >= maxQuestions {
		drop := max(slices.IndexFunc(q.list, func(a *userQuestion) bool { return a.stage != questionPending }), 0)
		q.list = slices.Delete(q.list, drop, drop+1)
	}
	q.list = append(q.list, a)
}

// expire lets the questions that are out of time take their default.
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

// isTimeOver tells whether a question's time is over, by the clock of the publisher that says
// something now and by the broker's (A-20, A-26 of the digest): the broker's decides,
// but for the time that messages may be under way. A clock that can be set at will
// neither ends a wait early nor draws it out.
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

// supersedePending: the agent left the state of waiting without an answer (6.8).
func (q *questions) supersedePending() {
	for _, a := range q.list {
		if a.stage == questionPending {
			a.stage = questionSuperseded
		}
	}
}

// resolve ends the wait for an answer.
func (a *userQuestion) resolve(r *reports, st *states, to questionStage, by eventRef, when time.Time) {
	a.stage, a.resolvedBy = to, by
	st.noteResolved(a.event)
	if !a.isConfirmation() {
		return
	}
	if a.timeout > time.Minute && !a.progressShown && when.Sub(a.askedAt) > a.timeout*3/5 {
		r.add("AAEP-C-122", "", a.event)
	}
	if !st.isAwaiting() {
		st.reportQuiet(r, a.event)
	}
}

// noteProgress: a countdown, as far as can be told.
func (q *questions) noteProgress() {
	for _, a := range q.list {
		a.progressShown = a.progressShown || a.stage == questionPending
	}
}

// noteOutcomesSeen notes what shows that an answer was taken note of (4.5.3, 6.1).
func (q *questions) noteOutcomesSeen(e *Event) {
	switch e.Payload.(type) {
	case *aaep.StateChanged, *aaep.ProgressUpdated, *aaep.OutputStreaming, *aaep.AwaitingConfirmation,
		*aaep.AwaitingClarification, *aaep.HandoffRequested:
		for _, a := range q.list {
			a.outcomeNoted = a.outcomeNoted || a.stage != questionPending
		}
	}
}

// closeAll closes the questions when their session ends.
func (q *questions) closeAll(r *reports, e *Event, cancelled bool) {
	for _, a := range q.list {
		a.close(r, e, cancelled)
	}
}

// close takes a question when its session ends.
func (a *userQuestion) close(r *reports, e *Event, cancelled bool) {
	shown := a.outcomeNoted || a.usedBy != (eventRef{}) || a.harmlessInvocation != nil || a.earlierInvocation != nil
	switch {
	case cancelled:
	case a.stage == questionPending:
		r.add("AAEP-C-124", "", a.event, e.eventRef())
	case a.stage == questionAccepted || a.stage == questionDefaultedAccept:
		a.reportUnusedAcceptance(r, e)
	case (a.stage == questionRejected || a.stage == questionDefaultedReject) && !a.outcomeNoted:
		r.add("AAEP-C-106", "", a.event, a.resolvedBy, e.eventRef())
	}
	if !cancelled && a.resolvedBy != (eventRef{}) && !shown {
		r.add("AAEP-C-121", "", a.event, a.resolvedBy, e.eventRef())
	}
	if a.stage == questionPending {
		a.stage = questionClosed
	}
	a.earlierInvocation, a.harmlessInvocation = nil, nil
}

// reportUnusedAcceptance: the user said yes, and what was that for?
func (a *userQuestion) reportUnusedAcceptance(r *reports, e *Event) {
	switch {
	case a.usedBy != (eventRef{}) || a.earlierInvocation != nil || a.actedOnEarly:
	case a.harmlessInvocation != nil:
		a.reportUnderstated(r, a.harmlessInvocation, "it is invoked as harmless")
	default:
		r.add("AAEP-C-107", "", a.event, a.resolvedBy, e.eventRef())
	}
}

func (a *userQuestion) reportUnderstated(r *reports, i *invocation, what string) *catalogue.Finding {
	b := r.add("AAEP-C-119", what, a.event, i.event)
	b.Call = i.id
	return b
}
