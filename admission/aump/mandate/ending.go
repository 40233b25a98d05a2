package mandate

import (
	"slices"

	"github.com/countersign-dev/countersign/events"
)

// Effect is the effect of a call's end on its reserved money.
type Effect int

// The effects.
const (
	NoEffect    Effect = iota
	Settle             // it was spent, or may have been
	Release            // it was not spent, as far as known: free once no receipt is valid
	SettleExtra        // something ran in addition to what was admitted: it was spent as well
)

// CallEnd is the end of a call by the correlator's record.
type CallEnd struct {
	Effect   Effect
	Call     string   // CallKey
	Decision string   // the id of the verdict that counts, "" if there was none
	Named    []string // the decisions that are certainly on this call, Decision included
	Before   []string // decisions under the call's id that were on the log when Decision was
	Seq      uint64   // of the record itself
	// Began is the sequence of the call's first message on the log: it tells the calls under one id
	// apart. Their occurrences do not, which begin anew when the session is erased.
	Began      uint64
	Unadmitted bool  // it ran without an effective allow
	Exact      bool  // what ran is exactly what was admitted
	Now        int64 // Unix milliseconds
}

// CallEndOf derives the effect on money from the record of a call. seq is the record's sequence
// in the log, call the call's key, now its time in Unix milliseconds. Named holds the verdict
// that counts, and Before is empty: WithDecisions adds what the log shows.
//
// A completion spends. A failure does not, but a timeout after the start may have. A denial
// does not, unless the call ran all the same. An abandoned call may have spent if its producer
// announced it.
func CallEndOf(c events.Call, call string, seq uint64, now int64) CallEnd {
	e := CallEnd{
		Effect: effectOf(c), Call: call, Decision: c.DecisionID, Seq: seq, Began: beginning(c), Now: now,
		Unadmitted: c.ExecutionSeq != 0 && c.Verdict != events.Allow, Exact: c.Match == matchEqual,
	}
	if c.DecisionID != "" {
		e.Named = []string{c.DecisionID}
	}
	return e
}

// beginning is the sequence of a call's first own message, as the correlator sees it (details.firstOwnSeq). A question to a user and its answer came before it.
func beginning(c events.Call) uint64 {
	for _, t := range c.Timeline {
		if t.Step != "asked" && t.Step != "approved" {
			return t.Seq
		}
	}
	return 0
}

