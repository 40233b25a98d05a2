package aaep

import (
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/countersign-dev/countersign/correlation/catalogue"
)

// Negotiations are the subscriptions of one publisher, as far as its messages about them are
// published (AAEP chapter 5). A publisher need not publish them. One that publishes an answer
// is taken to publish all its answers, and its missing answers are findings.
//
// An answer does not name its request. It is compared with a request only if that was the only
// open one. The zero value is ready for use.
type Negotiations struct {
	openRequests     []*subscriptionRequest // without an answer, the oldest first
	hasAnswers       bool                   // an answer was published
	ambiguousOpen    bool                   // one of the open requests was answered, but the log does not say which
	unpairable       bool                   // answers and requests do not match: none is paired any more
	maybeRedelivered bool                   // an open request may have been delivered twice
	recentContents   []uint64               // hashes of the latest requests and answers
	subscriptions    []acceptedSubscription
	overdueFinding   *catalogue.Finding // of the only overdue request
	severalOverdue   bool               // there was more than one
}

// Bounds of one publisher's negotiations.
const (
	maxOpenRequests  = 16  // requests without an answer; beyond it none is paired
	maxSubscriptions = 128 // subscriptions; the oldest are forgotten
	maxRecent        = 32
)

// AnswerTimeout is how long a request may stay without an answer. AAEP sets no time.
const AnswerTimeout = 24 * time.Hour

// subscriptionRequest is a request for a subscription, or for new terms of one.
type subscriptionRequest struct {
	event               eventRef
	requestedAt         time.Time
	content             uint64
	renewedSubscription string // the subscription that is to have other terms; "" of a request
	version             string
	capabilities        capabilities
}

// Negotiate applies the next message about a subscription and returns its findings.
func (n *Negotiations) Negotiate(e *Event) []*catalogue.Finding {
	var out findingList
	h := e.handshake
	again := slices.Contains(n.recentContents, h.content)
	if !again {
		if len(n.recentContents) >= maxRecent {
			n.recentContents = slices.Delete(n.recentContents, 0, 1)
		}
		n.recentContents = append(n.recentContents, h.content)
	}
	switch h.kind {
	case "request", "renegotiate":
		n.addRequest(e, again)
	case "accepted":
		n.handleAcceptance(e, again, &out)
	case "rejected":
		n.handleRejection(e, again, &out)
	case "close":
		n.closeSubscription(e)
	}
	if len(n.openRequests) == 0 {
		n.ambiguousOpen, n.maybeRedelivered = false, false
	}
	return out
}

func (n *Negotiations) addRequest(e *Event, again bool) {
	h := e.handshake
	if again && slices.ContainsFunc(n.openRequests, func(o *subscriptionRequest) bool { return o.content == h.content }) {
		return // a second delivery, or a subscriber that asks again
	}
	if len(n.openRequests) >= maxOpenRequests {
		n.openRequests, n.unpairable = n.openRequests[1:], true
	}
	o := &subscriptionRequest{event: e.eventRef(), requestedAt: e.At, content: h.content, version: h.version, capabilities: h.capabilities}
	if h.kind == "renegotiate" {
		o.renewedSubscription = h.subscription
	}
	n.maybeRedelivered = n.maybeRedelivered || again
	n.openRequests = append(n.openRequests, o)
}

func (n *Negotiations) handleAcceptance(e *Event, again bool, out *findingList) {
	h := e.handshake
	n.hasAnswers = true
	if isUnpublishedVersion(h.version) {
		out.add("AAEP-C-153", "the version that was agreed on was never published", e.eventRef()).Case = "agreed"
	}
	if h.manifestProblem != "" {
		out.add("AAEP-C-165", h.manifestProblem, e.eventRef())
	}
	o := n.takeRenewal(h.subscription)
	if o == nil {
		o = n.pairRequest(again, func(o *subscriptionRequest) bool { return o.renewedSubscription == "" })
	}
	n.addSubscription(h)
	if o == nil {
		return
	}
	if what := h.capabilities.excessOver(o.capabilities); what != "" {
		out.add("AAEP-C-151", what, o.event, e.eventRef())
	}
	if o.capabilities.signedOnly == flagTrue && !h.signed && !h.manifestLinked {
		out.add("AAEP-C-154", "", o.event, e.eventRef())
	}
}

// versionIndependentReasons are rejection reasons that do not depend on the requested version.
var versionIndependentReasons = []string{"version_unsupported", "rate_limit", "authentication_required", "authorization_denied", "transport_unavailable"}

// rejectionReasons are all rejection reasons (AAEP 5.5.3).
var rejectionReasons = append([]string{"manifest_signature_required", "capabilities_incompatible", "unknown"}, versionIndependentReasons...)

