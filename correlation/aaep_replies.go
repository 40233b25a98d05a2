package correlation

import (
	"slices"
	"time"

	"github.com/countersign-dev/countersign/correlation/fact"

	aaepsession "github.com/countersign-dev/countersign/correlation/aaep"
	"github.com/countersign-dev/countersign/correlation/internal/tables"
	"github.com/countersign-dev/countersign/events"
)

type (
	tokenKey struct {
		tenant, source string
		token          fact.Sum
	}
	tenantToken struct {
		tenant string
		token  fact.Sum
	}
	tokenUse struct {
		session protocolSessionKey
		event   string
		seq     uint64
	}
)

// replies are the reply tokens of questions, the answers that came before their question,
// and the publisher that answers on each subscription. Each list is bounded; the oldest
// entries are forgotten.
type replies struct {
	opts         *engineOptions `snapshot:"-"` // given anew
	findings     *findings
	trackers     *trackers
	negotiations *negotiations

	replyTokens        *tables.FIFO[tokenKey, tokenUse]    // by publisher
	tokenOwners        *tables.FIFO[tenantToken, tokenKey] // the publisher that used a token last
	earlyReplies       *tables.FIFO[tenantToken, []earlyReply]
	subscriptionOwners *tables.FIFO[tenantToken, string] // the publisher that replied on each
}

func newReplies(ts *trackers, ng *negotiations) *replies {
	return &replies{
		findings: ts.findings, trackers: ts, negotiations: ng,
		replyTokens: tables.NewFIFO[tokenKey, tokenUse](maxTokens), tokenOwners: tables.NewFIFO[tenantToken, tokenKey](maxTokens),
		earlyReplies:       tables.NewFIFO[tenantToken, []earlyReply](maxEarlyTokens),
		subscriptionOwners: tables.NewFIFO[tenantToken, string](maxTokens),
	}
}

// recordReplyToken records the session of a question's reply token (AAEP-C-053).
func (rp *replies) recordReplyToken(w *protocolSession, f *fact.Fact) {
	token := aaepEvent(f).Token()
	if token == "" {
		return
	}
	key := tokenKey{f.Key.Tenant, f.Key.Source, fact.SumOf(token)}
	if use, known := rp.replyTokens.Get(key); known && use.event != f.EventID {
		b := fact.SingleEventFinding("AAEP-C-053", "", f)
		b.Events, b.Seqs = append([]string{use.event}, b.Events...), append([]uint64{use.seq}, b.Seqs...)
		rp.findings.ReportSessionFinding(f, *w.origin, b)
	}
	rp.replyTokens.Put(key, tokenUse{w.ID(), f.EventID, f.Seq})
	rp.tokenOwners.Put(tenantToken{key.tenant, key.token}, key)
	rp.applyEarlyReplies(w, f, tenantToken{key.tenant, key.token})
}

// routeQuestionReply takes a reply. It has no session: it belongs to the question of its
// publisher that has its token or, where subscribers publish their replies
// themselves, of the publisher in the same tenant that used the token last.
func (rp *replies) routeQuestionReply(f *fact.Fact) {
	rp.findings.reportEventFindings(nil, f)
	aaepEvent(f).Seq, aaepEvent(f).At, aaepEvent(f).FromRecording = f.Seq, f.At, rp.opts.fromRecording
	token := fact.SumOf(aaepEvent(f).Token())
	use, known := rp.replyTokens.Get(tokenKey{f.Key.Tenant, f.Key.Source, token})
	if !known {
		if key, other := rp.tokenOwners.Get(tenantToken{f.Key.Tenant, token}); other {
			use, known = rp.replyTokens.Get(key)
		}
	}
	if !known {
		id := rp.findings.ReportSessionFinding(f, f.Origin, aaepsession.UnknownReplyFinding(aaepEvent(f)))
		rp.bufferEarlyReply(f, tenantToken{f.Key.Tenant, token}, id)
		return
	}
	if w := rp.trackers.touch(use.session); w != nil {
		rp.applyQuestionReply(w, f)
	}
}

func (rp *replies) applyQuestionReply(w *protocolSession, f *fact.Fact) {
	rp.checkSubscriptionOwner(f, *w.origin)
	rp.negotiations.checkReplySubscription(f, *w.origin)
	rp.findings.ReportSessionFindings(f, *w.origin, w.aaep.Apply(aaepEvent(f)))
}

// earlyReply is a reply whose question is not on the log yet: the two publishers have
// connections of their own, and one message may overtake the other.
type earlyReply struct {
	finding string // that there is no question
	origin  fact.Origin
	seq     uint64
	at      time.Time // the broker's
	content fact.Sum
	reply   aaepsession.KeptReply
}

func (rp *replies) bufferEarlyReply(f *fact.Fact, k tenantToken, finding string) {
	before, _ := rp.earlyReplies.Get(k)
	if len(before) < maxEarlyReplies {
		rp.earlyReplies.Put(k, append(slices.Clip(before), earlyReply{finding, f.Origin, f.Seq, f.At, f.ContentSum, aaepEvent(f).KeepReply()}))
	}
}

// applyEarlyReplies applies the replies that overtook their question, if their sender says
// that they came after it, and retracts the finding that there was no question.
func (rp *replies) applyEarlyReplies(w *protocolSession, asked *fact.Fact, k tenantToken) {
	replies, _ := rp.earlyReplies.Get(k)
	if len(replies) == 0 {
		return
	}
	rp.earlyReplies.Put(k, nil)
	for _, r := range replies {
		e := r.reply.Event(r.seq, r.at)
		if !aaepsession.ReplyFollows(e, aaepEvent(asked)) {
			continue
		}
		f := &fact.Fact{Kind: fact.KindQuestionReply, Origin: r.origin, Protocol: protoAAEP, Seq: r.seq, At: r.at, ContentSum: r.content, Event: e}
		rp.findings.reportCheck("AAEP-C-110", nil, f, findingFrom(asked.EventID).withContent(r.content).withCase(caseWithdrawn).withSeverity(events.SeverityInfo).
			retracting(r.finding).withText("its question came later"))
		rp.applyQuestionReply(w, f)
	}
}

// checkSubscriptionOwner: one subscription answers for one subscriber. Where two publishers
// reply in its name, one of them may not (AAEP-C-112).
func (rp *replies) checkSubscriptionOwner(f *fact.Fact, asked fact.Origin) {
	id := aaepEvent(f).Subscription()
	if id == "" || rp.opts.fromRecording {
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

func (k tokenKey) Hash() uint32 {
	return fact.MixHash(fact.MixHash64(fact.TextHash(k.tenant), fact.TextHash(k.source)), uint64(k.token.Hash()))
}
