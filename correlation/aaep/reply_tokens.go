package aaep

import (
	"slices"
	"time"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/correlation/internal/tables"
	"github.com/countersign-dev/countersign/events/subject"
)

type (
	tenantToken struct {
		tenant string
		token  fact.Sum
	}
	tokenUse struct {
		session fact.SessionKey
		event   string
		seq     uint64
	}
)

// Replies are the reply tokens of questions, the answers that came before their question,
// and the publisher that answers on each subscription. Each list is bounded; the oldest
// entries are forgotten.
type Replies struct {
	findings      fact.Reporter    `snapshot:"-"` // given anew, as are the next two
	sessions      followedSessions `snapshot:"-"`
	fromRecording bool             `snapshot:"-"`
	negotiations  *Handshakes

	replyTokens        *tables.FIFO[fact.TokenKey, tokenUse]    // by publisher
	tokenOwners        *tables.FIFO[tenantToken, fact.TokenKey] // the publisher that used a token last
	earlyReplies       *tables.FIFO[tenantToken, []earlyReply]
	subscriptionOwners *tables.FIFO[tenantToken, string] // the publisher that replied on each
}

// followedSessions are the sessions that the engine follows.
type followedSessions interface {
	// Touch gives a session, with its origin, and notes that it is active; nil if it is not followed.
	Touch(key fact.SessionKey) (*Session, fact.Origin)
}

// NewReplies makes the part; configure it before use.
func NewReplies(ng *Handshakes) *Replies {
	return &Replies{
		negotiations: ng,
		replyTokens:  tables.NewFIFO[fact.TokenKey, tokenUse](maxReplyTokens), tokenOwners: tables.NewFIFO[tenantToken, fact.TokenKey](maxReplyTokens),
		earlyReplies:       tables.NewFIFO[tenantToken, []earlyReply](maxEarlyTokens),
		subscriptionOwners: tables.NewFIFO[tenantToken, string](maxReplyTokens),
	}
}

// Configure gives the part what is no state.
func (rp *Replies) Configure(r fact.Reporter, sessions followedSessions, fromRecording bool) {
	rp.findings, rp.sessions, rp.fromRecording = r, sessions, fromRecording
}

// RecordReplyToken records the session of a question's reply token (AAEP-C-053).
func (rp *Replies) RecordReplyToken(w *Session, who fact.Origin, f *fact.Fact) {
	token := EventOf(f).Token()
	if token == "" {
		return
	}
	key := fact.TokenKey{Tenant: f.Key.Tenant, Source: f.Key.Source, Token: fact.SumOf(token)}
	if use, known := rp.replyTokens.Get(key); known && use.event != f.EventID {
		b := fact.SingleEventFinding("AAEP-C-053", "", f)
		b.Events, b.Seqs = append([]string{use.event}, b.Events...), append([]uint64{use.seq}, b.Seqs...)
		rp.findings.ReportSessionFinding(f, who, b)
	}
	rp.replyTokens.Put(key, tokenUse{f.Key, f.EventID, f.Seq})
	rp.tokenOwners.Put(tenantToken{key.Tenant, key.Token}, key)
	rp.applyEarlyReplies(w, who, f, tenantToken{key.Tenant, key.Token})
}

// RouteQuestionReply takes a reply. It has no session: it belongs to the question of its
// publisher that has its token or, where subscribers publish their replies
// themselves, of the publisher in the same tenant that used the token last.
func (rp *Replies) RouteQuestionReply(f *fact.Fact) {
	rp.findings.ReportEventFindings(f)
	EventOf(f).Seq, EventOf(f).At, EventOf(f).FromRecording = f.Seq, f.At, rp.fromRecording
	token := fact.SumOf(EventOf(f).Token())
	use, known := rp.replyTokens.Get(fact.TokenKey{Tenant: f.Key.Tenant, Source: f.Key.Source, Token: token})
	if !known {
		if key, other := rp.tokenOwners.Get(tenantToken{f.Key.Tenant, token}); other {
			use, known = rp.replyTokens.Get(key)
		}
	}
	if !known {
		id := rp.findings.ReportSessionFinding(f, f.Origin, unknownReplyFinding(EventOf(f)))
		rp.bufferEarlyReply(f, tenantToken{f.Key.Tenant, token}, id)
		return
	}
	if w, who := rp.sessions.Touch(use.session); w != nil {
		rp.applyQuestionReply(w, who, f)
	}
}

func (rp *Replies) applyQuestionReply(w *Session, who fact.Origin, f *fact.Fact) {
	rp.checkSubscriptionOwner(f, who)
	rp.negotiations.checkReplySubscription(f, who)
	rp.findings.ReportSessionFindings(f, who, w.Apply(EventOf(f)))
}

// earlyReply is a reply to a question that is not on the log yet: the two publishers have
// connections of their own, and one message may overtake the other.
type earlyReply struct {
	finding string // that there is no question
	origin  fact.Origin
	seq     uint64
	at      time.Time // the broker's
	content fact.Sum
	reply   keptReply
}

func (rp *Replies) bufferEarlyReply(f *fact.Fact, k tenantToken, finding string) {
	before, _ := rp.earlyReplies.Get(k)
	if len(before) < maxEarlyReplies {
		rp.earlyReplies.Put(k, append(slices.Clip(before), earlyReply{finding, f.Origin, f.Seq, f.At, f.ContentSum, EventOf(f).KeepReply()}))
	}
}

// applyEarlyReplies applies the replies that overtook their question, if their sender says
// that they came after it, and retracts the finding that there was no question.
func (rp *Replies) applyEarlyReplies(w *Session, who fact.Origin, asked *fact.Fact, k tenantToken) {
	replies, _ := rp.earlyReplies.Get(k)
	if len(replies) == 0 {
		return
	}
	rp.earlyReplies.Put(k, nil)
	for _, r := range replies {
		e := r.reply.Event(r.seq, r.at)
		if !replyFollows(e, EventOf(asked)) {
			continue
		}
		f := &fact.Fact{Kind: fact.KindQuestionReply, Origin: r.origin, Protocol: subject.ProtoAAEP, Seq: r.seq, At: r.at, ContentSum: r.content, Event: e}
		rp.findings.RetractCheck("AAEP-C-110", r.finding, f, asked.EventID, "its question came later")
		rp.applyQuestionReply(w, who, f)
	}
}

// checkSubscriptionOwner: one subscription answers for one subscriber. Where two publishers
// reply in its name, one of them may not (AAEP-C-112).
func (rp *Replies) checkSubscriptionOwner(f *fact.Fact, asked fact.Origin) {
	id := EventOf(f).Subscription()
	if id == "" || rp.fromRecording {
		return
	}
	key := tenantToken{f.Key.Tenant, fact.SumOf(id)}
	if owner, known := rp.subscriptionOwners.Get(key); known && owner != f.Key.Source {
		rp.findings.ReportSessionFinding(f, asked, fact.SingleEventFinding("AAEP-C-112", "two publishers reply on one subscription", f))
		return
	}
	rp.subscriptionOwners.Put(key, f.Key.Source)
}

func (k tenantToken) Hash() uint32 {
	return fact.MixHash(fact.TextHash(k.tenant), uint64(k.token.Hash()))
}

// Bounds of what is remembered.
const (
	maxReplyTokens  = 65_536 // reply tokens; the oldest are forgotten
	maxEarlyTokens  = 1024   // reply tokens under which there was no question; the oldest are forgotten
	maxEarlyReplies = 4      // replies that are kept for each, should its question come; of up to 4 KB, usually 200 B
)
