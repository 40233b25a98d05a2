package servicetest

import (
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/internal/service/keys"
	"github.com/countersign-dev/countersign/streams"
)

// PublishErasure publishes an erasure record of the tenant, as an auditor signs it: e has what differs.
func (n *NATS) PublishErasure(e events.Erasure) {
	n.tb.Helper()
	signer, _, err := keys.Checkpoint(n.Keys)
	OK(n.tb, err)
	st, err := streams.StreamState(n.tb.Context(), n.JS("auditor"), streams.DefaultShard)
	OK(n.tb, err)
	now := events.At(time.Now())
	e.Shard, e.Tenant, e.Cause, e.Reason, e.OrderedBy, e.OrderedAt, e.At, e.Writer = streams.IncarnationName(streams.DefaultShard, st.Created), Tenant, "order", "r", "dana", now, now, "test"
	e.Part, e.Parts = max(1, e.Part), max(1, e.Parts)
	for _, s := range e.Sequences {
		e.Messages += s[1] - s[0] + 1
	}
	e.Vouch, err = signing.SignErasure(signer, e)
	OK(n.tb, err)
	body, err := events.Encode(e)
	OK(n.tb, err)
	OK(n.tb, streams.StoreLinked(n.tb.Context(), n.JS("auditor"), streams.DefaultShard, streams.Msg{Subject: "gov.control." + streams.DefaultShard + "." + events.ControlErasure, Body: body}))
}
