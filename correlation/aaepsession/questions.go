package aaepsession

import (
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/events/aaep"
)

// Decisions.
const (
	accept = "accept"
	reject = "reject"
)

// stage is where a question stands (AAEP chapter 6, appendix A.4).
type stage uint8

const (
	pending stage = iota
	accepted
	rejected
	defaultedAccept
	defaultedReject
	answered   // a clarification
	defaulted  // a clarification
	superseded // the agent went on without an answer
	closed     // with its session
)

// ask is one question to the user.
type ask struct {
	token    string
	ref      ref
	when, at time.Time // of the publisher and the broker
	deadline time.Time // publisher's time; zero if there is none
	timeout  time.Duration

	question         *question // nil for a confirmation
	action           uint64    // hash of the action's text
	text             string    // the beginning of the action's text, lower case
	bound            string    // the call that it is about
	tool             string    // the tool that it is about
	final, finalSaid bool
	risk             risk
	riskSaid         bool
	acceptsByDefault bool
	allowed          []string
	answers          []answer
	stage            stage
	resolved         ref       // the reply; zero if it was resolved otherwise
	resolvedAt       time.Time // the broker's time of the reply
	counted          bool
	followed         bool        // an event since shows that it was taken note of
	by               string      // the subscription whose answer counts
	used             ref         // the invocation that it was for
	usedFor          string      // its tool
	late             *invocation // the invocation that came before it
	plain            *invocation // a harmless invocation since, which may have been for it
	hasty            bool        // it was acted on before it was answered
	lateAccept       bool        // accepted when its time was over
	notFirst         bool        // accepted after another answer
	tooLate          bool        // accepted after it was withdrawn
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
	for _, a := range s.asks {
		if a.used == e.ref() && a.isConfirmation() {
			return Message{a.ref.id, a.ref.seq, a.at}, Message{a.resolved.id, a.resolved.seq, a.resolvedAt}, a.bound != ""
		}
	}
	return Message{}, Message{}, false
}

// question is what may be answered to a clarification.
type question struct{ kinds, choices []string }

const maxList = 32 // of kinds, choices, allowed replies

// some keeps the beginning of a list.
func some(list []string) []string {
	var kept []string
	for _, s := range list[:min(len(list), maxList)] {
		kept = append(kept, bounded(s))
	}
	return kept
}

// answer is a reply, to tell it from another.
type answer struct {
	subscription, response, kind string
	time                         time.Time
}

func (a *ask) grave() bool { return a.final || a.risk == riskHigh }

func (a *ask) isConfirmation() bool { return a.question == nil }

func (s *Session) confirm(e *Event, p *aaep.AwaitingConfirmation) {
	a := s.newAsk(e, p.ReplyToken, p.TimeoutSeconds)
	h := fnv.New64a()
	h.Write([]byte(p.Action))
	a.action, a.text = h.Sum64(), strings.ToLower(p.Action[:min(len(p.Action), maxText)])
	a.bound, a.tool, a.final, a.risk = bounded(e.bound), bounded(e.about), lasting(p), risks[p.RiskLevel]
	a.finalSaid, a.riskSaid = p.Irreversible != nil || p.Reversibility != "", p.RiskLevel != ""
	a.acceptsByDefault, a.allowed = p.DefaultDecision == accept, some(p.AllowedReplies)
	for _, other := range s.asks {
		if other.isConfirmation() && other.stage == pending && other.bound == a.bound && (a.bound != "" || other.action == a.action) {
			s.breach("AAEP-C-108", "", other.ref, a.ref).Call = a.bound
		}
	}
	s.afterwards(a)
	s.addAsk(a)
}

func (s *Session) clarify(e *Event, p *aaep.AwaitingClarification) {
	a := s.newAsk(e, p.ReplyToken, p.TimeoutSeconds)
	a.question = &question{kinds: some(p.AcceptedResponseKinds)}
	for _, c := range p.Choices[:min(len(p.Choices), maxList)] {
		a.question.choices = append(a.question.choices, bounded(c.Value))
	}
	s.addAsk(a)
}

func (s *Session) newAsk(e *Event, token string, seconds *int64) *ask {
	s.explained = true
	a := &ask{token: bounded(token), ref: e.ref(), when: e.when(), at: e.At}
	if seconds != nil && *seconds > 0 && *seconds <= 7*86400 {
		a.timeout = time.Duration(*seconds) * time.Second
		a.deadline = a.when.Add(a.timeout)
	}
	return a
}

