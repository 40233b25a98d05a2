package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/internal/evidencereader"
	"github.com/countersign-dev/countersign/storage"
)

// Whoever reads evidence must not take what has expired for what never was: every
// command that lists some of it says what is not in the list.

// whyGone says of the rows without a text why that is so, by their sequences.
func whyGone(ctx context.Context, reasons *evidencereader.ExpiryReasons, rows []evidence.Row) (map[uint64]string, error) {
	list := map[uint64]string{}
	for _, r := range rows {
		why, err := reasons.ReasonFor(ctx, r)
		if err != nil {
			return nil, err
		}
		if why != "" {
			list[r.Seq] = why
		}
	}
	return list, nil
}

// noteExpired says on standard error how much of what was asked for has expired,
// of a session or, with none, of the tenant, and what that means for the answer.
func noteExpired(ctx context.Context, io stdio, l evidencereader.Reader, tenant, session, meaning string) error {
	gone, err := l.DB.CountExpired(ctx, tenant, session)
	if err != nil || gone.Records == 0 {
		return err
	}
	why, err := l.Reasons().ReasonFor(ctx, evidence.Row{Shard: gone.Shard, Expiry: gone.Expiry})
	if err != nil {
		return err
	}
	where := fmt.Sprintf(" of %s", plural(int(gone.Sessions), "session"))
	if session != "" {
		where = " of session " + clean(session, 60)
	}
	fmt.Fprintf(io.err, "note: %s%s %s: the newest %s; %s\n", plural(int(gone.Records), "record"), where, "have no text any more", clean(why, 200), meaning)
	return nil
}

// notListed is what an expiry means for a list.
const notListed = "what they held is not in this list"

// expiredRows counts rows without a text while others are handed on.
type expiredRows struct {
	reasons *evidencereader.ExpiryReasons
	why     map[string]int
}

func newExpiredRows(l evidencereader.Reader) *expiredRows {
	return &expiredRows{l.Reasons(), map[string]int{}}
}

// take reports whether a row has no text.
func (e *expiredRows) take(ctx context.Context, r storage.EvidenceRow) (bool, error) {
	why, err := e.reasons.ReasonFor(ctx, evidence.Row{Shard: r.Shard, Seq: r.Seq, Record: r.Record, Expiry: r.Expiry})
	if why != "" {
		e.why[why]++
	}
	return why != "", err
}

// of passes on the rows that have their text.
func (e *expiredRows) of(ctx context.Context, scan scanFunc) scanFunc {
	return func(fn func(storage.EvidenceRow) error) error {
		return scan(func(r storage.EvidenceRow) error {
			if gone, err := e.take(ctx, r); gone || err != nil {
				return err
			}
			return fn(r)
		})
	}
}

// note says what was left out.
func (e *expiredRows) note(io stdio, what string) {
	for _, why := range slices.Sorted(maps.Keys(e.why)) {
		fmt.Fprintf(io.err, "note: %s %s: %s\n", plural(e.why[why], "record"), what, clean(why, 200))
	}
}