// WithDecisions adds the decisions of an account's allowances that belong to the call, by their
// sequences in the log; logged returns the sequence of a decision, 0 if unknown.
//
// The call's timeline lists the sequences of its verdicts, the first ones of many. Decisions on
// one proposal that were on the log before the last verdict on the call are on the same call or
// on an earlier one that is over.
func (e CallEnd) WithDecisions(a Account, c events.Call, logged func(decision string) uint64) CallEnd {
	places := map[uint64]bool{}
	for _, t := range c.Timeline {
		if t.Step == "decided" {
			places[t.Seq] = true
		}
	}
	e.Named, e.Before = slices.Clone(e.Named), nil
	for _, x := range a.Allowances {
		if x.Call != e.Call {
			continue
		}
		for _, t := range x.Decisions {
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

// matchEqual is the value of events.Call.Match for a call that ran as admitted.
const matchEqual = "equal"

// timeouts are the outcomes that leave open what happened to a call.
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

// ApplyEnd applies the end of a call; changed is false if it does not concern this account, or
// was applied already. A call may end several times: an abandoned call may complete later, and
// then counts even if the budget is exceeded.
func (a Account) ApplyEnd(e CallEnd) (after Account, changed bool) {
	before, ran := a.priorRun(e)
	switch {
	case e.Effect == NoEffect || e.Seq <= a.newestRecord(e):
		return a, false
	case ran && before.Uncertain && e.Decision == "": // a call without a verdict is counted once
		return a, false
	}
	entry, run := a.countingAllowance(e)
	if run.Amount = max(run.Amount, before.Amount); entry < 0 && !ran && !a.hasCallDecision(e) {
		return a, false
	}
	a.Allowances = slices.Clone(a.Allowances)
	for i, x := range a.Allowances {
		named, had := x.hasNamedDecision(e), x.runOf(e) >= 0
		if !named && !had && i != entry {
			continue
		}
		if x.Runs = slices.DeleteFunc(slices.Clone(x.Runs), func(r Run) bool { return r.Began == e.Began }); i == entry {
			x.Runs, a.Settled = appendRun(x.Runs, run, a.Settled)
		}
		if named {
			x.Decisions = x.endDecisions(e)
		}
		x.Seen, x.At, x.State = e.Seq, e.Now, x.stateAt(e.Now)
		a.Allowances[i] = x
	}
	return a, true
}

// priorRun is what was counted of a call before.
func (a Account) priorRun(e CallEnd) (Run, bool) {
	for _, x := range a.Allowances {
		if at := x.runOf(e); at >= 0 {
			return x.Runs[at], true
		}
	}
	return Run{}, false
}

// hasCallDecision reports whether the account has reserved for a call.
func (a Account) hasCallDecision(e CallEnd) bool {
	return slices.ContainsFunc(a.Allowances, func(x Allowance) bool { return x.hasNamedDecision(e) })
}

// runOf returns the index of a call's run, -1 if there is none. A retry runs under another id than the
// allowance's; only a call without a beginning must have its id.
func (x Allowance) runOf(e CallEnd) int {
	if x.Call != e.Call && e.Began == 0 {
		return -1
	}
	return x.runIndex(e.Began)
}

// isRetry reports whether a call under another id ran by one of the allowance's decisions: it was not asked
// about, and inherits the verdict of the call that it retries.
func (x Allowance) isRetry(e CallEnd) bool {
	return x.Call != e.Call && x.decisionIndex(e.Decision) >= 0
}

// newestRecord is the newest record of a call that was applied.
func (a Account) newestRecord(e CallEnd) (seq uint64) {
	for _, x := range a.Allowances {
		if x.Call == e.Call || x.isRetry(e) || x.runOf(e) >= 0 {
			seq = max(seq, x.Seen)
		}
	}
	return seq
}

// hasNamedDecision reports whether one of the allowance's decisions is on the call that ended.
func (x Allowance) hasNamedDecision(e CallEnd) bool {
	return x.Call == e.Call && slices.ContainsFunc(x.Decisions, func(t AllowedDecision) bool { return slices.Contains(e.Named, t.Decision) })
}

// endDecisions returns the decisions after the end of a call that names the allowance.
func (x Allowance) endDecisions(e CallEnd) []AllowedDecision {
	list := slices.Clone(x.Decisions)
	for i := range list {
		t := &list[i]
		t.Over = t.Over || slices.Contains(e.Named, t.Decision) || slices.Contains(e.Before, t.Decision)
	}
	return list
}

// countingAllowance is the allowance that counts an execution, -1 if none, and what it counts. A call
// runs once, however many allowances its decisions opened. With several it is not certain which
// one ran: a completion names the call's id, and may come late. Then the largest amount counts,
// and all allowances continue to count as long as their receipts are valid. The same applies to
// what ran under the id without an allow.
func (a Account) countingAllowance(e CallEnd) (entry int, run Run) {
	proposal := ""
	for _, x := range a.Allowances {
		if x.Call == e.Call && x.decisionIndex(e.Decision) >= 0 {
			proposal = x.Proposal
		}
	}
	highest, entry, run := 0, -1, Run{Began: e.Began}
	for i, x := range a.Allowances {
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

// How strong the link between an execution and an allowance is.
const (
	rankUnadmitted = iota + 1 // only the call id is the same, or the call retries the allowance's under another id
	rankUsed                  // the allowance has a decision on the call, but another call consumed it
	rankOpen                  // or a decision under its id, if something else may have run
	rankExact                 // or the effective verdict, and what ran is what was admitted
	rankBefore                // the call has consumed it before
)

// matchRank is how strongly an execution is linked to an allowance, 0 if it cannot have consumed
// it. proposal is that of the effective verdict.
func (x Allowance) matchRank(e CallEnd, proposal string) int {
	named, at := x.hasNamedDecision(e), x.runOf(e)
	switch {
	case e.Effect != Settle && e.Effect != SettleExtra:
		return 0
	case x.isRetry(e) || x.Call != e.Call && at >= 0: // counted before, whatever was decided on its own id since
		return rankUnadmitted // the allowance's own call may run as well, as long as its receipt is valid
	case x.Call != e.Call:
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

// appendRun adds a run. If the allowance is full, the amount is added to what is spent outside the
// allowances.
func appendRun(list []Run, r Run, settled int64) ([]Run, int64) {
	if len(list) >= maxRuns {
		return list, addCapped(settled, r.Amount)
	}
	return append(list, r), settled
}
