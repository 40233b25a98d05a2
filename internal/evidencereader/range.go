package evidencereader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/compliance/bundle"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/conn"
)

// Range is everything of a tenant in one shard between two times. It holds only the data for the
// proof; the records are read on demand.
type Range struct {
	Count uint64 // records
	Input bundle.Input
}

// bundleInput is the input for a bundle without its records, with the newest checkpoint. What the
// checkpoint keys must have signed and did not is left out; without keys nothing is. expired says that
// records have no text. The caller adds Rows, Spool, Decided and SignKey.
func (rd Reader) bundleInput(ctx context.Context, shard, tenant, session string, expired bool, keys []note.Verifier) (in bundle.Input, err error) {
	cp, err := rd.DB.LatestCheckpoint(ctx, shard)
	if errors.Is(err, storage.ErrNotFound) {
		return in, errors.New("no checkpoint covers the evidence yet: try again in a moment")
	}
	if err != nil {
		return in, fmt.Errorf("reading the checkpoint: %w", err)
	}
	in = bundle.Input{Shard: shard, Tenant: tenant, Session: session, Space: rd.Space, Checkpoint: signedByLog(cp.Note, keys),
		Nodes: func(indexes []int64) ([]tlog.Hash, error) { return rd.readHashes(ctx, shard, indexes) }}
	if in.Keys, _, err = rd.keyHistory(ctx, shard, keys); err == nil && expired {
		in.Expiries, err = rd.provedExpiries(ctx, shard, tenant, session, int64(cp.Size), keys)
	}
	return in, err
}

// SessionBundle is the input for the bundle of a session that was read. The caller adds Spool, Decided
// and SignKey.
func (rd Reader) SessionBundle(ctx context.Context, s Session, keys []note.Verifier) (bundle.Input, error) {
	in, err := rd.bundleInput(ctx, s.Shard, s.Tenant, s.Session, slices.ContainsFunc(s.Rows, evidence.Row.Expired), keys)
	if err != nil {
		return in, err
	}
	last := s.Rows[len(s.Rows)-1].Seq
	if c, err := tree.PeekCheckpoint(in.Checkpoint); err != nil || uint64(c.Size) < last {
		return in, fmt.Errorf("record %d of the session is not covered by a checkpoint yet: try again in a moment", last)
	}
	in.Rows = func(yield func(evidence.Row) error) error {
		for _, r := range s.Rows {
			if err := yield(r); err != nil {
				return err
			}
		}
		return nil
	}
	return in, nil
}

// TenantRange finds a tenant's records between two times. The caller adds to the bundle input: Spool,
// Decided and SignKey.
func (rd Reader) TenantRange(ctx context.Context, shard, tenant string, from, to time.Time, keys []note.Verifier, progress func(done, total uint64)) (r Range, err error) {
	n, err := rd.DB.CountTenant(ctx, shard, tenant, from, to)
	if err != nil {
		return Range{}, fmt.Errorf("looking for the range: %w", err)
	}
	if n == 0 {
		return Range{}, fmt.Errorf("%w: tenant %q, %s to %s, shard %s", ErrEmptyRange, tenant, from.Format(time.RFC3339Nano), to.Format(time.RFC3339Nano), shard)
	}
	gone, err := rd.DB.CountExpired(ctx, tenant, "")
	if err != nil {
		return Range{}, fmt.Errorf("looking for what expired: %w", err)
	}
	r.Count = n
	if r.Input, err = rd.bundleInput(ctx, shard, tenant, "", gone.Records > 0, keys); err != nil {
		return Range{}, err
	}
	r.Input.From, r.Input.To = from, to
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
