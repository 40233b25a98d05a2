package admitter

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/streams"
)

// errNothingPending ends the reading of call records when no money waits for one.
var errNothingPending = errors.New("no money waits for the end of a call")

// endStates are the call states that settle reserved money.
var endStates = []events.CallState{
	events.CallCompleted, events.CallFailed, events.CallDenied, events.CallAbandoned, events.CallOrphaned,
}

// maxLogged bounds the decision positions that are kept. At the bound, positions that no account
// names are dropped.
const maxLogged = 10_000

// followCalls reads allow decisions and ends of calls while money waits for them. It begins
// behind the oldest reservation, so it catches up with what happened while no admitter ran.
// Records that were applied before are recognised.
func (l *spendLedger) followCalls(ctx context.Context) {
	filter := []string{l.allowPrefix() + "*." + string(events.Allow) + ".>"}
	for _, state := range endStates {
		filter = append(filter, l.callPrefix()+"*."+string(state)+".>")
	}
	for ctx.Err() == nil {
		from, found := l.earliestEnd()
		if !found {
			select {
			case <-l.wake:
			case <-ctx.Done():
			}
			continue
		}
		err := l.readCalls(ctx, from, filter)
		if err == nil || errors.Is(err, errNothingPending) || ctx.Err() != nil {
			l.s.env.Health.Set("spend_calls", "")
			continue
		}
		l.s.env.Log.Error().Err(err).Msg("the ends of calls cannot be followed; money stays reserved")
		l.s.env.Health.Set("spend_calls", "the ends of calls cannot be followed, money stays reserved: "+err.Error())
		_ = retry.Sleep(ctx, recordRetry)
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
			if _, found := l.earliestEnd(); !found {
				return errNothingPending
			}
			l.s.env.Health.Set("spend_calls", "")
			return nil
		},
	}, func(batch []events.LogMessage) error { return l.applyCalls(ctx, batch) })
}

// callPrefix is the prefix of the subjects of call records.
func (l *spendLedger) callPrefix() string {
	return strings.TrimSuffix(l.s.space.All(subject.Calls), ">")
}

// allowPrefix is the prefix of the subjects of decisions.
func (l *spendLedger) allowPrefix() string {
	return strings.TrimSuffix(l.s.space.All(subject.Decisions), ">")
}

// earliestEnd is the first sequence that can hold the end of a call for which money waits.
func (l *spendLedger) earliestEnd() (seq uint64, found bool) {
	now := time.Now().UnixMilli()
	for _, a := range l.waitingAccounts() {
		state, _, _ := a.snapshot()
		for _, e := range state.Allowances {
			if e.AcceptsRecords(now) && (!found || e.After+1 < seq) {
				seq, found = e.After+1, true
			}
		}
	}
	return seq, found
}

// applyCalls applies call records. Another admitter may have made the reservations that they
// concern. It writes a reservation to the bucket before the decision to the log, so an admitter
// that reads the whole bucket after a record knows every reservation that the record concerns.
func (l *spendLedger) applyCalls(ctx context.Context, batch []events.LogMessage) error {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if err := l.follower.caughtUp(ctx); err != nil {
		return err
	}
	ends := map[*spendAccount][]recordedEnd{}
	for _, m := range batch {
		rest, allow := strings.CutPrefix(m.Subject, l.allowPrefix())
		if !allow {
			rest = strings.TrimPrefix(m.Subject, l.callPrefix())
		}
		tokens := strings.Split(rest, ".") // <tenant>.<verdict or state>.<session>
		if len(tokens) != 3 {
			continue
		}
		accounts := l.accountsOf(spendSession{tokens[0], tokens[2]})
		if len(accounts) == 0 {
			continue
		}
		if allow {
			l.noteLogged(accounts, m.HeaderValue(headerEventID), m.Seq)
			continue
		}
		if e, ok := l.decodeEnd(m); ok {
			for _, a := range accounts {
				ends[a] = append(ends[a], e)
			}
		}
	}
	return l.applyEnds(ctx, ends)
}

// recordedEnd is the end of a call, and the record that says so.
type recordedEnd struct {
	end  mandate.CallEnd
	call events.Call
}

func (l *spendLedger) decodeEnd(m events.LogMessage) (e recordedEnd, ok bool) {
	c, err := events.DecodeRecord[events.Call](m.Body)
	if err != nil || c.ToolCallID == "" && c.DecisionID == "" {
		return e, false
	}
	call := mandate.CallKey(l.s.master.Tenant(c.Tenant), c.Tenant, c.Source, c.Session, c.ToolCallID)
	return recordedEnd{mandate.CallEndOf(c, call, m.Seq, m.Time.UnixMilli()), c}, true
}

// applyEnds applies the ends of calls to the accounts that wait for them. An account is written once,
// however many ends it has: tenants share one reader, and no account may keep the others waiting for
// long.
func (l *spendLedger) applyEnds(ctx context.Context, ends map[*spendAccount][]recordedEnd) error {
	var errs []error
	for a, list := range ends {
		err := a.changeState(ctx, func(acc mandate.Account) (mandate.Account, bool, error) {
			changed := false
			for _, e := range list {
				next, applied := acc.ApplyEnd(e.end.WithDecisions(acc, e.call, l.loggedAt))
				acc, changed = next, changed || applied
			}
			return acc, changed, nil
		})
		if err != nil && !errors.Is(err, errUnreadable) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// noteLogged keeps the log sequence of a decision that an account names.
func (l *spendLedger) noteLogged(accounts []*spendAccount, decision string, seq uint64) {
	named := func(a *spendAccount) bool {
		state, _, _ := a.snapshot()
		return state.HasDecision(decision)
	}
	if !slices.ContainsFunc(accounts, named) {
		return
	}
	var known map[string]bool
	if len(l.logged) >= maxLogged { // only followCalls writes it
		known = l.namedDecisions()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.logged[decision] = seq
	if known != nil {
		maps.DeleteFunc(l.logged, func(d string, _ uint64) bool { return d != decision && !known[d] })
	}
}

// namedDecisions is the set of decisions that the waiting accounts name.
func (l *spendLedger) namedDecisions() map[string]bool {
	known := map[string]bool{}
	for _, a := range l.waitingAccounts() {
		state, _, _ := a.snapshot()
		for _, e := range state.Allowances {
			for _, t := range e.Decisions {
				known[t.Decision] = true
			}
		}
	}
	return known
}

// loggedAt is the log sequence of a decision, 0 if unknown.
func (l *spendLedger) loggedAt(decision string) uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.logged[decision]
}
