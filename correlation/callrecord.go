package correlation

import (
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/events"
)

// written is memory for records, made for several at a time. Whoever puts them out
// has them for good.
type written struct {
	calls []events.Call
	steps []events.TimelineEntry
	parts []parts
	texts strings.Builder
}

// For how many records, steps and bytes of texts memory is made at once: 4 to 8 KB
// of it each.
const (
	writtenAtOnce = 16
	stepsAtOnce   = 64
	textsAtOnce   = 8 << 10
)

// next gives the next of what was made at once.
func next[T any](made *[]T, atOnce int) *T {
	if len(*made) == 0 {
		*made = make([]T, atOnce)
	}
	one := &(*made)[0]
	*made = (*made)[1:]
	return one
}

// call is a call as the log shows it, but for its call_id; st is the verdict that
// stands for it.
func (w *written) call(c *call, st *standing) *events.Call {
	r := next(&w.calls, writtenAtOnce)
	who := c.session.origin
	r.Tenant, r.Source, r.Session = who.tenant, who.source, who.session
	r.Protocol, r.Agent, r.ToolCallID, r.Occurrence, r.Tool = c.protocol, c.agent, c.id, c.occurrence, c.tool
	r.State, r.Outcome, r.ExecutionSeq, r.Match = c.state, c.outcome, c.execSeq, c.match
	r.Inferred, r.WeakScope, r.Findings, r.Timeline = c.inferred, c.weak(), slices.Clone(c.rules), w.timeline(c)
	r.Protocols, r.MatchReason, r.Differences, r.MoreDifferences = c.seen.names(), c.reason, slices.Clone(c.differences), c.more
	r.Attempt, r.RetriedFrom, r.RetriedTo = int(c.chain.attempt), callIDOf(c.chain.from), callIDOf(c.chain.to)
	r.Trace = c.trace
	r.AdmittedDigest, r.ExecutedDigest = c.args.keyed, c.executed.keyed
	decided := time.Time{}
	if st.ledger != nil {
		r.Verdict, r.DecisionID, r.DecisionSeq = st.verdict, st.ledger.id, st.ledger.seq
		if d := st.ledger.digest; d != "" {
			r.AdmittedDigest, r.ExecutedDigest = d, c.executed.in(d)
		}
		if !st.inherited {
			decided = st.ledger.at
		}
	}
	w.partsOf(c, r, decided)
	return r
}

// sequences are those of all that is known of the call.
func (c *call) sequences() []uint64 {
	var list []uint64
	for _, s := range c.timeline {
		if s.Seq != 0 {
			list = append(list, s.Seq)
		}
	}
	return list
}

// in adds the places of its events that belong to another call than the one that
// it is reported of.
func (v *violation) in(o *call) *violation {
	v.seqs = append(v.seqs, o.placesOf(v.events)...)
	return v
}

// proofs are the sequences that prove it, in order: of its events, and of the
// message that showed it. Where time does, and what was said before, that is all
// of the call.
func (v *violation) proofs(c *call, f *fact) []uint64 {
	list := slices.Clone(v.seqs)
	if f.seq != 0 {
		list = append(list, f.seq)
	}
	switch {
	case c != nil && len(list) == 0:
		list = c.sequences()
	case c != nil:
		list = append(list, c.placesOf(v.events)...)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// placesOf are the sequences of events that belong to the call, as far as it
// remembers them.
func (c *call) placesOf(ids []string) (list []uint64) {
	for _, id := range ids {
		i := slices.IndexFunc(c.timeline, func(e events.TimelineEntry) bool { return e.EventID == id })
		if i >= 0 && c.timeline[i].Seq != 0 {
			list = append(list, c.timeline[i].Seq)
		}
	}
	return list
}

// text is a text to keep.
func (w *written) text(b []byte) string {
	if w.texts.Cap()-w.texts.Len() < len(b) {
		w.texts = strings.Builder{}
		w.texts.Grow(max(textsAtOnce, len(b)))
	}
	w.texts.Write(b)
	all := w.texts.String()
	return all[len(all)-len(b):]
}

// timeline is the call's, which names a protocol only where it is another than the
// call's.
func (w *written) timeline(c *call) []events.TimelineEntry {
	n := len(c.timeline)
	if n > len(w.steps) || w.steps == nil {
		w.steps = make([]events.TimelineEntry, max(n, stepsAtOnce))
	}
	list := w.steps[:n:n]
	w.steps = w.steps[n:]
	copy(list, c.timeline)
	for i := range list {
		if list[i].Protocol == c.protocol {
			list[i].Protocol = ""
		}
	}
	return list
}

// callID is the same for the same call in every replay.
func (c *call) callID() string {
	var room [callIDSize]byte
	return string(c.appendID(room[:0]))
}

// callIDSize is how long a call_id is.
const callIDSize = len(callIDPrefix) + 2*len(sum{})

const callIDPrefix = "call_"

// sum gives what the call_id is made of.
func (c *call) sum() sum {
	if c.hash == (sum{}) {
		c.hash = callSum(c.session.key, c.slot.key, c.occurrence)
	}
	return c.hash
}

func callSum(k sessionKey, s slotKey, occurrence int) sum {
	return sumOf("call", k.tenant, k.source, k.session, s.id, s.tool, itoa(occurrence))
}

func (c *call) appendID(b []byte) []byte {
	h := c.sum()
	return appendHex(append(b, callIDPrefix...), &h)
}