func (n *Negotiations) handleRejection(e *Event, again bool, out *findingList) {
	h := e.handshake
	n.hasAnswers = true
	exists := slices.Contains(rejectionReasons, h.reason)
	if h.reason != "" && !exists {
		out.add("AAEP-C-152", "", e.eventRef())
	}
	o := n.pairRequest(again, func(*subscriptionRequest) bool { return true })
	if o != nil && exists && isUnpublishedVersion(o.version) && !slices.Contains(versionIndependentReasons, h.reason) {
		out.add("AAEP-C-153", "a version that was never published was refused for another reason", o.event, e.eventRef()).Case = "refused"
	}
}

// takeRenewal removes and returns the open request for new terms of a subscription.
func (n *Negotiations) takeRenewal(subscription string) *subscriptionRequest {
	i := slices.IndexFunc(n.openRequests, func(o *subscriptionRequest) bool {
		return o.renewedSubscription != "" && o.renewedSubscription == subscription
	})
	if i < 0 {
		return nil
	}
	o := n.openRequests[i]
	n.openRequests = slices.Delete(n.openRequests, i, i+1)
	return o
}

// pairRequest removes the oldest request that an answer fits. It returns the request only if
// no other one fits. An answer that may be a second delivery is paired with none.
func (n *Negotiations) pairRequest(again bool, fits func(*subscriptionRequest) bool) *subscriptionRequest {
	first, count := -1, 0
	for i, o := range n.openRequests {
		if fits(o) {
			if count++; first < 0 {
				first = i
			}
		}
	}
	if count == 0 {
		n.unpairable = n.unpairable || n.overdueFinding == nil && !again
		return nil
	}
	o := n.openRequests[first]
	n.openRequests = slices.Delete(n.openRequests, first, first+1)
	sure := count == 1 && !n.ambiguousOpen && !n.unpairable && !again
	n.ambiguousOpen = n.ambiguousOpen || count > 1
	if !sure {
		return nil
	}
	return o
}

// ReportOverdue returns findings about requests without an answer (AAEP-C-150, and AAEP-C-160
// for new terms), once for each request.
func (n *Negotiations) ReportOverdue(now time.Time) []*catalogue.Finding {
	var out findingList
	for len(n.openRequests) > 0 && now.Sub(n.openRequests[0].requestedAt) >= AnswerTimeout {
		o := n.openRequests[0]
		if n.openRequests = n.openRequests[1:]; !n.hasAnswers || n.unpairable || n.maybeRedelivered {
			continue
		}
		check, what := "AAEP-C-150", ""
		switch {
		case o.renewedSubscription != "" && n.findSubscription(o.renewedSubscription) < 0:
			continue // it is unknown who answers for this subscription
		case o.renewedSubscription != "":
			check = "AAEP-C-160"
		case n.ambiguousOpen:
			what = "it, or one that was open at the same time"
		}
		found := out.add(check, what, o.event)
		found.Case = strconv.FormatUint(o.event.seq, 10)
		n.severalOverdue = n.severalOverdue || n.overdueFinding != nil
		n.overdueFinding = found
	}
	if len(n.openRequests) == 0 {
		n.ambiguousOpen, n.maybeRedelivered = false, false
	}
	return out
}

// HasOpenRequests reports whether a request has no answer.
func (n *Negotiations) HasOpenRequests() bool { return len(n.openRequests) > 0 }

// IsForgettable reports whether the publisher has no state that matters.
func (n *Negotiations) IsForgettable() bool {
	return len(n.openRequests) == 0 && n.overdueFinding == nil && len(n.subscriptions) == 0
}

// RetractOverdue retracts the finding of an overdue request if the event is its answer: no
// other request is open, and no other was overdue.
func (n *Negotiations) RetractOverdue(e *Event) []*catalogue.Finding {
	found := n.overdueFinding
	answers := e.handshake.kind == "accepted" || e.handshake.kind == "rejected"
	if found == nil || len(n.openRequests) > 0 || !answers || slices.Contains(n.recentContents, e.handshake.content) { // an earlier message is no answer to a later request
		return nil
	}
	n.overdueFinding, n.unpairable = nil, true
	if n.severalOverdue {
		return nil
	}
	back := newFinding(found.Check, "the answer has arrived after all", e.eventRef())
	back.Replaces, back.RetractsOnly, back.Case = found, true, found.Case
	return []*catalogue.Finding{back}
}

var (
	wellFormedVersion = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+(-[A-Za-z0-9.-]+)?$`)
	knownVersion      = regexp.MustCompile(`^(1\.[0-9]+\.[0-9]+(-[A-Za-z0-9.-]+)?|0\.1\.0-draft)$`)
)

// isUnpublishedVersion reports whether AAEP published no such version. A later version of the
// same major number may still be published.
func isUnpublishedVersion(version string) bool {
	return wellFormedVersion.MatchString(version) && !knownVersion.MatchString(version)
}
