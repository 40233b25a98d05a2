package proof

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/evidencereader"
	"github.com/countersign-dev/countersign/storage"
)

// An expired record must not look like one that never existed. Every command that lists evidence
// reports what is not in the list.

// WhyExpired returns, by sequence, why rows have no text.
func WhyExpired(ctx context.Context, reasons *evidencereader.ExpiryReasons, rows []evidence.Row) (map[uint64]string, error) {
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

// NoteExpired prints on standard error how many records of a session (or of the tenant, if
// session is "") have expired, and what that means for the answer.
func NoteExpired(ctx context.Context, io ui.Stdio, l evidencereader.Reader, tenant, session, meaning string) error {
	gone, err := l.DB.CountExpired(ctx, tenant, session)
	if err != nil || gone.Records == 0 {
		return err
	}
	why, err := l.NewExpiryReasons().ReasonFor(ctx, evidence.Row{Shard: gone.Shard, Expiry: gone.Expiry})
	if err != nil {
		return err
	}
	where := fmt.Sprintf(" of %s", ui.Plural(int(gone.Sessions), "session"))
	if session != "" {
		where = " of session " + ui.Clean(session, 60)
	}
	fmt.Fprintf(io.Err, "note: %s%s %s: the newest %s; %s\n", ui.Plural(int(gone.Records), "record"), where, "have no text any more", ui.Clean(why, 200), meaning)
	return nil
}

// NotListed is the meaning of an expiry for a list.
const NotListed = "what they held is not in this list"

// RowScan passes rows to a function in the order of the log.
type RowScan func(func(storage.EvidenceRow) error) error

// ExpiredRows counts rows without a text while others are passed on.
type ExpiredRows struct {
	reasons *evidencereader.ExpiryReasons
	why     map[string]int
}

// NewExpiredRows counts rows of the evidence that l reads.
func NewExpiredRows(l evidencereader.Reader) *ExpiredRows {
	return &ExpiredRows{l.NewExpiryReasons(), map[string]int{}}
}

// Expired reports whether a row has no text.
func (e *ExpiredRows) Expired(ctx context.Context, r storage.EvidenceRow) (bool, error) {
	why, err := e.reasons.ReasonFor(ctx, evidence.Row{Shard: r.Shard, Seq: r.Seq, Record: r.Record, Expiry: r.Expiry})
	if why != "" {
		e.why[why]++
	}
	return why != "", err
}

// WithText returns a scan of the rows that have a text; it counts the others.
func (e *ExpiredRows) WithText(ctx context.Context, scan RowScan) RowScan {
	return func(fn func(storage.EvidenceRow) error) error {
		return scan(func(r storage.EvidenceRow) error {
			if gone, err := e.Expired(ctx, r); gone || err != nil {
				return err
			}
			return fn(r)
		})
	}
}

// Note prints what was left out.
func (e *ExpiredRows) Note(io ui.Stdio, what string) {
	for _, why := range slices.Sorted(maps.Keys(e.why)) {
		fmt.Fprintf(io.Err, "note: %s %s: %s\n", ui.Plural(e.why[why], "record"), what, ui.Clean(why, 200))
	}
}
