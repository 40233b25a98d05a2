package aaepsession

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
	open     []*offer // what has no answer, the oldest first
	answered bool     // an answer was published
	mixed    bool     // of those that are open, some was answered, and nobody knows which
	loose    bool     // answers and requests do not fit: nothing is paired any more
	doubt    bool     // among those that are open, one may have been delivered twice
	recent   []uint64 // contents of the latest requests and answers
	granted  []grant
	overdue  *catalogue.Breach // the only one that was found unanswered
	several  bool              // more than one was
}

// Bounds of one publisher's negotiations.
const (
	maxOffers = 16  // requests without an answer; beyond it none is paired
	maxGrants = 128 // subscriptions; the oldest are forgotten
	maxRecent = 32
)

// Patience is how long a request may have no answer. AAEP sets no time.
const Patience = 24 * time.Hour

// offer is a request for a subscription, or for other terms of one.
type offer struct {
	ref     ref
	at      time.Time
	content uint64
	renews  string // the subscription whose terms are to change; "" of a request
	version string
	terms   terms
	again   bool // it may have been delivered twice
}

// Negotiate takes the next message about a subscription and gives the violations
// that it proves.
func (n *Negotiations) Negotiate(e *Event) []*catalogue.Breach {
	var out found
	h := e.shake
	again := slices.Contains(n.recent, h.content)
	if !again {
		if len(n.recent) >= maxRecent {
			n.recent = slices.Delete(n.recent, 0, 1)
		}
		n.recent = append(n.recent, h.content)
	}
	switch h.kind {
	case "request", "renegotiate":
		n.ask(e, again)
	case "accepted":
		n.accepted(e, again, &out)
	case "rejected":
		n.rejected(e, again, &out)
	case "close":
		n.close(e)
	}
	if len(n.open) == 0 {
		n.mixed, n.doubt = false, false
	}
	return out
}

// found collects what one message proves.
type found []*catalogue.Breach

func (f *found) breach(check, what string, proof ...ref) *catalogue.Breach {
	q := Session{}
	b := q.breach(check, what, proof...)
	*f = append(*f, b)
	return b
}

func (n *Negotiations) ask(e *Event, again bool) {
	h := e.shake
	if again && slices.ContainsFunc(n.open, func(o *offer) bool { return o.content == h.content }) {
		return // delivered again, or asked again by who waits
	}
	if len(n.open) >= maxOffers {
		n.open, n.loose = n.open[1:], true
	}
	o := &offer{ref: e.ref(), at: e.At, content: h.content, version: h.version, terms: h.terms, again: again}
	if h.kind == "renegotiate" {
		o.renews = h.subscription
	}
	n.doubt = n.doubt || again
	n.open = append(n.open, o)
}

func (n *Negotiations) accepted(e *Event, again bool, out *found) {
	h := e.shake
	n.answered = true
	if unpublished(h.version) {
		out.breach("AAEP-C-153", "the version that was agreed on was never published", e.ref()).Case = "agreed"
	}
	if h.manifest != "" {
		out.breach("AAEP-C-165", h.manifest, e.ref())
	}
	o := n.renewed(h.subscription)
	if o == nil {
		o = n.pair(again, func(o *offer) bool { return o.renews == "" })
	}
	n.grant(h)
	if o == nil {
		return
	}
	if what := h.terms.beyond(o.terms); what != "" {
		out.breach("AAEP-C-151", what, o.ref, e.ref())
	}
	if o.terms.signedOnly == yes && !h.signed && !h.elsewhere {
		out.breach("AAEP-C-154", "", o.ref, e.ref())
	}
}

// early are reasons that do not depend on the version that was asked for.
var early = []string{"version_unsupported", "rate_limit", "authentication_required", "authorization_denied", "transport_unavailable"}

// rejections are the reasons that there are (5.5.3).
var rejections = append([]string{"manifest_signature_required", "capabilities_incompatible", "unknown"}, early...)

