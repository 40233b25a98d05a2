package aaep

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	wire "github.com/countersign-dev/countersign/events/aaep"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/schemas"
	aaepschema "github.com/countersign-dev/countersign/schemas/aaep"
)

// Subscription is an accepted subscription. It belongs to one goroutine at a time.
type Subscription struct {
	ID      string
	terms   Terms
	asked   map[string]json.RawMessage
	honored Capabilities
	closed  bool

	tokens float64
	filled time.Time
}

// Accepted is the message that tells the subscriber the terms in force.
func (s *Subscription) Accepted() *Acceptance {
	return &Acceptance{
		Type: TypeAccepted, Subscription: s.ID, Version: Version, Producer: map[string]string{"agent_id": s.terms.AgentID},
		Honored: s.honored, ManifestURI: s.terms.ManifestURI, SignedManifest: s.terms.SignedManifest, Notes: notes,
	}
}

// Outcome is what a message to an open subscription leads to. Which check a reply failed is not told (6.3.4).
type Outcome struct {
	Answer    any    // to the subscriber: *Acceptance or *Rejection
	Reply     []byte // for the log, under the subscriber's identity
	Ignored   string // why the message is ignored, for the operator alone
	Closed    bool   // the subscriber ended the subscription
	Violation bool   // the message has no place here
}

// Handle takes a message of the subscriber on this subscription.
func (s *Subscription) Handle(m Message) Outcome {
	switch {
	case m.Type == TypeRequest:
		return Outcome{Violation: true}
	case s.closed, m.Subscription != s.ID:
		return Outcome{Ignored: "its sender does not have the subscription"}
	case m.flaw != nil:
		return Outcome{Ignored: "it does not follow AAEP's schema"}
	case m.Type == TypeClose:
		s.closed = true
		return Outcome{Closed: true}
	case m.Type == TypeRenegotiate:
		return Outcome{Answer: s.renegotiate(m)}
	case m.Type == wire.TypeConfirmationReply && s.honored.ConfirmationReply, m.Type == wire.TypeClarificationReply && s.honored.ClarificationReply:
		return Outcome{Reply: m.Raw}
	}
	return Outcome{Ignored: "the subscription has not asked to reply to such questions"}
}

// renegotiate merges the changed capabilities field by field (5.7). Terms that cannot be agreed on
// leave those in force.
func (s *Subscription) renegotiate(m Message) any {
	before, held := s.asked, s.honored
	s.asked = maps.Clone(before)
	if s.asked == nil {
		s.asked = map[string]json.RawMessage{}
	}
	maps.Copy(s.asked, m.capabilities)
	if r := s.agree(nil); r != nil {
		s.asked, s.honored = before, held
		return r
	}
	s.filled = time.Time{}
	return s.Accepted()
}

// Event is an event of a producer as far as its delivery depends on it.
type Event struct {
	ID       string
	Session  string
	Type     string // as in the event's subject
	Critical bool
	Raw      []byte

	filterType string
	language   string // of an output, if the producer says it
}

// critical are the types that no filter and no rate holds back (5.5.4).
var critical = []string{wire.TypeSessionErrored, wire.TypeAwaitingConfirmation, wire.TypeAwaitingClarification, wire.TypeHandoffRequested}

// ReadEvent reads an event. ok is false for everything that is not a valid AAEP event: replies,
// messages of subscriptions, documents of other protocols, and events that break AAEP's schema.
func ReadEvent(raw []byte) (e Event, ok bool) {
	read, err := wire.Decode(raw, strictjson.DefaultLimits)
	if err != nil || read.IsReply() || read.EventID == "" || read.SessionID == "" {
		return Event{}, false
	}
	for _, v := range aaepschema.Strict(read.Doc) {
		if v.Level != schemas.LevelWarning {
			return Event{}, false
		}
	}
	return Event{read.EventID, read.SessionID, read.SubjectType(), read.Urgency == "critical" || slices.Contains(critical, read.Type), raw, read.Type, outputLanguage(read)}, true
}

// outputLanguage is the language in which an output is said; "" for other events, and where it is not told. The other
// events say what the agent does, in summaries and in members: a subscriber needs them in whatever language.
func outputLanguage(e *wire.Event) string {
	out, isOutput := e.Payload.(*wire.OutputStreaming)
	if !isOutput {
		return ""
	}
	return cmp.Or(out.Language, e.Language)
}

// Delivers reports whether an event goes to the subscription now. A critical event always does. Any
// other passes the filters (exclude wins, 5.3.1.7), the languages, and the rate, a token bucket that is refilled
// smoothly; what exceeds the rate is left out.
func (s *Subscription) Delivers(e Event, now time.Time) bool {
	switch {
	case s.closed:
		return false
	case e.Critical:
		return true
	}
	return s.chooses(e.filterType) && s.reads(e.language) && s.takeToken(now)
}

// reads reports whether an output in a language is for the subscription: one of its honoured languages is the same,
// whatever the region. Without honoured languages every output is.
func (s *Subscription) reads(language string) bool {
	list := s.honored.Languages
	return language == "" || len(list) == 0 || slices.ContainsFunc(list, func(l string) bool { return strings.EqualFold(primary(l), primary(language)) })
}

// primary is the first part of a language tag.
func primary(tag string) string {
	first, _, _ := strings.Cut(tag, "-")
	return first
}

func (s *Subscription) chooses(typ string) bool {
	include, exclude := []string{"aaep:agent.*"}, []string(nil)
	if f := s.honored.Filters; f != nil {
		exclude = f.Exclude
		if len(f.Include) > 0 {
			include = f.Include
		}
	}
	return matches(include, typ) && !matches(exclude, typ)
}

func matches(patterns []string, typ string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		start, open := strings.CutSuffix(wire.NormaliseType(p), "*")
		return start == typ || open && strings.HasPrefix(typ, start)
	})
}

// burst is the part of a second that counts for a burst: its events may come at once.
const burst = 0.2

func (s *Subscription) takeToken(now time.Time) bool {
	rate := float64(s.honored.MaxEventsPerSecond)
	if rate == 0 {
		return true
	}
	most := max(1, burst*rate)
	if s.filled.IsZero() {
		s.tokens = most
	} else if passed := now.Sub(s.filled).Seconds(); passed > 0 {
		s.tokens = min(most, s.tokens+passed*rate)
	}
	s.filled = now
	if s.tokens < 1 {
		return false
	}
	s.tokens--
	return true
}
