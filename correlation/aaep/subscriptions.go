package aaep

import (
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/correlation/fact"
)

// acceptedSubscription is an accepted subscription.
type acceptedSubscription struct {
	id                     string
	mayConfirm, mayClarify optionalFlag
	closed                 eventRef
	closedAt               time.Time
}

func (n *Negotiations) addSubscription(h *handshake) {
	if h.subscription == "" {
		return
	}
	g := acceptedSubscription{id: h.subscription, mayConfirm: h.capabilities.mayConfirm, mayClarify: h.capabilities.mayClarify}
	if i := n.findSubscription(h.subscription); i >= 0 {
		n.subscriptions[i] = g
		return
	}
	if len(n.subscriptions) >= maxSubscriptions {
		n.subscriptions = slices.Delete(n.subscriptions, 0, 1)
	}
	n.subscriptions = append(n.subscriptions, g)
}

func (n *Negotiations) findSubscription(subscription string) int {
	return slices.IndexFunc(n.subscriptions, func(g acceptedSubscription) bool { return g.id == subscription })
}

func (n *Negotiations) closeSubscription(e *Event) {
	id := e.handshake.subscription
	n.openRequests = slices.DeleteFunc(n.openRequests, func(o *subscriptionRequest) bool { return o.renewedSubscription != "" && o.renewedSubscription == id })
	if i := n.findSubscription(id); i >= 0 && n.subscriptions[i].closed == (eventRef{}) {
		n.subscriptions[i].closed, n.subscriptions[i].closedAt = e.eventRef(), e.At
	}
}

// CheckReply returns the finding of a reply on a subscription that is closed or permits no
// replies (AAEP-C-112); nil if the reply may be permitted.
func (n *Negotiations) CheckReply(e *Event) *catalogue.Finding {
	i := n.findSubscription(fact.BoundID(e.Subscription()))
	if e.Subscription() == "" || i < 0 {
		return nil
	}
	g := n.subscriptions[i]
	may := g.mayClarify
	if strings.HasPrefix(e.Type, "confirmation") {
		may = g.mayConfirm
	}
	switch {
	case g.closed != (eventRef{}) && e.At.Sub(g.closedAt) > replyGrace:
		return newFinding("AAEP-C-112", "its subscription was closed before", g.closed, e.eventRef())
	case may == flagFalse:
		return newFinding("AAEP-C-112", "its subscription was accepted as one that does not reply", e.eventRef())
	}
	return nil
}
