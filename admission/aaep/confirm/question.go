package confirm

import (
	"crypto/sha256"
	"time"

	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/events/aaep"
)

// stage is where a question stands, time apart.
type stage uint8

const (
	pending stage = iota
	accepted
	declined
	withdrawn // the agent went on, or its session ended
	void      // its token was used before: no answer can be told to be for it
)

// question is one confirmation that was asked for.
type question struct {
	id       string
	session  string
	content  [sha256.Size]byte
	deadline time.Time // the publisher's
	until    time.Time // the broker's
	stage    stage
	answered time.Time // the broker's
	used     bool

	call, tool string // that it is about; "" if it names none

	final, finalSaid bool
	risk             int // 0: it does not say
	acceptsByDefault bool
	accepts, rejects bool // what may be replied
}

// Values of extensions and extra_context by which a question names its call and
// tool.
const (
	prefix      = "countersign"
	fieldCallID = "tool_call_id"
	fieldTool   = "tool"
)

var risks = map[string]int{"low": 1, "medium": 2, "high": 3}

func newQuestion(e *aaep.Event, p *aaep.AwaitingConfirmation, at time.Time) *question {
	wait := time.Duration(min(*p.TimeoutSeconds, int64(MaxWait/time.Second))) * time.Second
	q := &question{
		session: e.SessionID, content: sha256.Sum256(e.Raw), deadline: e.Time.Add(wait), until: at.Add(wait),
		call: named(e, p, fieldCallID), tool: named(e, p, fieldTool), risk: risks[p.RiskLevel],
		final:     p.Irreversible != nil && *p.Irreversible || p.Reversibility == "irreversible",
		finalSaid: p.Irreversible != nil || p.Reversibility != "", acceptsByDefault: p.DefaultDecision == "accept",
	}
	q.accepts, q.rejects = p.AllowedReplies == nil, p.AllowedReplies == nil
	for _, r := range p.AllowedReplies {
		q.accepts, q.rejects = q.accepts || r == "accept", q.rejects || r == "reject"
	}
	return q
}

// named reads what a question says that it is about. What is no text, or too long
// to be anything's name, names something that does not exist.
func named(e *aaep.Event, p *aaep.AwaitingConfirmation, field string) string {
	v, there := e.Extensions[prefix][field]
	if !there {
		v, there = p.ExtraContext[field]
	}
	if s, ok := v.(string); !there || (ok && len(s) <= call.MaxField) {
		return s
	}
	return "\x00"
}

// expires is when the question stops to matter.
func (q *question) expires() time.Time {
	if q.stage == accepted {
		return q.answered.Add(AcceptedFor)
	}
	return q.until.Add(AcceptedFor)
}

func (q *question) standing(now time.Time) call.Standing {
	switch {
	case q.used:
		return call.StandingUsed
	case q.stage == declined:
		return call.StandingDeclined
	case q.stage == withdrawn:
		return call.StandingWithdrawn
	case q.stage == accepted && now.Before(q.answered.Add(AcceptedFor)):
		return call.StandingAccepted
	case q.stage == pending && now.Before(q.until):
		return call.StandingPending
	case q.stage == void:
		return call.StandingNone
	}
	return call.StandingExpired
}

func (q *question) confirmation(i call.Invocation) call.Confirmation {
	c := call.Confirmation{
		Standing: q.standing(i.Now), Explicit: q.call != "" && q.call == i.ToolCallID,
		Understated: q.understates(i), AcceptsByDefault: q.acceptsByDefault,
	}
	if c.Standing == call.StandingAccepted {
		c.ID, c.Until = q.id, q.answered.Add(AcceptedFor)
	}
	return c
}

// understates tells whether the question said less than the invocation is
// (section 10.2, T3). What it does not say at all is no lie.
func (q *question) understates(i call.Invocation) bool {
	otherTool := q.tool != "" && q.tool != i.Tool
	return otherTool || (i.Irreversible && q.finalSaid && !q.final) || (q.risk > 0 && q.risk < risks[i.Risk])
}
