package ledger

import (
	"cmp"
	"context"
	"fmt"
	"math"

	"golang.org/x/sync/errgroup"

	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/storage"
)

const (
	// stretchSize is how many sequences one query reads: many enough that the
	// query itself costs nothing beside them, few enough to be held in memory, as
	// far as they were examined, until their turn comes.
	stretchSize = 1 << 15
	// handful is how many examined rows are handed over at a time.
	handful = 256
)

// stretch is a part of the shard and what was found in it, in order.
type stretch struct {
	storage.Range
	found chan []evidence.Examined
}

// sweep reads the rows of a shard in stretches, several at the same time, and
// brings what was found to v in the order of the sequences. It holds no more
// than a few stretches, however many rows claim to be of one sequence.
func (l Ledger) sweep(ctx context.Context, v *evidence.Verifier, shard string, from, to uint64, o VerifyOptions) error {
	ranges, err := l.DB.Ranges(ctx, shard, from, to, cmp.Or(o.stretch, stretchSize))
	if err != nil || len(ranges) == 0 {
		return err
	}
	compare, err := l.comparison(ctx, shard, o)
	if err != nil {
		return err
	}
	n := workers(o.Workers)
	g, ctx := errgroup.WithContext(ctx)
	work, queue := make(chan stretch), make(chan stretch, n)
	g.Go(func() error {
		defer close(work)
		defer close(queue)
		return deal(ctx, ranges, work, queue)
	})
	for range n {
		e := v.Examiner()
		g.Go(func() error {
			for s := range work {
				if err := l.examine(ctx, e, shard, s, compare); err != nil {
					return err
				}
			}
			return nil
		})
	}
	g.Go(func() error { return gather(ctx, v, queue, rowsIn(ranges), o.Progress) })
	return g.Wait()
}

// deal hands out the stretches: to the queue in which they are gathered, and to
// whoever examines next. The first in the queue is always being examined.
func deal(ctx context.Context, ranges []storage.Range, work, queue chan<- stretch) error {
	for _, r := range ranges {
		s := stretch{r, make(chan []evidence.Examined, stretchSize/handful+1)}
		for _, to := range []chan<- stretch{queue, work} {
			select {
			case to <- s:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}

// examine reads one stretch.
func (l Ledger) examine(ctx context.Context, e *evidence.Examiner, shard string, s stretch, compare comparison) error {
	defer close(s.found)
	list := make([]evidence.Examined, 0, handful)
	flush := func() error {
		select {
		case s.found <- list:
			list = make([]evidence.Examined, 0, handful)
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	err := l.DB.Sweep(ctx, shard, s.From, s.To, func(r *storage.EvidenceRow) error {
		row := rowOf(*r)
		list = list[:len(list)+1]
		x := &list[len(list)-1]
		e.Examine(&row, x)
		if err := compare.with(ctx, row, x); err != nil {
			return err
		}
		compare.pick.row(row, x)
		if len(list) < handful {
			return nil
		}
		return flush()
	})
	if err != nil {
		return err
	}
	return flush()
}

// gather takes what was found in order.
func gather(ctx context.Context, v *evidence.Verifier, queue <-chan stretch, total uint64, progress func(done, total uint64)) error {
	var done uint64
	for s := range queue {
		for more := true; more; {
			var list []evidence.Examined
			select {
			case list, more = <-s.found:
			case <-ctx.Done():
				return ctx.Err()
			}
			for i := range list {
				v.Add(&list[i])
			}
			if done += uint64(len(list)); progress != nil && len(list) > 0 {
				progress(done, total)
			}
		}
	}
	return nil
}

func rowsIn(ranges []storage.Range) (n uint64) {
	for _, r := range ranges {
		n += r.Rows
	}
	return n
}

// comparison compares rows with the log, from some sequence on.
type comparison struct {
	VerifyOptions
	from uint64
}

// comparison finds out from where on decisions and approvals are compared.
func (l Ledger) comparison(ctx context.Context, shard string, o VerifyOptions) (comparison, error) {
	c := comparison{o, math.MaxUint64}
	switch {
	case o.Log == nil || o.Compare == 0:
	case o.Compare < 0:
		c.from = 0
	default:
		from, err := l.DB.NewestOf(ctx, shard, []string{evidence.KindDecision, evidence.KindApproval}, o.Compare)
		if err != nil {
			return c, err
		}
		c.from = from
	}
	return c, nil
}

// with compares a row with the log, if its turn is.
func (c comparison) with(ctx context.Context, r evidence.Row, x *evidence.Examined) error {
	if r.Seq < c.from || r.Kind != evidence.KindDecision && r.Kind != evidence.KindApproval {
		return nil
	}
	m, err := c.Log(ctx, r.Seq)
	if err != nil {
		return fmt.Errorf("comparing sequence %d with the log: %w", r.Seq, err)
	}
	if m != nil {
		x.CompareLog(r, *m)
	}
	return nil
}
