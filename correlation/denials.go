package correlation

import (
	"time"

	"github.com/countersign-dev/countersign/events"
)

// A call that was denied may be forgotten before it runs: its session had to make
// room, was idle for long, or closed very many calls since. What tells its execution
// from one that nobody asked about is kept apart, in little room.

// maxDenials bounds the denied calls that are forgotten but for their denial, over
// all tenants, which share the places as they share those of sessions (about 250 B
// each).
const maxDenials = 32_768

// denial is what is kept of a call that was denied and never ran.
type denial struct {
	key        sum
	by         sourceKey
	occurrence int
	decision   string // as shown; "" if only its publisher's events say that it was denied
	seq        uint64 // of the decision, or of the event that says so
	at         time.Time
}

func (d *denial) id() sum { return d.key }

func (d *denial) owner() sourceKey { return d.by }

func (d *denial) holds(*share) {}

func denialKey(k sessionKey, s callKey) sum {
	return sumOf("denial", k.tenant, k.source, k.session, s.id, s.tool)
}

// keepDenial keeps the denial of a call that is about to be forgotten.
func (cs *calls) keepDenial(c *call) {
	if !c.wasRefused() || c.hasWeakScope() && c.group.key.id == "" {
		return
	}
	st := c.expand().directVerdict()
	if st.verdict != events.Deny {
		return
	}
	d := &denial{key: denialKey(c.session.key, c.group.key), by: c.session.owner(), occurrence: c.occurrence, seq: c.verdictClaim.seq}
	if st.recorded != nil {
		d.decision, d.seq, d.at = st.recorded.id, st.recorded.seq, st.recorded.at
	}
	cs.denials.remove(d.key)
	if cs.denials.len() >= maxDenials {
		if old, any := cs.denials.surplus(byPlaces, d.by, d.key); any {
			cs.denials.remove(old.key)
		}
	}
	cs.denials.add(d)
}

// recallDenied gives the denied call that a completion says ran, as far as its
// denial was kept; nil if there is none. It is a call of the session again, and ran
// under the occurrence that it was denied as.
func (cs *calls) recallDenied(s *session, f *fact) *call {
	if f.effect == noEffect || cs.denials.len() == 0 {
		return nil
	}
	d, kept := cs.denials.peek(denialKey(f.key, f.callKey))
	if !kept {
		return nil
	}
	cs.denials.remove(d.key)
	c := cs.newOccurrence(s, f)
	c.group.count--
	c.group.calls = append(c.group.calls, c)
	c.occurrence, c.cachedIDSum = d.occurrence, sum{}
	c.state, c.closeReason = events.CallDenied, closedByDeny
	if d.decision != "" {
		c.decisions = append(c.decisions, recordedVerdict{id: d.decision, seq: d.seq, at: d.at, verdict: events.Deny})
		s.linkDecision(c, d.decision)
	} else {
		c.verdictClaim = verdictClaim{verdict: events.Deny, seq: d.seq}
	}
	s.moveToClosed(c)
	return c
}
