package confirm

import (
	"crypto/sha256"
	"time"

	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/events/aaep"
)

// stage is the stage of a question, expiry apart.
type stage uint8

const (
	pending stage = iota
	accepted
	declined
	answered  // of a clarification
	withdrawn // the agent continued, or its session ended
	void      // its token was used before, so an answer would be ambiguous
)

// question is one requested confirmation.
type question struct {
	id, token         string
	session           string
	agent             [sha256.Size]byte // see agentOf
	clarifies         bool              // it asks for no acceptance
	content           [sha256.Size]byte
	askedAt           time.Time // by the publisher's clock
	publisherDeadline time.Time // by the publisher's clock
	brokerDeadline    time.Time // by the broker's clock
	stage             stage
	answeredAt        time.Time // by the broker's clock
	answeredBy        string    // publisher; of an acceptance
	used              bool
	noticedBy         string // the event by which its agent left awaiting_input for it since it was resolved

	call, tool string // named by the question; "" if none
	callOfUse  bool   // call is that of the use: the question names none

	irreversible, statesIrreversible bool
	risk                             int // 0: not stated
	acceptsByDefault                 bool
	accepts, rejects                 bool // replies that are allowed
}

// Members of extensions and extra_context in which a question names its call and tool.
const (
	extensionName = "countersign"
	fieldCallID   = "tool_call_id"
	fieldTool     = "tool"
)

var riskLevels = map[string]int{"low": 1, "medium": 2, "high": 3}

// newQuestion returns what an event asks, as a clarification; nil if it says no time to answer.
func newQuestion(e *aaep.Event, token string, seconds *int64, at time.Time) *question {
	if seconds == nil || e.Time.IsZero() {
		return nil
	}
	wait := time.Duration(min(*seconds, int64(MaxWait/time.Second))) * time.Second
	return &question{
		token: token, session: e.SessionID, agent: agentOf(e), clarifies: true, content: sha256.Sum256(e.Raw),
		askedAt: e.Time, publisherDeadline: e.Time.Add(wait), brokerDeadline: at.Add(wait),
	}
}

// agentOf identifies the agent that emits an event. Its name can be of any length.
func agentOf(e *aaep.Event) [sha256.Size]byte { return sha256.Sum256([]byte(e.Producer.AgentID)) }

func newConfirmation(e *aaep.Event, p *aaep.AwaitingConfirmation, at time.Time) *question {
	q := newQuestion(e, p.ReplyToken, p.TimeoutSeconds, at)
	if q == nil {
		return nil
	}
	q.clarifies = false
	q.call, q.tool, q.risk = namedField(e, p, fieldCallID), namedField(e, p, fieldTool), riskLevels[p.RiskLevel]
	q.irreversible, q.acceptsByDefault = p.IsIrreversible(), p.DefaultDecision == "accept"
	q.statesIrreversible = p.Irreversible != nil || p.Reversibility != ""
	q.accepts, q.rejects = p.AllowedReplies == nil, p.AllowedReplies == nil
	for _, r := range p.AllowedReplies {
		q.accepts, q.rejects = q.accepts || r == "accept", q.rejects || r == "reject"
	}
	return q
}

// namedField reads a name from a question. A value that is no text, or too long to be a name,
// becomes a name that does not exist.
func namedField(e *aaep.Event, p *aaep.AwaitingConfirmation, field string) string {
	v, there := e.Extensions[extensionName][field]
	if !there {
		v, there = p.ExtraContext[field]
	}
	if s, ok := v.(string); !there || (ok && len(s) <= call.MaxField) {
		return s
	}
	return "\x00"
}

// waits reports whether the question waits for its answer, by the publisher's clock and the broker's.
func (q *question) waits(at, now time.Time) bool {
	return q.stage == pending && at.Before(q.publisherDeadline) && now.Before(q.brokerDeadline)
}

// lacksNotice reports whether the question was resolved, and its agent has not left awaiting_input for it.
func (q *question) lacksNotice(at, now time.Time) bool {
	return q.stage != withdrawn && q.stage != void && q.noticedBy == "" && !q.waits(at, now)
}

// expiresAt is when the question can be dropped.
func (q *question) expiresAt() time.Time {
	if q.stage == accepted {
		return q.answeredAt.Add(AcceptanceLifetime)
	}
	return q.brokerDeadline.Add(AcceptanceLifetime)
}

func (q *question) statusAt(now time.Time) call.ConfirmationStatus {
	switch {
	case q.used:
		return call.ConfirmationUsed
	case q.stage == declined:
		return call.ConfirmationDeclined
	case q.stage == withdrawn:
		return call.ConfirmationWithdrawn
	case q.stage == accepted && now.Before(q.answeredAt.Add(AcceptanceLifetime)):
		return call.ConfirmationAccepted
	case q.stage == pending && now.Before(q.brokerDeadline):
		return call.ConfirmationPending
	case q.stage == void:
		return call.ConfirmationNone
	}
	return call.ConfirmationExpired
}

func (q *question) toConfirmation(i call.Invocation) call.Confirmation {
	c := call.Confirmation{
		Status: q.statusAt(i.Now), Explicit: q.call != "" && q.call == i.ToolCallID,
		Understated: q.understatesRisk(i), AcceptsByDefault: q.acceptsByDefault,
	}
	if c.Status == call.ConfirmationAccepted {
		c.ID, c.Until = q.id, q.answeredAt.Add(AcceptanceLifetime)
	}
	return c
}

// understatesRisk reports whether the question stated less risk than the invocation has
// (section 10.2, T3). What it does not state does not count.
func (q *question) understatesRisk(i call.Invocation) bool {
	otherTool := q.tool != "" && q.tool != i.Tool
	return otherTool || (i.Irreversible && q.statesIrreversible && !q.irreversible) || (q.risk > 0 && q.risk < riskLevels[i.Risk])
}
