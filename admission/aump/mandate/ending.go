package mandate

import (
	"slices"

	"github.com/countersign-dev/countersign/events"
)

// Effect is what the end of a call says about the money that was reserved for it.
type Effect int

// The effects.
const (
	NoEffect Effect = iota
	Settle          // it was spent, or may have been
	Release         // it was not spent, as far as is known: free once no receipt holds
	Again           // something ran beside what was admitted: it was spent as well
)

// Ending is the end of a call as the correlator's record tells it.
type Ending struct {
	Effect   Effect
	Call     string   // CallKey
	Decision string   // the id of the verdict that counts, "" if there was none
	Named    []string // the decisions that are certainly on this very call, Decision among them
	Before   []string // decisions under the call's id that were on the log when Decision was
	Seq      uint64   // of the record itself
	// Occurrence is the correlator's number of the call under its id; the number in
	// the admitter's own records plays no part.
	Occurrence int
	Unadmitted bool  // it ran, and no allow stands for it
	Exact      bool  // what ran is what was admitted, to the letter
	Now        int64 // Unix milliseconds
}

// EndingOf reads what the record of a call means for money. seq is the record's
// sequence in the log, call the call's key, now its time in Unix milliseconds.
// Named holds the verdict that counts, and Before nothing: Name adds what is known
// of the log.
//
// A completion spends. A failure does not, but a timeout of something that had
// begun may have. A denial does not unless it ran all the same. What was given up
// may have been spent if its producer announced it.
func EndingOf(c events.Call, call string, seq uint64, now int64) Ending {
	e := Ending{
		Effect: effectOf(c), Call: call, Decision: c.DecisionID, Seq: seq, Occurrence: c.Occurrence, Now: now,
		Unadmitted: c.ExecutionSeq != 0 && c.Verdict != events.Allow, Exact: c.Match == matchEqual,
	}
	if c.DecisionID != "" {
		e.Named = []string{c.DecisionID}
	}
	return e
}

// Name adds the decisions of an account's entries that belong to the call, by
// their places in the log; logged gives the place of a decision, 0 if it is not
// known.
//
// The call's timeline lists the places of its verdicts, the first ones of many.
// Decisions on one proposal that were on the log before the last verdict on the
// call are on the same call or on an earlier one that is over.
func (e Ending) Name(a Account, c events.Call, logged func(decision string) uint64) Ending {
	places := map[uint64]bool{}
	for _, t := range c.Timeline {
		if t.Step == "decided" {
			places[t.Seq] = true
		}
	}
	e.Named, e.Before = slices.Clone(e.Named), nil
	for _, x := range a.Entries {
		if x.Call != e.Call {
			continue
		}
		for _, t := range x.Attempts {
			seq := logged(t.Decision)
			if seq != 0 && places[seq] {
				e.Named = append(e.Named, t.Decision)
			}
			if seq != 0 && seq <= c.DecisionSeq {
				e.Before = append(e.Before, t.Decision)
			}
		}
	}
	return e
}

// matchEqual is the value of events.Call.Match for what ran as it was admitted.
const matchEqual = "equal"

// timeouts are the outcomes after which it is not known what became of a call.
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
		return Release
	case events.CallOrphaned:
		if ran {
			return Again
		}
	}
	return NoEffect
}

// End applies the end of a call; changed is false if it is none of this
// account's, or applied already. A call may end several times: what was given up
// may be completed after all, and then counts, be the budget exceeded or not.
func (a Account) End(e Ending) (after Account, changed bool) {
	before, ran := a.runOf(e)
	switch {
	case e.Effect == NoEffect || e.Seq <= a.seen(e.Call):
		return a, false
	case ran && before.Beside && e.Decision == "": // a call that no verdict is about is counted once
		return a, false
	}
	entry, run := a.running(e)
	if run.Amount = max(run.Amount, before.Amount); entry < 0 && !ran && !a.names(e) {
		return a, false
	}
	a.Entries = slices.Clone(a.Entries)
	for i, x := range a.Entries {
		named, had := x.named(e), x.Call == e.Call && x.run(e.Occurrence) >= 0
		if !named && !had && i != entry {
			continue
		}
		if x.Runs = slices.DeleteFunc(slices.Clone(x.Runs), func(r Run) bool { return r.Occurrence == e.Occurrence }); i == entry {
			x.Runs, a.Settled = noteRun(x.Runs, run, a.Settled)
		}
		if named {
			x.Attempts = x.over(e)
		}
		x.Seen, x.At, x.State = e.Seq, e.Now, x.stateAt(e.Now)
		a.Entries[i] = x
	}
	return a, true
}

