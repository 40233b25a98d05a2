package evidencereader

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/verify"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/read"
)

const (
	// stretchSize is how many sequences one query reads: enough to make the cost of the query
	// negligible, few enough to hold the examined rows in memory until their turn.
	stretchSize uint64 = 1 << 15
	// sinkStretchSize replaces stretchSize if rows are kept with their texts.
	sinkStretchSize uint64 = 1 << 12
	// chunkSize is how many examined rows are passed on at a time.
	chunkSize = 256
)

// seqRange is a part of the shard and the results of examining it, in order.
type seqRange struct {
	read.Range
	found chan []examinedRow
}

// examinedRow is an examined row; row is the row itself if the sink wants it.
type examinedRow struct {
	verify.Examined
	row *evidence.Row
}

// rowSink receives rows that a verification proves. wantsRow is called concurrently. addRow gets
// the wanted rows one by one, in order, after the verifier has processed them; it owns the row.
type rowSink interface {
	wantsRow(r *evidence.Row, x *verify.Examined) bool
	addRow(ctx context.Context, r *evidence.Row, x *verify.Examined) error
}

// verifyRange reads the rows of a shard in ranges, several concurrently, and passes the results
// to v in the order of the sequences. It holds only a few ranges in memory, however many rows
// claim one sequence.
func (rd Reader) verifyRange(ctx context.Context, v *verify.Verifier, shard string, from, to uint64, o VerifyOptions) error {
	size := stretchSize
	if o.sink != nil {
		size = sinkStretchSize
	}
	compare, err := rd.newLogComparison(ctx, v, shard, o) // before the ranges, which then have all that it counts
	if err != nil {
		return err
	}
	ranges, err := rd.DB.Ranges(ctx, shard, from, to, cmp.Or(o.stretch, size))
	if err != nil || len(ranges) == 0 {
		return err
	}
	n := workerCount(o.Workers)
	g, ctx := errgroup.WithContext(ctx)
	work, queue := make(chan seqRange), make(chan seqRange, n)
	g.Go(func() error {
		defer close(work)
		defer close(queue)
		return distributeRanges(ctx, ranges, work, queue)
	})
	for range n {
		e := v.Examiner()
		g.Go(func() error {
			for s := range work {
				if err := rd.examineRange(ctx, e, shard, s, compare); err != nil {
					return err
				}
			}
			return nil
		})
	}
	g.Go(func() error { return collectResults(ctx, v, queue, rowsIn(ranges), o) })
	if err := g.Wait(); err != nil {
		return err
	}
	// The database has said where the newest ones begin. It must not choose which are compared.
	if compare.Log != nil && o.Compare > 0 && from == 0 {
		v.DemandCompared(o.Compare, int(compare.reached.Load()))
	}
	return nil
}

// distributeRanges passes each range to the queue that collects results in order, and then to the
// examining workers. So the first range in the queue is always being examined.
func distributeRanges(ctx context.Context, ranges []read.Range, work, queue chan<- seqRange) error {
	for _, r := range ranges {
		s := seqRange{r, make(chan []examinedRow, stretchSize/chunkSize+1)}
		for _, to := range []chan<- seqRange{queue, work} {
			select {
			case to <- s:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}

// examineRange reads and examines one range.
func (rd Reader) examineRange(ctx context.Context, e *verify.Examiner, shard string, s seqRange, compare logComparison) error {
	defer close(s.found)
	list := make([]examinedRow, 0, chunkSize)
	flush := func() error {
		select {
		case s.found <- list:
			list = make([]examinedRow, 0, chunkSize)
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	err := rd.DB.ScanReusingRow(ctx, shard, s.From, s.To, func(r *storage.EvidenceRow) error {
		row := rowOf(*r)
		list = list[:len(list)+1]
		x := &list[len(list)-1]
		e.Examine(&row, &x.Examined)
		if err := compare.compareRow(ctx, row, &x.Examined); err != nil {
			return err
		}
		if compare.sink != nil && row.Seq <= compare.signed && compare.sink.wantsRow(&row, &x.Examined) {
			x.row = ownedCopy(row)
		}
		if len(list) < chunkSize {
			return nil
		}
		return flush()
	})
	if err != nil {
		return err
	}
	return flush()
}

// ownedCopy copies a row with its texts, which otherwise belong to the block that was read.
func ownedCopy(r evidence.Row) *evidence.Row {
	r.Subject, r.BodyDigest, r.Record = strings.Clone(r.Subject), strings.Clone(r.BodyDigest), strings.Clone(r.Record)
	return &r
}

// collectResults passes the results to the verifier in order.
func collectResults(ctx context.Context, v *verify.Verifier, queue <-chan seqRange, total uint64, o VerifyOptions) error {
	var done uint64
	for s := range queue {
		for more := true; more; {
			var list []examinedRow
			select {
			case list, more = <-s.found:
			case <-ctx.Done():
				return ctx.Err()
			}
			for i := range list {
				v.Add(&list[i].Examined)
				if list[i].row == nil {
					continue
				}
				if err := o.sink.addRow(ctx, list[i].row, &list[i].Examined); err != nil {
					return err
				}
			}
			if done += uint64(len(list)); o.Progress != nil && len(list) > 0 {
				o.Progress(done, total)
			}
		}
	}
	return nil
}

func rowsIn(ranges []read.Range) (n uint64) {
	for _, r := range ranges {
		n += r.Rows
	}
	return n
}

// logComparison compares rows with the log: decisions and approvals from a sequence on, those with a
// signature that only the log proves, and every row that no checkpoint covers.
type logComparison struct {
	VerifyOptions
	from    uint64
	signed  uint64         // size of the newest signed checkpoint
	reached *atomic.Uint64 // how many decisions and approvals lie from that sequence on
}

// newLogComparison determines from which sequence on decisions and approvals are compared.
func (rd Reader) newLogComparison(ctx context.Context, v *verify.Verifier, shard string, o VerifyOptions) (logComparison, error) {
	c := logComparison{o, math.MaxUint64, 0, new(atomic.Uint64)}
	if newest, signed := v.Newest(); signed {
		c.signed = uint64(newest.Size)
	}
	if o.LogOf != "" && o.LogOf != shard {
		c.Log = nil
	}
	switch {
	case c.Log == nil || o.Compare == 0:
	case o.Compare < 0:
		c.from = 0
	default:
		from, err := rd.DB.FirstOfNewest(ctx, shard, []string{evidence.KindDecision, evidence.KindApproval}, o.Compare)
		if err != nil {
			return c, err
		}
		if from == storage.AllSequences { // none yet: all that are stored until the rows are read are compared
			from = 0
		}
		c.from = from
	}
	return c, nil
}

// compareRow compares a row with the log if it is one to compare.
func (c logComparison) compareRow(ctx context.Context, r evidence.Row, x *verify.Examined) error {
	// Without any signature, that is the finding, and not each row.
	unproved := c.Log != nil && !c.SignaturesOnly && c.signed > 0 && r.Seq > c.signed
	newest := r.Seq >= c.from && (r.Kind == evidence.KindDecision || r.Kind == evidence.KindApproval)
	if newest {
		c.reached.Add(1)
	}
	masked := c.Log != nil && (c.Compare != 0 || c.SignaturesOnly) && x.SignatureMasked()
	if !unproved && !newest && !masked {
		return nil
	}
	m, err := c.Log(ctx, r.Seq)
	if err != nil {
		return fmt.Errorf("comparing sequence %d with the log: %w", r.Seq, err)
	}
	switch {
	case m != nil:
		x.CompareLog(r, *m)
	case unproved:
		x.NotInLog()
	}
	return nil
}
