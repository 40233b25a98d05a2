package aaep

import (
	"slices"
	"time"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/correlation/internal/tables"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aaep"
	"github.com/countersign-dev/countersign/events/subject"
)

type tokenUse struct {
	session fact.SourceSession
	event   string
	seq     uint64
	inUse   time.Time // until then, in broker time, an answer may be for this question
}

// answerLifetime is how long an answer may still be used, as at the admitter, once the time to give it is over.
const answerLifetime = 15 * time.Minute

// Replies holds the reply tokens of questions, the replies that came before their question,
// and the publisher that replies on each subscription.
type Replies struct {
	findings      fact.Reporter     `snapshot:"-"` // not part of a snapshot, as are the next two
	sessions      trackedSessions   `snapshot:"-"`
	fromRecording bool              `snapshot:"-"`
	negotiations  *NegotiationTable `snapshot:"-"` // another part

	replyTokens        *tables.Shared[fact.TokenKey, tokenUse]   // by publisher
	tokenOwners        *tables.Shared[fact.Sum, []fact.TokenKey] // the publishers that used a token; the last one is the last
	earlyReplies       *tables.Shared[fact.Sum, []earlyReply]
	subscriptionOwners *tables.Shared[fact.Sum, string] // the publisher that replies on each subscription
	frontEnds          map[string]map[string]bool       // the publishers registered to answer confirmations, by tenant; both as tokens
}

// trackedSessions are the AAEP sessions that the engine tracks.
type trackedSessions interface {
	// Touch returns a session and its origin, and sets its last activity; nil if it is not
	// followed.
	Touch(key fact.SourceSession) (*Session, fact.Origin)
}

// NewReplies makes the part. Configure MUST be called before its use.
func NewReplies(ng *NegotiationTable) *Replies {
	return &Replies{
		negotiations: ng,
		replyTokens:  tables.NewShared[fact.TokenKey, tokenUse](maxReplyTokens), tokenOwners: tables.NewShared[fact.Sum, []fact.TokenKey](maxReplyTokens),
		earlyReplies:       tables.NewShared[fact.Sum, []earlyReply](maxEarlyTokens),
		subscriptionOwners: tables.NewShared[fact.Sum, string](maxReplyTokens),
	}
}

// Configure sets what is not part of a snapshot.
func (rp *Replies) Configure(r fact.Reporter, sessions trackedSessions, fromRecording bool) {
	rp.findings, rp.sessions, rp.fromRecording = r, sessions, fromRecording
}

// RecordReplyToken records the session of a question's reply token (AAEP-C-053).
func (rp *Replies) RecordReplyToken(w *Session, who fact.Origin, f *fact.Fact) {
	token := EventOf(f).Token()
	if token == "" {
		return
	}
	key := fact.TokenKey{Tenant: f.Key.Tenant, Source: f.Key.Source, Token: fact.SumOf(token)}
	if use, known := rp.replyTokens.Get(key.Tenant, key); known && use.event != f.EventID {
		found := fact.SingleEventFinding("AAEP-C-053", "", f)
		found.Events, found.Seqs = append([]string{use.event}, found.Events...), append([]uint64{use.seq}, found.Seqs...)
		rp.findings.ReportSessionFinding(f, who, found)
	}
	rp.replyTokens.Put(key.Tenant, key, tokenUse{f.Key, f.EventID, f.Seq, f.At.Add(EventOf(f).timeToAnswer() + answerLifetime)})
	owners, _ := rp.tokenOwners.Get(key.Tenant, key.Token)
	owners = append(slices.DeleteFunc(slices.Clone(owners), func(k fact.TokenKey) bool { return k == key }), key)
	rp.tokenOwners.Put(key.Tenant, key.Token, owners[max(0, len(owners)-maxTokenOwners):])
	rp.applyEarlyReplies(w, who, f, key.Token)
}

// RouteQuestionReply passes a reply to its question. A reply names no session: its token finds
// the question, first among those of its publisher. If subscribers publish their replies
// themselves, it is the question of the tenant under the token whose time to answer is not over by answerLifetime. If several
// publishers have one, answered or not, it is for none, as at the admitter: a late answer to the first would count for the other.
func (rp *Replies) RouteQuestionReply(f *fact.Fact) {
	rp.findings.ReportEventFindings(f)
	EventOf(f).Seq, EventOf(f).At, EventOf(f).FromRecording = f.Seq, f.At, rp.fromRecording
	token := fact.SumOf(EventOf(f).Token())
	use, known := rp.replyTokens.Get(f.Key.Tenant, fact.TokenKey{Tenant: f.Key.Tenant, Source: f.Key.Source, Token: token})
	if !known {
		uses := rp.usesOf(f.Key.Tenant, token, f.At)
		if len(uses) > 1 {
			rp.reportSharedToken(f, uses)
			return
		}
		if known = len(uses) == 1; known {
			use = uses[0]
		}
	}
	if !known {
		id := rp.findings.ReportSessionFinding(f, f.Origin, unknownReplyFinding(EventOf(f)))
		rp.bufferEarlyReply(f, token, id)
		return
	}
	if w, who := rp.sessions.Touch(use.session); w != nil {
		rp.applyQuestionReply(w, who, f)
	}
}

