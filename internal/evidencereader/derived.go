package evidencereader

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/verify"
	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/read"
	"github.com/countersign-dev/countersign/storage/schema"
)

// An insert reaches the derived tables a moment after or before the evidence, and an expiry is
// carried out in steps. So a difference counts only if it persists.
const (
	derivedAttempts = 3
	derivedPause    = 500 * time.Millisecond
	// derivedWindow is how many sequences are compared at a time. The server holds their derived
	// rows twice meanwhile, some kilobytes each.
	derivedWindow = 1 << 16
)

// compareDerived compares the derived tables with the records of a range of a shard, a window at
// a time. If to is storage.AllSequences, it also searches for rows behind the last window.
func (rd Reader) compareDerived(ctx context.Context, shard string, from, to uint64, o VerifyOptions) (list []verify.Finding, err error) {
	ranges, err := rd.DB.Ranges(ctx, shard, from, to, cmp.Or(o.stretch, derivedWindow))
	if err != nil {
		return nil, err
	}
	unfinished, err := rd.unfinishedExpiries(ctx, shard)
	if err != nil {
		return nil, err
	}
	if len(ranges) == 0 {
		ranges = []read.Range{{}}
	}
	ranges[len(ranges)-1].To = to
	for _, r := range ranges {
		found, err := rd.lastingDerived(ctx, shard, from, r.To, unfinished, cmp.Or(o.pause, derivedPause))
		if err != nil {
			return nil, err
		}
		for _, d := range found {
			list = append(list, derivedFinding(d))
		}
		from = r.To + 1
	}
	return list, nil
}

// lastingDerived lists the differences in a window that remain after inserts under way have
// ended.
func (rd Reader) lastingDerived(ctx context.Context, shard string, from, to uint64, unfinished expiringSpans, pause time.Duration) (found []schema.DerivedRow, err error) {
	type place struct {
		table string
		seq   uint64
	}
	var before map[place]bool
	var tables []string // all at first, then those with differences
	for attempt := range derivedAttempts {
		found = nil
		err = schema.Compare(ctx, rd.DB.Pool(), shard, from, to, tables, func(d schema.DerivedRow) error {
			lasts := before == nil || before[place{d.Table, d.Seq}]
			if lasts && !(d.NoText && d.Lacks == 0 && unfinished.containsSeq(d.Seq)) {
				found = append(found, d)
			}
			return nil
		})
		if err != nil || len(found) == 0 || attempt == derivedAttempts-1 {
			break
		}
		before, tables = map[place]bool{}, nil
		for _, d := range found {
			if before[place{d.Table, d.Seq}] = true; !slices.Contains(tables, d.Table) {
				tables = append(tables, d.Table)
			}
		}
		if err := retry.Sleep(ctx, pause); err != nil {
			return nil, err
		}
	}
	if err != nil {
		return nil, fmt.Errorf("comparing the derived tables with the records from sequence %d to %d: %w", from, to, err)
	}
	return found, nil
}

func derivedFinding(d schema.DerivedRow) verify.Finding {
	says := ""
	switch {
	case d.Table == "evidence":
		says = "the columns session_index, redacted and expiry are not what the text gives"
	case d.Lacks > 0 && d.Extra > 0:
		says = "the row is not what the record gives: it was changed"
	case d.Lacks > 0:
		says = "the row that the record gives is missing"
	case d.NoText:
		says = "there is a row of a record whose text is gone: nothing gives it"
	default:
		says = "there is a row, or one more, that no record gives"
	}
	return verify.Finding{Code: verify.CodeDerived, Seq: d.Seq, Field: "table " + d.Table, Detail: says}
}

// expiringSpans are the sequences of the texts that are being deleted.
type expiringSpans []events.Span

func (e expiringSpans) containsSeq(seq uint64) bool {
	return slices.ContainsFunc(e, func(s events.Span) bool { return s[0] <= seq && seq <= s[1] })
}

// unfinishedExpiries lists the spans of expiries that have begun and are not recorded as done:
// derived rows may exist a moment longer than texts. The verification of the shard proves the
// expiry records.
func (rd Reader) unfinishedExpiries(ctx context.Context, shard string) (list expiringSpans, err error) {
	begun := map[string]expiringSpans{}
	err = rd.DB.ScanSubject(ctx, shard, rd.expirySubject(), func(r storage.EvidenceRow) error {
		e, ok := evidence.ExpiryIn(rowOf(r))
		switch {
		case !ok:
		case e.State == events.ErasureDone:
			delete(begun, e.ExpiryID)
		default:
			for _, s := range e.Sessions {
				begun[e.ExpiryID] = append(begun[e.ExpiryID], s.Sequences...)
			}
		}
		return nil
	})
	for _, spans := range begun {
		list = append(list, spans...)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the expiry records: %w", err)
	}
	return list, nil
}

// StrayDerived reports derived rows of shards without evidence.
func (rd Reader) StrayDerived(ctx context.Context) (list []verify.Finding, err error) {
	stray, err := schema.Stray(ctx, rd.DB.Pool())
	for _, d := range stray {
		list = append(list, verify.Finding{Code: verify.CodeDerived, Seq: d.Seq, Field: "table " + d.Table,
			Detail: fmt.Sprintf("there are %d rows of shard %.80q, from this sequence on, and there is no evidence of it", d.Extra, d.Shard)})
	}
	if err != nil {
		return nil, fmt.Errorf("comparing the derived tables with the records: %w", err)
	}
	return list, nil
}
