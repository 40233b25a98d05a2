package aaep

import (
	"slices"
	"strconv"
	"testing"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aaep"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// heard collects the checks of findings.
type heard struct {
	fact.Reporter
	checks []string
}

func (h *heard) ReportEventFindings(*fact.Fact) {}

func (h *heard) ReportSessionFinding(_ *fact.Fact, _ fact.Origin, found *catalogue.Finding) string {
	h.checks = append(h.checks, found.Check)
	return found.Check
}

func (h *heard) ReportSessionFindings(_ *fact.Fact, _ fact.Origin, found []*catalogue.Finding) {
	for _, f := range found {
		h.checks = append(h.checks, f.Check)
	}
}

// oneSession is the only session that is followed.
type oneSession struct{ *Session }

func (s oneSession) Touch(fact.SourceSession) (*Session, fact.Origin) {
	return s.Session, fact.Origin{}
}

// TestQuestionOutlivesAFlood: a user's yes permits the invocation, although another tenant asked
// as many questions as a table holds in between.
func TestQuestionOutlivesAFlood(t *testing.T) {
	s, found := &Session{}, &heard{}
	rp := NewReplies(NewNegotiationTable())
	rp.Configure(found, oneSession{s}, false)
	s.Apply(event(t, 0, "session.started", ""))
	s.Apply(event(t, 1, "state.changed", `,"from_state":"idle","to_state":"awaiting_input"`))
	question := event(t, 2, "awaiting.confirmation", `,"action":"pay","reply_token":"rpl_1","timeout_seconds":300,"irreversible":true`)
	s.Apply(question)
	rp.RecordReplyToken(s, fact.Origin{}, &fact.Fact{Origin: fact.OriginOf("globex", "rt1", "s1"), EventID: question.ID, Event: question})
	for i := range maxReplyTokens {
		asked := &Event{ID: strconv.Itoa(i), Payload: &aaep.AwaitingConfirmation{ReplyToken: "rpl_of_acme_" + strconv.Itoa(i)}}
		rp.RecordReplyToken(&Session{}, fact.Origin{}, &fact.Fact{Origin: fact.OriginOf("acme", "rt1", "s1"), EventID: asked.ID, Event: asked})
	}
	yes, err := aaep.Decode([]byte(`{"type":"confirmation.reply","reply_token":"rpl_1","decision":"accept","timestamp":"2026-11-20T12:00:01.000Z"}`), strictjson.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	rp.RouteQuestionReply(&fact.Fact{Kind: fact.KindQuestionReply, Origin: fact.OriginOf("globex", "rt1", ""), Seq: 3, At: question.At, Event: NewEvent(yes)})
	s.Apply(event(t, 4, "state.changed", `,"from_state":"awaiting_input","to_state":"calling_tool"`))
	found.ReportSessionFindings(nil, fact.Origin{}, s.Apply(event(t, 5, "tool.invoked", `,"tool":"pay","tool_call_id":"call_1","irreversible":true`)))
	if len(found.checks) != 0 {
		t.Errorf("findings %v", found.checks)
	}
}

// TestSharedTokenOfAStranger: an answer of a publisher that may not answer is that first, although two publishers asked under its token.
func TestSharedTokenOfAStranger(t *testing.T) {
	for replier, want := range map[string]string{"front1": "AAEP-C-110", "rt3": "AAEP-C-112"} {
		found := &heard{}
		rp := NewReplies(NewNegotiationTable())
		rp.Configure(found, oneSession{&Session{}}, false)
		rp.ReplaceFrontEnds([]events.PublisherDocument{{Tenant: "acme", Declares: &events.PublisherDeclares{Publisher: "front1", Answers: true}}})
		question := event(t, 1, "awaiting.confirmation", `,"action":"pay","reply_token":"rpl_1","timeout_seconds":300`)
		for _, source := range []string{"rt1", "rt2"} {
			rp.RecordReplyToken(&Session{}, fact.Origin{}, &fact.Fact{Origin: fact.OriginOf("acme", source, "s1"), EventID: question.ID, At: question.At, Event: question})
		}
		yes, err := aaep.Decode([]byte(`{"type":"confirmation.reply","reply_token":"rpl_1","decision":"accept","timestamp":"2026-11-20T12:00:01.000Z"}`), strictjson.DefaultLimits)
		if err != nil {
			t.Fatal(err)
		}
		rp.RouteQuestionReply(&fact.Fact{Kind: fact.KindQuestionReply, Origin: fact.OriginOf("acme", replier, ""), Seq: 3, At: question.At, Event: NewEvent(yes)})
		if !slices.Equal(found.checks, []string{want, want}) {
			t.Errorf("%s: findings %v", replier, found.checks)
		}
	}
}