func (n *Negotiations) rejected(e *Event, again bool, out *found) {
	h := e.shake
	n.answered = true
	exists := slices.Contains(rejections, h.reason)
	if h.reason != "" && !exists {
		out.breach("AAEP-C-152", "", e.ref())
	}
	o := n.pair(again, func(*offer) bool { return true })
	if o != nil && exists && unpublished(o.version) && !slices.Contains(early, h.reason) {
		out.breach("AAEP-C-153", "a version that was never published was refused for another reason", o.ref, e.ref()).Case = "refused"
	}
}

// renewed takes the open request for other terms of a subscription.
func (n *Negotiations) renewed(subscription string) *offer {
	i := slices.IndexFunc(n.open, func(o *offer) bool { return o.renews != "" && o.renews == subscription })
	if i < 0 {
		return nil
	}
	o := n.open[i]
	n.open = slices.Delete(n.open, i, i+1)
	return o
}

// pair takes the oldest request that an answer can be to, and gives it if there
// was no other. An answer that may have been delivered twice is held against
// nothing.
func (n *Negotiations) pair(again bool, fits func(*offer) bool) *offer {
	first, count := -1, 0
	for i, o := range n.open {
		if fits(o) {
			if count++; first < 0 {
				first = i
			}
		}
	}
	if count == 0 {
		n.loose = n.loose || n.overdue == nil && !again
		return nil
	}
	o := n.open[first]
	n.open = slices.Delete(n.open, first, first+1)
	sure := count == 1 && !n.mixed && !n.loose && !again
	n.mixed = n.mixed || count > 1
	if !sure {
		return nil
	}
	return o
}

// Overdue gives what had no answer for too long, once each: requests
// (AAEP-C-150) and requests for other terms (AAEP-C-160).
func (n *Negotiations) Overdue(now time.Time) []*catalogue.Breach {
	var out found
	for len(n.open) > 0 && now.Sub(n.open[0].at) >= Patience {
		o := n.open[0]
		if n.open = n.open[1:]; !n.answered || n.loose || n.doubt {
			continue
		}
		check, what := "AAEP-C-150", ""
		switch {
		case o.renews != "" && n.find(o.renews) < 0:
			continue // whoever answers for this subscription is not known
		case o.renews != "":
			check = "AAEP-C-160"
		case n.mixed:
			what = "it, or one that was open at the same time"
		}
		b := out.breach(check, what, o.ref)
		b.Case = strconv.FormatUint(o.ref.seq, 10)
		n.several = n.several || n.overdue != nil
		n.overdue = b
	}
	if len(n.open) == 0 {
		n.mixed, n.doubt = false, false
	}
	return out
}

// Waiting tells whether there is a request without an answer.
func (n *Negotiations) Waiting() bool { return len(n.open) > 0 }

// Forgettable tells whether nothing is lost if nothing of the publisher is kept.
func (n *Negotiations) Forgettable() bool {
	return len(n.open) == 0 && n.overdue == nil && len(n.granted) == 0
}

// Late takes back that a request had no answer, if this is its answer: none else
// was open, and no other had been found unanswered.
func (n *Negotiations) Late(e *Event) []*catalogue.Breach {
	b := n.overdue
	answers := e.shake.kind == "accepted" || e.shake.kind == "rejected"
	if b == nil || len(n.open) > 0 || !answers || slices.Contains(n.recent, e.shake.content) { // what came before is no answer to what came since
		return nil
	}
	n.overdue, n.loose = nil, true
	if n.several {
		return nil
	}
	q := Session{}
	back := q.breach(b.Check, "the answer has arrived after all", e.ref())
	back.Withdraws, back.Retracts, back.Case = b, true, b.Case
	return []*catalogue.Breach{back}
}

var (
	wellFormedVersion = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+(-[A-Za-z0-9.-]+)?$`)
	knownVersion      = regexp.MustCompile(`^(1\.[0-9]+\.[0-9]+(-[A-Za-z0-9.-]+)?|0\.1\.0-draft)$`)
)

// unpublished tells whether a version is none that AAEP published; those of its
// first major version may come yet.
func unpublished(version string) bool {
	return wellFormedVersion.MatchString(version) && !knownVersion.MatchString(version)
}
