package streams

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/events"
)

// Only what matches is delivered, all of it and in order, and being caught up
// does not wait for what does not match.
func TestReadLogFilter(t *testing.T) {
	f := start(t)
	rt := f.conn("admitter")
	other := func(i int) Msg {
		return Msg{Subject: "gov.events.acme.runtime.aaep.s1.confirmation.reply", Body: []byte(fmt.Sprint(i))}
	}
	var msgs []Msg
	for i := range 50 {
		msgs = append(msgs, event("runtime", i))
		if i%10 == 0 {
			msgs = append(msgs, other(i))
		}
	}
	ok(t, StoreAll(ctx(t), rt, msgs))
	since := time.Now()
	for _, tt := range []struct {
		name   string
		o      ReadOptions
		want   int
		ending uint64 // sequence of the last one
	}{
		{"some", ReadOptions{Filter: []string{"gov.events.*.*.aaep.*.confirmation.reply"}}, 5, 46},
		{"several filters", ReadOptions{Filter: []string{"gov.events.*.*.aaep.*.confirmation.reply", "gov.events.*.*.aaep.*.agent.tool.*"}, MaxBatch: 7}, 55, 55},
		{"from a place", ReadOptions{Filter: []string{"gov.events.*.*.aaep.*.confirmation.reply"}, From: 20}, 3, 46},
		{"none", ReadOptions{Filter: []string{"gov.decisions.>"}}, 0, 0},
		{"too old", ReadOptions{Filter: []string{"gov.events.>"}, Since: since}, 0, 0},
		{"not too old", ReadOptions{Filter: []string{"gov.events.>"}, Since: since.Add(-time.Hour)}, 55, 55},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []uint64
			tt.o.Stream, tt.o.Idle = DefaultShard, func() error { return errEnough }
			err := ReadLog(ctx(t), f.js(f.conn("auditor")), tt.o, func(b []events.LogMessage) error {
				for _, m := range b {
					got = append(got, m.Seq)
				}
				return nil
			})
			if !errors.Is(err, errEnough) || len(got) != tt.want || !slices.IsSorted(got) || tt.want > 0 && got[len(got)-1] != tt.ending {
				t.Errorf("%v, %d messages: %v", err, len(got), got)
			}
		})
	}
	if err := ReadLog(ctx(t), f.js(rt), ReadOptions{Stream: DefaultShard, Since: since}, nil); err == nil {
		t.Error("Since without Filter would be a log with a hole at its beginning")
	}
}

// A filtered reader survives a restart of the server and goes on where it was.
func TestReadLogFilterServerRestart(t *testing.T) {
	f := start(t)
	one := func(i int) {
		ok(t, StoreAll(ctx(t), f.conn("admitter"), []Msg{event("runtime", i), event("runtime", i)}))
	}
	one(0)
	seen := make(chan uint64, 100)
	done := make(chan error, 1)
	run := ctx(t)
	js := f.js(f.conn("auditor"))
	go func() {
		done <- ReadLog(run, js, ReadOptions{Stream: DefaultShard, Filter: []string{"gov.events.>"}, Since: time.Now().Add(-time.Hour)}, func(b []events.LogMessage) error {
			for _, m := range b {
				seen <- m.Seq
				if m.Seq == 4 {
					return errEnough
				}
			}
			return nil
		})
	}()
	next := func(want uint64) {
		select {
		case got := <-seen:
			if got != want {
				t.Errorf("sequence %d, want %d", got, want)
			}
		case <-time.After(guard):
			t.Fatal("the reader is stuck")
		}
	}
	next(1)
	next(2)
	f.stop()
	f.restart()
	one(1)
	next(3)
	next(4)
	if err := <-done; !errors.Is(err, errEnough) {
		t.Error(err)
	}
}
