package aaepsession

import (
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/correlation/catalogue"
)

// grant is a subscription that was accepted.
type grant struct {
	id                      string
	replies, clarifications answerTo
	closed                  ref
	closedAt                time.Time
}

func (n *Negotiations) grant(h *handshake) {
	if h.subscription == "" {
		return
	}
	g := grant{id: h.subscription, replies: h.terms.replies, clarifications: h.terms.clarifications}
	if i := n.find(h.subscription); i >= 0 {
		n.granted[i] = g
		return
	}
	if len(n.granted) >= maxGrants {
		n.granted = slices.Delete(n.granted, 0, 1)
	}
	n.granted = append(n.granted, g)
}

func (n *Negotiations) find(subscription string) int {
	return slices.IndexFunc(n.granted, func(g grant) bool { return g.id == subscription })
}

func (n *Negotiations) close(e *Event) {
	id := e.shake.subscription
	n.open = slices.DeleteFunc(n.open, func(o *offer) bool { return o.renews != "" && o.renews == id })
	if i := n.find(id); i >= 0 && n.granted[i].closed == (ref{}) {
		n.granted[i].closed, n.granted[i].closedAt = e.ref(), e.At
	}
}

// Entitled gives the breach of a reply on a subscription that has none of its
// own to give, or is closed (AAEP-C-112); nil if it may come from there as far as
// is known.
func (n *Negotiations) Entitled(e *Event) *catalogue.Breach {
	i := n.find(bounded(e.Subscription()))
	if e.Subscription() == "" || i < 0 {
		return nil
	}
	g := n.granted[i]
	may := g.clarifications
	if strings.HasPrefix(e.Type, "confirmation") {
		may = g.replies
	}
	q := Session{}
	switch {
	case g.closed != (ref{}) && e.At.Sub(g.closedAt) > grace:
		return q.breach("AAEP-C-112", "its subscription was closed before", g.closed, e.ref())
	case may == no:
		return q.breach("AAEP-C-112", "its subscription was accepted as one that does not reply", e.ref())
	}
	return nil
}
