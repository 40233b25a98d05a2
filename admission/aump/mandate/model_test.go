package mandate

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/countersign-dev/countersign/events"
)

const modelBudget = int64(1000)

// world is a model of everything around an account: callers, the log, a
// correlator that pairs by call id, executors that use one receipt of an
// allowance, and an admitter that reads the log late.
type world struct {
	t          *rapid.T
	now        int64
	seq        uint64
	account    Account
	decisions  []*decided // that were answered with an allow
	lost       []string   // that never came to the log
	calls      map[string][]*occurrence
	log        []called
	applied    int
	logged     map[string]uint64
	allowances map[string]*allowance
	excess     int64 // reported as completed after its call was over
	number     int
}

type decided struct {
	id, call  string
	amount    int64
	allowance *allowance
	of        *occurrence
	expires   int64
}

// allowance is what the receipts of one nonce stand for.
type allowance struct {
	amount    int64
	expires   int64 // of its last receipt
	used      bool
	reported  bool // as completed
	decisions []*decided
}

// occurrence is a call as the correlator knows it.
type occurrence struct {
	number    int
	began     uint64
	call      string
	amount    int64 // its action
	state     events.CallState
	verdict   events.Verdict
	last      string
	lastSeq   uint64
	places    []uint64
	post      bool
	executed  uint64
	match     string
	announced bool
}

type called struct {
	seq  uint64
	at   int64
	call string
	c    events.Call
}

func (w *world) next() uint64 { w.seq++; return w.seq }

// put is the correlator's record of a call.
func (w *world) put(o *occurrence) {
	c := events.Call{
		State: o.state, Occurrence: o.number, DecisionID: o.last, DecisionSeq: o.lastSeq, Verdict: o.verdict, ExecutionSeq: o.executed, Match: o.match,
		Timeline: []events.TimelineEntry{{Step: "asked", Seq: 1}, {Step: "requested", Seq: o.began}},
	}
	for _, seq := range o.places[:min(3, len(o.places))] {
		c.Timeline = append(c.Timeline, events.TimelineEntry{Step: "decided", Seq: seq})
	}
	if o.announced {
		c.Timeline = append(c.Timeline, events.TimelineEntry{Step: "invoked"})
	}
	w.log = append(w.log, called{w.next(), w.now, "c-" + o.call, c})
}

// decide is a verdict on the log: it joins the open call of the same action.
func (w *world) decide(call string, amount int64, id string, v events.Verdict) *occurrence {
	var o *occurrence
	for _, x := range w.calls[call] {
		if o == nil && x.state == events.CallOpen && x.amount == amount {
			o = x
		}
	}
	if o == nil {
		o = &occurrence{number: len(w.calls[call]) + 1, began: w.next(), call: call, amount: amount, state: events.CallOpen}
		w.calls[call] = append(w.calls[call], o)
	}
	o.last, o.lastSeq, o.verdict = id, w.next(), v
	o.places = append(o.places, o.lastSeq)
	if v == events.Allow {
		w.logged[id] = o.lastSeq
	} else {
		o.state = events.CallDenied
		w.put(o)
	}
	return o
}

// ask is one admission; fate is what becomes of its record.
func (w *world) ask(call string, amount int64, fate string) {
	w.number++
	t := ticket(fmt.Sprintf("d%04d", w.number), call, amount)
	t.Now, t.Expires, t.After = w.now, w.now+60*second, w.seq
	next, allowed, err := w.account.Reserve(t)
	if err != nil {
		w.decide(call, amount, t.Decision, events.Deny)
		return
	}
	w.account = next
	if fate == "refused" {
		w.account = w.account.UndoReserve(t)
		return
	}
	if fate == "crash" {
		w.lost = append(w.lost, t.Decision)
		return
	}
	d := &decided{id: t.Decision, call: call, amount: amount, expires: min(t.Expires, allowed.Until)}
	if call == "" { // settled at once
		w.allowances[t.Decision] = &allowance{amount: amount, used: true, reported: true}
		return
	}
	a := w.allowances[allowed.ID]
	if a == nil {
		a = &allowance{amount: amount}
		w.allowances[allowed.ID] = a
	}
	a.expires, a.decisions, d.allowance = max(a.expires, d.expires), append(a.decisions, d), a
	d.of = w.decide(call, amount, d.id, events.Allow)
	w.decisions = append(w.decisions, d)
}

// run has an executor run what a receipt allows, and the runtime report it as it
// likes: truthfully, or not at all.
func (w *world) run(d *decided, report string) {
	if d.allowance.used || w.now > d.expires+releaseGrace {
		return
	}
	d.allowance.used = true
	if report != "silent" {
		w.report(d, report)
	}
}

// report is a completion, true or not: it names the call's id, and the correlator
// finds the call that it ends.
func (w *world) report(d *decided, outcome string) {
	o := w.completes(d.call, d.amount)
	if outcome == "completed" && d.allowance.used {
		if d.allowance.over() {
			w.excess += d.allowance.amount
		}
		d.allowance.reported = true
	}
	o.post, o.executed = true, w.next()
	o.match = "drift"
	if o.amount == d.amount {
		o.match = matchEqual
	}
	switch {
	case o.state == events.CallOrphaned:
		o.match = ""
	case outcome == "failed":
		o.state = events.CallFailed
	default:
		o.state = events.CallCompleted
	}
	w.put(o)
}