// runOf is what was counted of a call before.
func (a Account) runOf(e Ending) (Run, bool) {
	for _, x := range a.Entries {
		if at := x.run(e.Occurrence); x.Call == e.Call && at >= 0 {
			return x.Runs[at], true
		}
	}
	return Run{}, false
}

// names reports whether the account has reserved for a call.
func (a Account) names(e Ending) bool {
	return slices.ContainsFunc(a.Entries, func(x Entry) bool { return x.named(e) })
}

// seen is the newest record of a call that was applied.
func (a Account) seen(call string) (seq uint64) {
	for _, x := range a.Entries {
		if x.Call == call {
			seq = max(seq, x.Seen)
		}
	}
	return seq
}

// named reports whether one of the entry's decisions is on the call that ended.
func (x Entry) named(e Ending) bool {
	return x.Call == e.Call && slices.ContainsFunc(x.Attempts, func(t Attempt) bool { return slices.Contains(e.Named, t.Decision) })
}

// over gives the attempts after the end of a call that names the entry.
func (x Entry) over(e Ending) []Attempt {
	list := slices.Clone(x.Attempts)
	for i := range list {
		t := &list[i]
		t.Over = t.Over || slices.Contains(e.Named, t.Decision) || slices.Contains(e.Before, t.Decision)
	}
	return list
}

// running is the entry that counts an execution, -1 if none, and what it counts. A
// call runs once, whatever number of entries its decisions opened. Where there are
// several, it is not certain on which of them: a completion names the call's id,
// and may come late. Then the largest amount counts, and all of the entries go on
// counting as well for as long as receipts of theirs hold. So it is with what ran
// under the id without an allow.
func (a Account) running(e Ending) (entry int, run Run) {
	proposal := ""
	for _, x := range a.Entries {
		if x.Call == e.Call && x.attempt(e.Decision) >= 0 {
			proposal = x.Proposal
		}
	}
	highest, entry, run := 0, -1, Run{Occurrence: e.Occurrence}
	for i, x := range a.Entries {
		r := x.rank(e, proposal)
		switch {
		case r == 0 || r < highest:
		case r > highest:
			highest, entry, run.Amount, run.Beside = r, i, x.Amount, r == rankUnadmitted
		default:
			run.Amount, run.Beside = max(run.Amount, x.Amount), true
		}
	}
	return entry, run
}

// How much speaks for an entry to be the one that an execution used up.
const (
	rankUnadmitted = iota + 1 // nothing: but it ran under the same id
	rankUsed                  // a decision on the call is the entry's; it was used up by another call
	rankOpen                  // or a decision under its id, if what ran may have been something else
	rankExact                 // or the verdict that counts, and what ran is what was admitted
	rankBefore                // the call has used it up before
)

// rank is how much speaks for an entry to be the one that an execution used up, 0
// if it cannot be. proposal is that of the verdict that counts.
func (x Entry) rank(e Ending, proposal string) int {
	named, at := x.named(e), x.run(e.Occurrence)
	switch {
	case e.Effect != Settle && e.Effect != Again || x.Call != e.Call:
		return 0
	case at >= 0 && !x.Runs[at].Beside:
		return rankBefore
	case named && !x.used() && e.Exact && x.Proposal == proposal:
		return rankExact
	case !x.used() && (named || e.Effect == Settle && !e.Unadmitted && !e.Exact && x.open()):
		return rankOpen
	case named:
		return rankUsed
	case e.Effect == Again || e.Unadmitted:
		return rankUnadmitted
	}
	return 0
}

// noteRun adds a run. Where an entry has no room for it, its amount is added to
// what is spent beside the entries.
func noteRun(list []Run, r Run, settled int64) ([]Run, int64) {
	if len(list) >= maxRuns {
		return list, plus(settled, r.Amount)
	}
	return append(list, r), settled
}
