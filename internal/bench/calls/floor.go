package calls

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/internal/bench/measure"
	"github.com/countersign-dev/countersign/internal/bench/spending"
	"github.com/countersign-dev/countersign/internal/pipeline"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/read"
	"github.com/countersign-dev/countersign/storage/schema"
	"github.com/countersign-dev/countersign/streams"
)

// callSample is a part of what a measurement wrote, for the floors.
type callSample struct {
	messages []streams.Msg
	rows     []storage.EvidenceRow
	perCall  float64 // messages, and so rows, of a call
}

// newCallSample reads the rows of the messages that l has a sample of.
func newCallSample(ctx context.Context, b *callsBench, l callsLog, calls float64) (s callSample, err error) {
	if !b.Floors {
		return s, nil
	}
	s = callSample{messages: l.sample, perCall: float64(l.messages) / calls}
	shards, err := b.db.Shards(ctx)
	if err != nil {
		return s, err
	}
	err = b.db.Scan(ctx, shards[len(shards)-1], l.from, l.from+uint64(len(l.sample))-1, func(r storage.EvidenceRow) error {
		s.rows = append(s.rows, r)
		return nil
	})
	return s, err
}

// floorGroup is how many messages the floor appends at a time: one atomic batch.
const floorGroup = 100

// measureFloors measures both floors on servers without services.
func (s callSample) measureFloors(ctx context.Context, p *pipeline.Pipeline) (floors []callsFloor, err error) {
	js, err := measure.ConnectAs(ctx, p, streams.RoleAdmitter)
	if err != nil {
		return nil, err
	}
	defer js.Conn().Close()
	conn, err := measure.OpenOwner(p.Ready().ClickHouseDSN)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	db, err := read.Open(ctx, p.Ready().ClickHouseDSN)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := schema.Migrate(ctx, db.Pool()); err != nil {
		return nil, err
	}
	if err := measure.CreateRowTable(ctx, conn); err != nil {
		return nil, err
	}
	for _, f := range []struct {
		what, server string
		items        int
		work         func() error
	}{
		{fmt.Sprintf("the log's bytes appended, %d messages at a time", floorGroup), "nats", len(s.messages), func() error {
			for group := range slices.Chunk(s.messages, floorGroup) {
				if err := streams.StoreAll(ctx, js.Conn(), group); err != nil {
					return err
				}
			}
			return nil
		}},
		{fmt.Sprintf("the finished rows inserted, %d at a time", measure.RowBatch), "clickhouse", len(s.rows), func() error { return measure.InsertRows(ctx, conn, s.rows) }},
	} {
		r, err := measureFloor(p, f.server, float64(f.items)/s.perCall, f.work)
		if err != nil {
			return nil, fmt.Errorf("floor: %s: %w", f.what, err)
		}
		r.What = f.what
		floors = append(floors, r)
	}
	return floors, nil
}

// measureFloor measures work for a number of calls, with the processor time of one server and of
// this process.
func measureFloor(p *pipeline.Pipeline, server string, calls float64, work func() error) (f callsFloor, err error) {
	procs := [2]int{p.Ready().PIDs[server], os.Getpid()}
	var used [2]time.Duration
	for i, pr := range procs {
		used[i] = spending.ProcessorTime(pr)
	}
	begun := time.Now()
	if err := work(); err != nil {
		return f, err
	}
	f.PerSecond = calls / time.Since(begun).Seconds()
	for i, pr := range procs {
		used[i] = spending.ProcessorTime(pr) - used[i]
	}
	f.Server, f.CPU = measure.Millis(used[0])/calls, measure.Millis(used[0]+used[1])/calls
	return f, nil
}