func (w *world) completes(call string, amount int64) *occurrence {
	list := w.calls[call]
	if i := slices.IndexFunc(list, func(o *occurrence) bool { return o.state == events.CallOpen }); i >= 0 {
		return list[i]
	}
	for _, same := range []bool{true, false} {
		for _, o := range slices.Backward(list) {
			if !o.post && o.state != events.CallOrphaned && (!same || o.amount == amount) {
				return o
			}
		}
	}
	o := &occurrence{number: len(list) + 1, began: w.next(), call: call, amount: amount, state: events.CallOrphaned}
	w.calls[call] = append(list, o)
	return o
}

// giveUp closes a call that nothing was heard of.
func (w *world) giveUp(o *occurrence) {
	if o.state == events.CallOpen {
		o.state = events.CallAbandoned
		w.put(o)
	}
}

// apply reads the log on for so many records.
func (w *world) apply(records int) {
	for ; records > 0 && w.applied < len(w.log); records-- {
		r := w.log[w.applied]
		w.applied++
		logged := func(d string) uint64 {
			if seq := w.logged[d]; seq < r.seq {
				return seq
			}
			return 0
		}
		w.account, _ = w.account.ApplyEnd(CallEndOf(r.c, r.call, r.seq, r.at).WithDecisions(w.account, r.c, logged))
	}
}

// over reports whether every call of an allowance is over, and none of them was
// completed on it. That a call was announced and then given up speaks for the
// allowance of its last decision.
func (a *allowance) over() bool {
	return !a.reported && !slices.ContainsFunc(a.decisions, func(d *decided) bool {
		return d.of.state == events.CallOpen || d.of.state == events.CallAbandoned && d.of.announced && d.of.last == d.id
	})
}

// forgiven reports whether an allowance counts no more: its calls are over, and no
// receipt holds.
func (w *world) forgiven(a *allowance) bool { return a.over() && w.now > a.expires+releaseGrace }

// check holds the account against the model.
func (w *world) check(step string) {
	sum := int64(0)
	for _, a := range w.allowances {
		live := !a.used && w.now <= a.expires+releaseGrace
		if live || a.used && !w.forgiven(a) {
			sum += a.amount
		}
	}
	s := w.account.Spend("", w.now)
	switch {
	case sum > modelBudget+w.excess:
		w.t.Fatalf("after %s: %d live and used, %d of it late: %s", step, sum, w.excess, textAt(w.account, w.now))
	case w.applied == len(w.log) && s.Settled+s.Reserved < sum-w.excess:
		w.t.Fatalf("after %s: %d live and used, the account has %s", step, sum, textAt(w.account, w.now))
	}
}

func (w *world) step() string {
	t := w.t
	call := rapid.SampledFrom([]string{"1", "1", "2", ""}).Draw(t, "call")
	amount := rapid.SampledFrom([]int64{100, 400, 600}).Draw(t, "amount")
	step := rapid.SampledFrom([]string{"ask", "ask", "ask", "deny", "run", "run", "run", "report", "give up", "announce", "apply", "apply", "apply all",
		"read again", "pass", "sweep", "erase"}).Draw(t, "step")
	switch step {
	case "ask":
		w.ask(call, amount, rapid.SampledFrom([]string{"recorded", "recorded", "recorded", "refused", "crash"}).Draw(t, "fate"))
	case "deny":
		w.number++
		w.decide(call, amount, fmt.Sprintf("d%04d", w.number), events.Deny)
	case "run", "report":
		if len(w.decisions) == 0 {
			break
		}
		d := rapid.SampledFrom(w.decisions).Draw(t, "decision")
		how := rapid.SampledFrom([]string{"completed", "completed", "failed", "silent"}).Draw(t, "outcome")
		if step == "run" {
			w.run(d, how)
		} else if !d.allowance.reported && how != "silent" {
			w.report(d, how)
		}
	case "give up", "announce":
		if list := w.calls[call]; len(list) > 0 {
			o := rapid.SampledFrom(list).Draw(t, "occurrence")
			if step == "announce" {
				o.announced = o.announced || o.state == events.CallOpen
			} else {
				w.giveUp(o)
			}
		}
	case "apply":
		w.apply(1)
	case "apply all":
		w.apply(len(w.log))
	case "read again":
		at := w.applied
		w.applied = 0
		w.apply(at)
	case "pass":
		w.now += rapid.SampledFrom([]int64{1, 20, 59, 61, 95, 1000}).Draw(t, "seconds") * second
	case "erase": // the correlator forgets the session, and hears no more of its open calls
		for _, list := range w.calls {
			for _, o := range list {
				if o.state == events.CallOpen {
					o.state, o.announced = events.CallAbandoned, false
				}
			}
		}
		clear(w.calls)
	case "sweep":
		w.account = w.account.DropDecisions(w.lost, w.now).Pruned(w.now)
	}
	return step
}

// TestAllowancesStayWithinTheBudget: whatever is asked, denied, asked again,
// reported, given up or left open, by any number of callers, in any order, with
// crashes and with an admitter that reads the log late: what can still be used
// and what was used is never more than the budget. Only what is reported as
// completed after its call was over comes on top.
func TestAllowancesStayWithinTheBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{t: t, now: start, seq: 100, calls: map[string][]*occurrence{}, logged: map[string]uint64{}, allowances: map[string]*allowance{}}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			w.check(w.step())
		}
		w.apply(len(w.log))
		w.check("the end")
	})
}
