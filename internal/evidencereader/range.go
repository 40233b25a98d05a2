package evidencereader

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/storage"
)

// Range is everything of a tenant in one shard between two times. Only what
// proves it is held; the records are read when they are asked for.
type Range struct {
	Count uint64 // records
	Input evidence.RangeInput
}

// TenantRange finds a tenant's records between two times. What its bundle needs
// beside is for the caller to fill in: Spool, Attach and Sign.
func (l Reader) TenantRange(ctx context.Context, shard, tenant string, from, to time.Time, progress func(done, total uint64)) (Range, error) {
	n, err := l.DB.CountTenant(ctx, shard, tenant, from, to)
	if err != nil {
		return Range{}, fmt.Errorf("looking for the range: %w", err)
	}
	if n == 0 {
		return Range{}, fmt.Errorf("%w: tenant %q, %s to %s, shard %s", ErrEmptyRange, tenant, from.Format(time.RFC3339), to.Format(time.RFC3339), shard)
	}
	cp, err := l.DB.LatestCheckpoint(ctx, shard)
	if errors.Is(err, storage.ErrNotFound) {
		return Range{}, errors.New("no checkpoint covers the range yet: try again in a moment")
	}
	if err != nil {
		return Range{}, fmt.Errorf("reading the checkpoint: %w", err)
	}
	r := Range{Count: n, Input: evidence.RangeInput{Shard: shard, Tenant: tenant, Space: l.Space, From: from, To: to, Checkpoint: cp.Note}}
	if r.Input.Keys, _, err = l.keyHistory(ctx, shard); err != nil {
		return Range{}, err
	}
	gone, err := l.DB.CountExpired(ctx, tenant, "")
	if err != nil {
		return Range{}, fmt.Errorf("looking for what expired: %w", err)
	}
	if gone.Records > 0 {
		if r.Input.Expiries, err = l.expiries(ctx, shard, func(e events.Expiry) bool { return e.Tenant == tenant }); err == nil {
			err = l.ProveExpiries(ctx, shard, int64(cp.Size), r.Input.Expiries)
		}
		if err != nil {
			return Range{}, err
		}
	}
	r.Input.Nodes = func(indexes []int64) ([]tlog.Hash, error) { return l.hashes(ctx, shard, indexes) }
	r.Input.Rows = func(yield func(evidence.Row) error) error {
		var done uint64
		scan := func(fn func(storage.EvidenceRow) error) error {
			return l.DB.ScanTenant(ctx, shard, tenant, from, to, fn)
		}
		return scanResuming(ctx, scan, func(row storage.EvidenceRow) error {
			if done++; progress != nil {
				progress(done, n)
			}
			return yield(rowOf(row))
		})
	}
	return r, nil
}

// maxFailures is how often in succession reading may fail before the next row.
const maxFailures = 3

// scanResuming scans rows, which come in the order of their sequences, and begins anew
// behind the last one when the database hangs up: a long range is read for
// minutes, and a connection that broke is no reason to begin a file again.
func scanResuming(ctx context.Context, scan func(func(storage.EvidenceRow) error) error, yield func(storage.EvidenceRow) error) error {
	var last uint64
	var refused error // by yield
	for failures := 0; ; {
		before := last
		err := scan(func(r storage.EvidenceRow) error {
			if r.Seq <= last {
				return nil
			}
			if refused = yield(r); refused == nil {
				last = r.Seq
			}
			return refused
		})
		if last > before {
			failures = 0
		}
		if failures++; err == nil || refused != nil || ctx.Err() != nil || failures > maxFailures {
			return err
		}
	}
}
