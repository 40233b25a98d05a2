package aaep

import (
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/countersign-dev/countersign/correlation/catalogue"
)

// Negotiations is what the subscriptions of one publisher come to, as far as its
// messages about them are published (AAEP chapter 5). Nothing obliges a publisher
// to publish them; one that publishes answers is taken to publish all of its
// answers, and what it leaves open is judged by that.
//
// An answer does not say which request it answers. It is held against one only if
// that was the only one that was open. The zero value has seen nothing.
type Negotiations struct {
	openRequests     []*subscriptionRequest // what has no answer, the oldest first
	hasAnswers       bool                   // an answer was published
	ambiguousOpen    bool                   // of those that are open, some was answered, and the log does not say which
	unpairable       bool                   // answers and requests do not fit: nothing is paired any more
	maybeRedelivered bool                   // among those that are open, one may have been delivered twice
	recentContents   []uint64               // contents of the latest requests and answers
	subscriptions    []acceptedSubscription
	overdueFinding   *catalogue.Finding // the only one that was found unanswered
	severalOverdue   bool               // more than one was
}

// Bounds of one publisher's negotiations.
const (
	maxOpenRequests  = 16  // requests without an answer; beyond it none is paired
	maxSubscriptions = 128 // subscriptions; the oldest are forgotten
	maxRecent        = 32
)

// AnswerTimeout is how long a request may have no answer. AAEP sets no time.
const AnswerTimeout = 24 * time.Hour

// subscriptionRequest is a request for a subscription, or for other terms of one.
type subscriptionRequest struct {
	event               eventRef
	requestedAt         time.Time
	content             uint64
	renewedSubscription string // the subscription that is to have other terms; "" of a request
	version             string
	capabilities        capabilities
	maybeRedelivered    bool // it may have been delivered twice
}

// Negotiate takes the next message about a subscription and gives the violations
// that it proves.
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
		return // delivered again, or asked again by a waiting subscriber
	}
	if len(n.openRequests) >= maxOpenRequests {
		n.openRequests, n.unpairable = n.openRequests[1:], true
	}
	o := &subscriptionRequest{event: e.eventRef(), requestedAt: e.At, content: h.content, version: h.version, capabilities: h.capabilities, maybeRedelivered: again}
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

// versionIndependentReasons are reasons that do not depend on the version that was asked for.
var versionIndependentReasons = []string{"version_unsupported", "rate_limit", "authentication_required", "authorization_denied", "transport_unavailable"}

// rejectionReasons are the reasons that there are (5.5.3).
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

// takeRenewal takes the open request for other terms of a subscription.
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

// pairRequest takes the oldest request that an answer can be to, and gives it if there
// was no other. An answer that may have been delivered twice is held against
// nothing.
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

// ReportOverdue gives what had no answer for too long, once each: requests
// (AAEP-C-150) and requests for other terms (AAEP-C-160).
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
			continue // the party that answers for this subscription is not known
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

// HasOpenRequests tells whether there is a request without an answer.
func (n *Negotiations) HasOpenRequests() bool { return len(n.openRequests) > 0 }

// IsForgettable tells whether nothing is lost if nothing of the publisher is kept.
func (n *Negotiations) IsForgettable() bool {
	return len(n.openRequests) == 0 && n.overdueFinding == nil && len(n.subscriptions) == 0
}

// RetractOverdue takes back that a request had no answer, if this is its answer: none else
// was open, and no other had been found unanswered.
func (n *Negotiations) RetractOverdue(e *Event) []*catalogue.Finding {
	found := n.overdueFinding
	answers := e.handshake.kind == "accepted" || e.handshake.kind == "rejected"
	if found == nil || len(n.openRequests) > 0 || !answers || slices.Contains(n.recentContents, e.handshake.content) { // what came before is no answer to what came since
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

// isUnpublishedVersion tells whether a version is none that AAEP published; those of its
// first major version may come yet.
func isUnpublishedVersion(version string) bool {
	return wellFormedVersion.MatchString(version) && !knownVersion.MatchString(version)
}
