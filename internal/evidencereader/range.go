package evidencereader

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/compliance/bundle"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/conn"
)

// Range is everything of a tenant in one shard between two times. It holds only the data for the
// proof; the records are read on demand.
type Range struct {
	Count uint64 // records
	Input bundle.RangeInput
}

// TenantRange finds a tenant's records between two times. What the checkpoint keys must have signed and
// did not is left out, as by AddProofs. The caller adds to the bundle input: Spool, Decided and SignKey.
func (rd Reader) TenantRange(ctx context.Context, shard, tenant string, from, to time.Time, keys []note.Verifier, progress func(done, total uint64)) (Range, error) {
	n, err := rd.DB.CountTenant(ctx, shard, tenant, from, to)
	if err != nil {
		return Range{}, fmt.Errorf("looking for the range: %w", err)
	}
	if n == 0 {
		return Range{}, fmt.Errorf("%w: tenant %q, %s to %s, shard %s", ErrEmptyRange, tenant, from.Format(time.RFC3339Nano), to.Format(time.RFC3339Nano), shard)
	}
	cp, err := rd.DB.LatestCheckpoint(ctx, shard)
	if errors.Is(err, storage.ErrNotFound) {
		return Range{}, errors.New("no checkpoint covers the range yet: try again in a moment")
	}
	if err != nil {
		return Range{}, fmt.Errorf("reading the checkpoint: %w", err)
	}
	r := Range{Count: n, Input: bundle.RangeInput{Shard: shard, Tenant: tenant, Space: rd.Space, From: from, To: to, Checkpoint: signedByLog(cp.Note, keys)}}
	if r.Input.Keys, _, err = rd.keyHistory(ctx, shard, keys); err != nil {
		return Range{}, err
	}
	gone, err := rd.DB.CountExpired(ctx, tenant, "")
	if err != nil {
		return Range{}, fmt.Errorf("looking for what expired: %w", err)
	}
	if gone.Records > 0 {
		if r.Input.Expiries, err = rd.expiryRecords(ctx, shard, keys, func(e events.Expiry) bool { return e.Tenant == tenant }); err == nil {
			err = rd.ProveExpiries(ctx, shard, int64(cp.Size), r.Input.Expiries)
		}
		if err != nil {
			return Range{}, err
		}
	}
	r.Input.Nodes = func(indexes []int64) ([]tlog.Hash, error) { return rd.readHashes(ctx, shard, indexes) }
	r.Input.Rows = func(yield func(evidence.Row) error) error {
		var done uint64
		scan := func(fn func(storage.EvidenceRow) error) error {
			return rd.DB.ScanTenant(ctx, shard, tenant, from, to, fn)
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

// maxFailures is how many reads may fail in succession without a new row. With the pauses between
// them a server has time to restart.
const maxFailures = 10

// scanResuming scans rows, which are ordered by sequence, and continues behind the last one after
// a lost connection: a long range is read for minutes, and a broken connection must not restart a
// file. An error that the server would give again ends the scan.
func scanResuming(ctx context.Context, scan func(func(storage.EvidenceRow) error) error, yield func(storage.EvidenceRow) error) error {
	var last uint64
	var refused error // error of yield
	pauses := retry.New(100*time.Millisecond, 5*time.Second)
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
			pauses.Reset()
		}
		if failures++; err == nil || refused != nil || conn.IsLasting(err) || failures > maxFailures || pauses.Wait(ctx) != nil {
			return err
		}
	}
}
