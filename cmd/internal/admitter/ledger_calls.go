package admitter

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/streams"
)

// errQuiet ends the reading of call records when no money waits for any.
var errQuiet = errors.New("no money waits for the end of a call")

// endings are the states of a call that say something about money.
var endings = []events.CallState{
	events.CallCompleted, events.CallFailed, events.CallDenied, events.CallAbandoned, events.CallOrphaned,
}

// followCalls reads how calls end for as long as there is money that waits for
// it. It begins behind the oldest reservation, so what happened while no admitter
// was there is caught up with; what was applied before is recognised.
func (l *spendLedger) followCalls(ctx context.Context) {
	filter := make([]string, len(endings))
	for i, state := range endings {
		filter[i] = l.calls() + "*." + string(state) + ".>"
	}
	for ctx.Err() == nil {
		from, any := l.earliest()
		if !any {
			select {
			case <-l.wake:
			case <-ctx.Done():
			}
			continue
		}
		err := l.readCalls(ctx, from, filter)
		if err == nil || errors.Is(err, errQuiet) || ctx.Err() != nil {
			l.s.env.Health.Set("spend_calls", "")
			continue
		}
		l.s.env.Log.Error().Err(err).Msg("the ends of calls cannot be followed; money stays reserved")
		l.s.env.Health.Set("spend_calls", "the ends of calls cannot be followed, money stays reserved: "+err.Error())
		select {
		case <-time.After(recordAgain):
		case <-ctx.Done():
		}
	}
}

func (l *spendLedger) readCalls(ctx context.Context, from uint64, filter []string) error {
	st, err := streams.StreamState(ctx, l.js, l.s.flags.Stream)
	if err != nil {
		return err
	}
	return streams.ReadLog(ctx, l.js, streams.ReadOptions{
		Stream: l.s.flags.Stream, From: min(from, st.LastSeq+1), Filter: filter, Log: l.s.env.Log, Stalled: l.s.env.Metrics.ReaderStalled,
		Idle: func() error {
			if _, any := l.earliest(); !any {
				return errQuiet
			}
			l.s.env.Health.Set("spend_calls", "")
			return nil
		},
	}, func(batch []events.LogMessage) error { return l.ended(ctx, batch) })
}

// calls is what the subjects of call records begin with.
func (l *spendLedger) calls() string { return strings.TrimSuffix(l.s.space.All(subject.Calls), ">") }

// earliest is the first sequence at which the end of a call can be that any money
// waits for.
func (l *spendLedger) earliest() (seq uint64, any bool) {
	now := time.Now().Unix()
	for _, a := range l.all() {
		state, _, _ := a.now()
		for _, e := range state.Entries {
			if e.Counts(now) && (!any || e.After+1 < seq) {
				seq, any = e.After+1, true
			}
		}
	}
	return seq, any
}

// ended applies call records. Another admitter may have reserved what they are
// about: its reservation is in the bucket before its decision is in the log, so
// whoever has the whole bucket after reading a record knows all that it concerns.
func (l *spendLedger) ended(ctx context.Context, batch []events.LogMessage) error {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if err := l.follower.caughtUp(ctx); err != nil {
		return err
	}
	for _, m := range batch {
		// <tenant>.<state>.<session>
		tokens := strings.Split(strings.TrimPrefix(m.Subject, l.calls()), ".")
		if len(tokens) != 3 {
			continue
		}
		accounts := l.of(spendSession{tokens[0], tokens[2]})
		if len(accounts) == 0 {
			continue
		}
		c, err := events.DecodeRecord[events.Call](m.Body)
		if err != nil || c.ToolCallID == "" {
			continue
		}
		call := mandate.CallKey(l.s.master.Tenant(c.Tenant), c.Tenant, c.Source, c.Session, c.ToolCallID)
		end := mandate.EndingOf(c, call, m.Seq, m.Time.Unix())
		for _, a := range accounts {
			err := a.change(ctx, func(acc mandate.Account) (mandate.Account, bool, error) {
				next, changed := acc.End(end)
				return next, changed, nil
			})
			if err != nil && !errors.Is(err, errUnreadable) {
				return err
			}
		}
	}
	return nil
}
