package admitter

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/streams"
)

// headerEventID is the id of a logged record: of a decision, its own.
const headerEventID = "ce-id"

// maxRecorded bounds how many found decisions are remembered; beyond it they are
// looked for again.
const maxRecorded = 10_000

// Ends of a search in the log.
var (
	errFound    = errors.New("found")
	errSearched = errors.New("not found")
)

// sweeps looks the reservations through now and then.
func (l *spendLedger) sweeps(ctx context.Context) {
	tick := time.NewTicker(lookThroughEvery)
	defer tick.Stop()
	for {
		if err := l.sweep(ctx, time.Now()); err != nil && ctx.Err() == nil {
			l.s.env.Log.Warn().Err(err).Msg("reservations could not be looked through; money that nobody will spend stays reserved for now")
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// sweep releases what can never be spent: the money of admissions whose decision
// is not in the log, so that nobody was ever told an allow, and what lapsed and
// has no valid receipt any more. It also forgets closed entries that are old.
func (l *spendLedger) sweep(ctx context.Context, now time.Time) error {
	var errs []error
	for _, a := range l.all() {
		state, _, _ := a.now()
		for _, e := range state.Entries {
			if e.State != mandate.EntryReserved || now.Unix()-e.At < int64(unrecordedAfter/time.Second) {
				continue
			}
			recorded, err := l.isRecorded(ctx, a, e)
			if err == nil && !recorded {
				err = a.change(ctx, func(acc mandate.Account) (mandate.Account, bool, error) { return acc.Drop(e), true, nil })
			}
			errs = append(errs, err)
		}
		errs = append(errs, a.change(ctx, func(acc mandate.Account) (mandate.Account, bool, error) {
			next := acc.Tidied(now.Unix())
			same := slices.EqualFunc(acc.Entries, next.Entries, func(a, b mandate.Entry) bool { return a.State == b.State })
			return next, !same, nil
		}))
	}
	return errors.Join(errs...)
}

// isRecorded reports whether one of the decisions that an entry is for is in the
// log.
func (l *spendLedger) isRecorded(ctx context.Context, a *spendAccount, e mandate.Entry) (bool, error) {
	last := e.Decisions[len(e.Decisions)-1]
	if l.recorded[last] {
		return true, nil
	}
	st, err := streams.StreamState(ctx, l.js, l.s.flags.Stream)
	if err != nil {
		return false, err
	}
	decisions := strings.TrimSuffix(l.s.space.All(subject.Decisions), ">")
	err = streams.ReadLog(ctx, l.js, streams.ReadOptions{
		Stream: l.s.flags.Stream, From: min(e.After, st.LastSeq) + 1, Log: l.s.env.Log, Stalled: l.s.env.Metrics.ReaderStalled,
		Filter: []string{decisions + a.tenant + "." + string(events.Allow) + "." + e.Session},
		Idle:   func() error { return errSearched },
	}, func(batch []events.LogMessage) error {
		if slices.ContainsFunc(batch, func(m events.LogMessage) bool { return slices.Contains(e.Decisions, m.HeaderValue(headerEventID)) }) {
			return errFound
		}
		return nil
	})
	switch {
	case errors.Is(err, errFound):
		if len(l.recorded) >= maxRecorded {
			clear(l.recorded)
		}
		l.recorded[last] = true
		return true, nil
	case errors.Is(err, errSearched):
		return false, nil
	}
	return false, err
}
