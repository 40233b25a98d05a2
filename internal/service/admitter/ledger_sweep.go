package admitter

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/streams"
)

// headerEventID is the header with the id of a logged record; a decision's is its decision id.
const headerEventID = "ce-id"

// maxRecorded bounds how many found decisions are remembered; beyond it they are searched again.
const maxRecorded = 10_000

// errStopSearch ends a search in the log.
var errStopSearch = errors.New("searched")

// runSweeps runs sweepReservations at regular intervals.
func (l *spendLedger) runSweeps(ctx context.Context) {
	tick := time.NewTicker(sweepLedgerEvery)
	defer tick.Stop()
	for {
		if err := l.sweepReservations(ctx, time.Now()); err != nil && ctx.Err() == nil {
			l.s.env.Log.Warn().Err(err).Msg("reservations could not be looked through; money of calls that will not run stays reserved for now")
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// sweepReservations releases money that can never be spent: of admissions with a decision that is not
// in the log, so that no caller was told an allow, and of lapsed entries that have no valid
// receipt any more. It also forgets old closed entries.
func (l *spendLedger) sweepReservations(ctx context.Context, now time.Time) error {
	var errs []error
	for _, a := range l.waitingAccounts() {
		state, _, _ := a.snapshot()
		for _, e := range state.Allowances {
			if e.State != mandate.AllowanceReserved || now.UnixMilli()-e.At < unrecordedAfter.Milliseconds() {
				continue
			}
			lost, err := l.unrecordedDecisions(ctx, a, e)
			if err == nil && len(lost) > 0 {
				err = a.changeState(ctx, func(acc mandate.Account) (mandate.Account, bool, error) {
					return acc.DropDecisions(lost, now.UnixMilli()), true, nil
				})
			}
			errs = append(errs, err)
		}
		errs = append(errs, a.changeState(ctx, func(acc mandate.Account) (mandate.Account, bool, error) {
			next := acc.Pruned(now.UnixMilli())
			same := slices.EqualFunc(acc.Allowances, next.Allowances, func(a, b mandate.Allowance) bool { return a.State == b.State })
			return next, !same, nil
		}))
	}
	return errors.Join(errs...)
}

// unrecordedDecisions lists the awaited decisions of an entry that are not in the log.
func (l *spendLedger) unrecordedDecisions(ctx context.Context, a *spendAccount, e mandate.Allowance) (lost []string, err error) {
	for _, t := range e.Decisions {
		if !t.Over && !l.recorded[t.Decision] {
			lost = append(lost, t.Decision)
		}
	}
	if len(lost) == 0 {
		return nil, nil
	}
	st, err := streams.StreamState(ctx, l.js, l.s.flags.Stream)
	if err != nil || st.FirstSeq > e.After+1 { // messages before FirstSeq are gone and may have held them
		return nil, err
	}
	if len(l.recorded) >= maxRecorded {
		clear(l.recorded)
	}
	err = streams.ReadLog(ctx, l.js, streams.ReadOptions{
		Stream: l.s.flags.Stream, From: min(e.After, st.LastSeq) + 1, Log: l.s.env.Log, Stalled: l.s.env.Metrics.ReaderStalled,
		Filter: []string{l.allowPrefix() + a.tenant + "." + string(events.Allow) + "." + e.Session},
		Idle:   func() error { return errStopSearch },
	}, func(batch []events.LogMessage) error {
		for _, m := range batch {
			if i := slices.Index(lost, m.HeaderValue(headerEventID)); i >= 0 {
				l.recorded[lost[i]] = true
				lost = slices.Delete(lost, i, i+1)
			}
		}
		if len(lost) == 0 {
			return errStopSearch
		}
		return nil
	})
	if !errors.Is(err, errStopSearch) {
		return nil, err
	}
	if len(lost) == 0 {
		return nil, nil
	}
	erased, err := l.mayBeErased(ctx, e.After)
	if err != nil || !erased {
		return lost, err
	}
	for _, d := range lost { // their calls may have run: the money stays reserved
		l.recorded[d] = true
	}
	return nil, nil
}

// mayBeErased reports whether something of the log behind a sequence was or is being erased (TestErasedAllow). What a
// record names is erased after the record is stored.
func (l *spendLedger) mayBeErased(ctx context.Context, after uint64) (bool, error) {
	for m, err := range streams.EachLinked(ctx, l.js, l.s.flags.Stream, l.s.flags.Space().Control(l.s.flags.Stream, events.ControlErasure), after+1) {
		if err != nil {
			return false, err
		}
		e, err := events.DecodeRecord[events.Erasure](m.Body)
		if err != nil || slices.ContainsFunc(e.Sequences, func(s events.Span) bool { return s[1] > after }) {
			return true, nil
		}
	}
	return false, nil
}