// reportSharedToken reports to the session of each question that an answer is for none of them (AAEP-C-110).
func (rp *Replies) reportSharedToken(f *fact.Fact, uses []tokenUse) {
	for _, use := range uses {
		if w, who := rp.sessions.Touch(use.session); w != nil && rp.checkReplier(f, who) {
			rp.findings.ReportSessionFinding(f, who, sharedTokenFinding(EventOf(f), eventRef{use.event, use.seq}))
		}
	}
}

// usesOf are the uses of a token in a tenant that an answer may be for at a time: one of each publisher. If the time of all
// is over, it is the last one.
func (rp *Replies) usesOf(tenant string, token fact.Sum, at time.Time) (list []tokenUse) {
	var last []tokenUse
	owners, _ := rp.tokenOwners.Get(tenant, token)
	for _, key := range owners {
		use, known := rp.replyTokens.Get(tenant, key)
		switch {
		case !known:
		case at.After(use.inUse):
			last = []tokenUse{use}
		default:
			list = append(list, use)
		}
	}
	if len(list) == 0 {
		return last
	}
	return list
}

// ReplaceFrontEnds sets the publishers that answer the confirmations of their tenants.
func (rp *Replies) ReplaceFrontEnds(documents []events.PublisherDocument) {
	rp.frontEnds = nil
	for _, d := range documents {
		if d.Declares == nil || !d.Declares.Answers {
			continue
		}
		tenant := subject.Escape(d.Tenant)
		if rp.frontEnds == nil {
			rp.frontEnds = map[string]map[string]bool{}
		}
		if rp.frontEnds[tenant] == nil {
			rp.frontEnds[tenant] = map[string]bool{}
		}
		rp.frontEnds[tenant][subject.Escape(d.Declares.Publisher)] = true
	}
}

// checkReplier reports whether a reply's publisher is one whose replies count, and that it is none (AAEP-C-112). A registered
// front end of the tenant is one; any, if it has none (the admitter then takes those of the publisher that asked). Clarifications
// permit nothing, so that every publisher may answer them.
func (rp *Replies) checkReplier(f *fact.Fact, asked fact.Origin) bool {
	_, confirms := EventOf(f).Payload.(*aaep.ConfirmationReply)
	registered := rp.frontEnds[f.Key.Tenant]
	counts := !confirms || len(registered) == 0 || registered[f.Key.Source]
	if !counts {
		rp.findings.ReportSessionFinding(f, asked, fact.SingleEventFinding("AAEP-C-112", "its publisher is not registered to answer the tenant's confirmations", f))
	}
	return counts
}

func (rp *Replies) applyQuestionReply(w *Session, who fact.Origin, f *fact.Fact) {
	if !rp.checkReplier(f, who) {
		return
	}
	rp.checkSubscriptionOwner(f, who)
	rp.negotiations.checkReplySubscription(f, who)
	rp.findings.ReportSessionFindings(f, who, w.Apply(EventOf(f)))
}

// earlyReply is a reply whose question is not on the log yet. Two publishers have separate
// connections, so a reply may overtake its question.
type earlyReply struct {
	finding string // the id of the finding that there is no question
	origin  fact.Origin
	seq     uint64
	at      time.Time // broker time
	content fact.Sum
	reply   keptReply
}

func (rp *Replies) bufferEarlyReply(f *fact.Fact, token fact.Sum, finding string) {
	before, _ := rp.earlyReplies.Get(f.Key.Tenant, token)
	if len(before) < maxEarlyReplies {
		rp.earlyReplies.Put(f.Key.Tenant, token, append(slices.Clip(before), earlyReply{finding, f.Origin, f.Seq, f.At, f.ContentSum, EventOf(f).KeepReply()}))
	}
}

// applyEarlyReplies applies the replies that overtook their question, if their sender's time
// is after it, and retracts their findings.
func (rp *Replies) applyEarlyReplies(w *Session, who fact.Origin, asked *fact.Fact, token fact.Sum) {
	replies, _ := rp.earlyReplies.Get(asked.Key.Tenant, token)
	if len(replies) == 0 {
		return
	}
	rp.earlyReplies.Put(asked.Key.Tenant, token, nil)
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

// checkSubscriptionOwner reports a second publisher that replies on a subscription
// (AAEP-C-112). A subscription belongs to one subscriber.
func (rp *Replies) checkSubscriptionOwner(f *fact.Fact, asked fact.Origin) {
	id := EventOf(f).Subscription()
	if id == "" || rp.fromRecording {
		return
	}
	tenant, subscription := f.Key.Tenant, fact.SumOf(id)
	if owner, known := rp.subscriptionOwners.Get(tenant, subscription); known && owner != f.Key.Source {
		rp.findings.ReportSessionFinding(f, asked, fact.SingleEventFinding("AAEP-C-112", "two publishers reply on one subscription", f))
		return
	}
	rp.subscriptionOwners.Put(tenant, subscription, f.Key.Source)
}

// Bounds of the tables.
const (
	maxReplyTokens  = 65_536
	maxTokenOwners  = 4    // publishers that used one token; the first are forgotten
	maxEarlyTokens  = 1024 // tokens of early replies
	maxEarlyReplies = 4    // replies for each of them; up to 4 KB each, usually 200 B
)
