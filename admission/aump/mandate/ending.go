package mandate

import (
	"slices"

	"github.com/countersign-dev/countersign/events"
)

// Effect is what the end of a call does with the money that was reserved for it.
type Effect int

// The effects.
const (
	NoEffect Effect = iota
	Settle          // it was spent, or nobody can say that it was not
	Release         // it was not spent
	Lapse           // nothing ever began, as far as anybody knows: not spent once the receipt has expired
	Again           // something ran beside what was admitted: it was spent once more
)

// Ending is the end of a call as the correlator's record tells it.
type Ending struct {
	Effect      Effect
	Call        string // CallKey
	Decision    string // the id of the verdict that counts, "" if there was none
	DecisionSeq uint64
	Seq         uint64 // of the record itself
	Occurrence  int
	Now         int64 // Unix seconds
}

// EndingOf reads what the record of a call means for money. seq is the record's
// sequence in the log, call the call's key.
//
// A completion spends. A failure does not, but a timeout of something that had
// begun may have. A denial does not unless it ran all the same. What was given
// up had begun, and counts, if its producer announced it; if nobody ever spoke
// of it again but to ask for admission, it lapses.
func EndingOf(c events.Call, call string, seq uint64, now int64) Ending {
	return Ending{
		Effect: effectOf(c), Call: call, Decision: c.DecisionID, DecisionSeq: c.DecisionSeq, Seq: seq, Occurrence: c.Occurrence, Now: now,
	}
}

// timeouts are the outcomes after which nobody knows what became of a call.
var timeouts = []string{"timeout", "timed_out"}

func effectOf(c events.Call) Effect {
	ran := c.ExecutionSeq != 0
	switch c.State {
	case events.CallCompleted:
		return Settle
	case events.CallFailed:
		if ran && slices.Contains(timeouts, c.Outcome) {
			return Settle
		}
		return Release
	case events.CallDenied:
		if ran {
			return Settle
		}
		return Release
	case events.CallAbandoned:
		if slices.ContainsFunc(c.Timeline, func(t events.TimelineEntry) bool { return t.Step == "invoked" }) {
			return Settle
		}
		return Lapse
	case events.CallOrphaned:
		if ran {
			return Again
		}
	}
	return NoEffect
}

// states are the entry's states after an effect.
var states = map[Effect]EntryState{Settle: EntrySettled, Release: EntryReleased, Lapse: EntryLapsed}

// End applies the end of a call; changed is false if it is none of this
// account's, or applied already. A call may end several times: what was given up
// may be completed after all, and then counts, be the budget exceeded or not.
func (a Account) End(e Ending) (after Account, changed bool) {
	state, known := states[e.Effect]
	if e.Effect == Again {
		return a.again(e)
	}
	if !known {
		return a, false
	}
	named := slices.ContainsFunc(a.Entries, func(x Entry) bool { return x.Call == e.Call && slices.Contains(x.Decisions, e.Decision) })
	entries := make([]Entry, 0, len(a.Entries)+1)
	for _, x := range a.Entries {
		n := x.named(e)
		if !named {
			n = x.older(e)
		}
		if x.Call != e.Call || n == 0 || e.Seq <= x.Seen {
			entries = append(entries, x)
			continue
		}
		changed = true
		ended := x
		ended.Decisions, ended.State, ended.At, ended.Seen = slices.Clone(x.Decisions[:n]), state, e.Now, e.Seq
		if !named { // what is reported later of this call names the same decision
			ended.Decisions = append(ended.Decisions, e.Decision)
		}
		if state == EntryLapsed && x.Expires < e.Now {
			ended.State = EntryReleased
		}
		entries = append(entries, ended)
		if n < len(x.Decisions) { // admitted again since, as another occurrence
			x.Decisions = x.Decisions[n:]
			entries = append(entries, x)
		}
	}
	if !changed {
		return a, false
	}
	a.Entries = entries
	return a, true
}

// named counts the decisions of an entry, oldest first, up to the one that an
// ending names. It names the last decision on its call: earlier ones under the
// same id belong to that call or to one before it.
func (x Entry) named(e Ending) int { return slices.Index(x.Decisions, e.Decision) + 1 }

// older counts the decisions of an open entry, oldest first, that were made
// before the one that an ending names, where that is none of any entry's: the call
// was decided on again in another way. A decision that was made before the money
// was reserved belongs to an earlier call.
func (x Entry) older(e Ending) int {
	if !x.open() || e.Decision == "" || e.DecisionSeq <= x.After {
		return 0
	}
	n := 0
	for n < len(x.Decisions) && x.Decisions[n] < e.Decision { // UUIDv7: in order of time
		n++
	}
	return n
}

// again counts what ran beside the calls that were admitted under an id: the
// largest amount that was ever admitted for it.
func (a Account) again(e Ending) (Account, bool) {
	most := -1
	for i, x := range a.Entries {
		if x.Call == e.Call && e.Occurrence > x.Orphans && (most < 0 || x.Amount > a.Entries[most].Amount) {
			most = i
		}
	}
	if most < 0 {
		return a, false
	}
	amount := a.Entries[most].Amount
	a.Entries = slices.Clone(a.Entries)
	for i := range a.Entries {
		if a.Entries[i].Call == e.Call {
			a.Entries[i].Orphans = max(a.Entries[i].Orphans, e.Occurrence)
		}
	}
	a.Settled = plus(a.Settled, amount)
	return a, true
}
