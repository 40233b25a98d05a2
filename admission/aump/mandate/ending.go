package mandate

import (
	"slices"

	"github.com/countersign-dev/countersign/events"
)

// Effect is what the end of a call says about the money that was reserved for it.
type Effect int

// The effects.
const (
	NoEffect    Effect = iota
	Settle             // it was spent, or may have been
	Release            // it was not spent, as far as is known: free once no receipt holds
	SettleExtra        // something ran beside what was admitted: it was spent as well
)

// CallEnd is the end of a call as the correlator's record tells it.
type CallEnd struct {
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

// CallEndOf reads what the record of a call means for money. seq is the record's
// sequence in the log, call the call's key, now its time in Unix milliseconds.
// Named holds the verdict that counts, and Before nothing: Name adds what is known
// of the log.
//
// A completion spends. A failure does not, but a timeout of something that had
// begun may have. A denial does not unless it ran all the same. What was given up
// may have been spent if its producer announced it.
func CallEndOf(c events.Call, call string, seq uint64, now int64) CallEnd {
	e := CallEnd{
		Effect: effectOf(c), Call: call, Decision: c.DecisionID, Seq: seq, Occurrence: c.Occurrence, Now: now,
		Unadmitted: c.ExecutionSeq != 0 && c.Verdict != events.Allow, Exact: c.Match == matchEqual,
	}
	if c.DecisionID != "" {
		e.Named = []string{c.DecisionID}
	}
	return e
}

// WithDecisions adds the decisions of an account's entries that belong to the call, by
// their places in the log; logged gives the place of a decision, 0 if it is not
// known.
//
// The call's timeline lists the places of its verdicts, the first ones of many.
// Decisions on one proposal that were on the log before the last verdict on the
// call are on the same call or on an earlier one that is over.
func (e CallEnd) WithDecisions(a Account, c events.Call, logged func(decision string) uint64) CallEnd {
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
			return SettleExtra
		}
	}
	return NoEffect
}

// ApplyEnd applies the end of a call; changed is false if it is none of this
// account's, or applied already. A call may end several times: what was given up
// may be completed after all, and then counts, be the budget exceeded or not.
func (a Account) ApplyEnd(e CallEnd) (after Account, changed bool) {
	before, ran := a.priorRun(e)
	switch {
	case e.Effect == NoEffect || e.Seq <= a.newestRecord(e.Call):
		return a, false
	case ran && before.Uncertain && e.Decision == "": // a call that no verdict is about is counted once
		return a, false
	}
	entry, run := a.countingEntry(e)
	if run.Amount = max(run.Amount, before.Amount); entry < 0 && !ran && !a.hasCallDecision(e) {
		return a, false
	}
	a.Entries = slices.Clone(a.Entries)
	for i, x := range a.Entries {
		named, had := x.hasNamedDecision(e), x.Call == e.Call && x.runIndex(e.Occurrence) >= 0
		if !named && !had && i != entry {
			continue
		}
		if x.Runs = slices.DeleteFunc(slices.Clone(x.Runs), func(r Run) bool { return r.Occurrence == e.Occurrence }); i == entry {
			x.Runs, a.Settled = appendRun(x.Runs, run, a.Settled)
		}
		if named {
			x.Attempts = x.endAttempts(e)
		}
		x.Seen, x.At, x.State = e.Seq, e.Now, x.stateAt(e.Now)
		a.Entries[i] = x
	}
	return a, true
}

// priorRun is what was counted of a call before.
func (a Account) priorRun(e CallEnd) (Run, bool) {
	for _, x := range a.Entries {
		if at := x.runIndex(e.Occurrence); x.Call == e.Call && at >= 0 {
			return x.Runs[at], true
		}
	}
	return Run{}, false
}

// hasCallDecision reports whether the account has reserved for a call.
func (a Account) hasCallDecision(e CallEnd) bool {
	return slices.ContainsFunc(a.Entries, func(x Entry) bool { return x.hasNamedDecision(e) })
}

// newestRecord is the newest record of a call that was applied.
func (a Account) newestRecord(call string) (seq uint64) {
	for _, x := range a.Entries {
		if x.Call == call {
			seq = max(seq, x.Seen)
		}
	}
	return seq
}

// hasNamedDecision reports whether one of the entry's decisions is on the call that ended.
func (x Entry) hasNamedDecision(e CallEnd) bool {
	return x.Call == e.Call && slices.ContainsFunc(x.Attempts, func(t Attempt) bool { return slices.Contains(e.Named, t.Decision) })
}

// endAttempts gives the attempts after the end of a call that names the entry.
func (x Entry) endAttempts(e CallEnd) []Attempt {
	list := slices.Clone(x.Attempts)
	for i := range list {
		t := &list[i]
		t.Over = t.Over || slices.Contains(e.Named, t.Decision) || slices.Contains(e.Before, t.Decision)
	}
	return list
}

// countingEntry is the entry that counts an execution, -1 if none, and what it counts. A
// call runs once, whatever number of entries its decisions opened. Where there are
// several, it is not certain on which of them: a completion names the call's id,
// and may come late. Then the largest amount counts, and all of the entries go on
// counting as well for as long as receipts of theirs hold. So it is with what ran
// under the id without an allow.
func (a Account) countingEntry(e CallEnd) (entry int, run Run) {
	proposal := ""
	for _, x := range a.Entries {
		if x.Call == e.Call && x.attemptIndex(e.Decision) >= 0 {
			proposal = x.Proposal
		}
	}
	highest, entry, run := 0, -1, Run{Occurrence: e.Occurrence}
	for i, x := range a.Entries {
		r := x.matchRank(e, proposal)
		switch {
		case r == 0 || r < highest:
		case r > highest:
			highest, entry, run.Amount, run.Uncertain = r, i, x.Amount, r == rankUnadmitted
		default:
			run.Amount, run.Uncertain = max(run.Amount, x.Amount), true
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

// matchRank is how much speaks for an entry to be the one that an execution used up, 0
// if it cannot be. proposal is that of the verdict that counts.
func (x Entry) matchRank(e CallEnd, proposal string) int {
	named, at := x.hasNamedDecision(e), x.runIndex(e.Occurrence)
	switch {
	case e.Effect != Settle && e.Effect != SettleExtra || x.Call != e.Call:
		return 0
	case at >= 0 && !x.Runs[at].Uncertain:
		return rankBefore
	case named && !x.isConsumed() && e.Exact && x.Proposal == proposal:
		return rankExact
	case !x.isConsumed() && (named || e.Effect == Settle && !e.Unadmitted && !e.Exact && x.isOpen()):
		return rankOpen
	case named:
		return rankUsed
	case e.Effect == SettleExtra || e.Unadmitted:
		return rankUnadmitted
	}
	return 0
}

// appendRun adds a run. Where an entry has no room for it, its amount is added to
// what is spent beside the entries.
func appendRun(list []Run, r Run, settled int64) ([]Run, int64) {
	if len(list) >= maxRuns {
		return list, addCapped(settled, r.Amount)
	}
	return append(list, r), settled
}