func (s *Session) addAsk(a *ask) {
	if len(s.asks) >= maxAsks {
		drop := max(slices.IndexFunc(s.asks, func(a *ask) bool { return a.stage != pending }), 0)
		s.asks = slices.Delete(s.asks, drop, drop+1)
	}
	s.asks = append(s.asks, a)
}

// elapse lets the questions whose time is over take their default.
func (s *Session) elapse(e *Event) {
	for _, a := range s.asks {
		if a.stage != pending || !a.over(e) {
			continue
		}
		switch {
		case !a.isConfirmation():
			a.stage = defaulted
		case a.acceptsByDefault:
			s.resolve(a, defaultedAccept, ref{}, a.deadline)
		default:
			s.resolve(a, defaultedReject, ref{}, a.deadline)
		}
	}
}

// over tells whether a question's time is over, by the clock of whoever says
// something now and by the broker's (A-20, A-26 of the digest): the broker's decides,
// but for the time that messages may be under way. A clock that can be set at will
// neither ends a wait early nor draws it out.
func (a *ask) over(e *Event) bool {
	passed, tolerance := e.At.Sub(a.at), min(grace, a.timeout/2)
	switch {
	case a.deadline.IsZero():
		return false
	case e.Recorded:
	case passed > a.timeout+grace:
		return true
	case passed < a.timeout-tolerance:
		return false
	case e.Time.IsZero():
		return passed >= a.timeout
	}
	return !e.when().Before(a.deadline)
}

// supersede: the agent left the state of waiting without an answer (6.8).
func (s *Session) supersede() {
	for _, a := range s.asks {
		if a.stage == pending {
			a.stage = superseded
		}
	}
}

func (s *Session) resolve(a *ask, to stage, by ref, when time.Time) {
	a.stage, a.resolved = to, by
	if s.state == stateAwaiting {
		s.unleft, s.wentOn = a.ref, false
	}
	if !a.isConfirmation() {
		return
	}
	if a.timeout > time.Minute && !a.counted && when.Sub(a.when) > a.timeout*3/5 {
		s.breach("AAEP-C-122", "", a.ref)
	}
	if s.state != stateAwaiting {
		s.quietState(a.ref)
	}
}

// progressed: a countdown, as far as can be told.
func (s *Session) progressed() {
	for _, a := range s.asks {
		a.counted = a.counted || a.stage == pending
	}
}

// follow notes what shows that an answer was taken note of (4.5.3, 6.1).
func (s *Session) follow(e *Event) {
	switch e.Payload.(type) {
	case *aaep.StateChanged, *aaep.ProgressUpdated, *aaep.OutputStreaming, *aaep.AwaitingConfirmation,
		*aaep.AwaitingClarification, *aaep.HandoffRequested:
		for _, a := range s.asks {
			a.followed = a.followed || a.stage != pending
		}
	}
}

// closeAsk takes a question when its session ends.
func (s *Session) closeAsk(e *Event, a *ask, cancelled bool) {
	shown := a.followed || a.used != (ref{}) || a.plain != nil || a.late != nil
	switch {
	case cancelled:
	case a.stage == pending:
		s.breach("AAEP-C-124", "", a.ref, e.ref())
	case a.stage == accepted || a.stage == defaultedAccept:
		s.unused(e, a)
	case (a.stage == rejected || a.stage == defaultedReject) && !a.followed:
		s.breach("AAEP-C-106", "", a.ref, a.resolved, e.ref())
	}
	if !cancelled && a.resolved != (ref{}) && !shown {
		s.breach("AAEP-C-121", "", a.ref, a.resolved, e.ref())
	}
	if a.stage == pending {
		a.stage = closed
	}
	a.late, a.plain = nil, nil
}

// unused: the user said yes, and what was that for?
func (s *Session) unused(e *Event, a *ask) {
	switch {
	case a.used != (ref{}) || a.late != nil || a.hasty:
	case a.plain != nil:
		s.lesser(a, a.plain, "it is invoked as harmless")
	default:
		s.breach("AAEP-C-107", "", a.ref, a.resolved, e.ref())
	}
}

func (s *Session) lesser(a *ask, i *invocation, what string) *catalogue.Breach {
	b := s.breach("AAEP-C-119", what, a.ref, i.ref)
	b.Call = i.id
	return b
}
