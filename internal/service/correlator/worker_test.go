package correlator

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/lease"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

// While a batch is being decoded, however long that takes, writes land and the next
// ones begin: here it takes until two of them are stored, of which the second can
// only begin when the first has landed.
func TestWritesLandWhileABatchIsDecoded(t *testing.T) {
	n := someLog(t)
	w := alone(t, n, long, "w")
	w.role = roleUnknown // until it has the lease
	w.put(1, slices.Repeat([][]byte{[]byte("{}")}, maxOutputs+100)...)
	decoding := &batch{idle: true, decoded: make(chan struct{})}
	in := newDecodePipeline(w.core, w.keys)
	in.ordered <- decoding
	e := election{lead: make(chan *lease.Lease, 1), standby: make(chan struct{}, 1)}
	servicetest.OK(t, e.run(t.Context(), w))

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- w.runLoop(ctx, in, e) }()
	js := n.JS("auditor")
	servicetest.Eventually(t, "both writes are stored", func() bool {
		m, err := streams.LastBySubject(t.Context(), js, streams.DefaultShard, "gov.control.GOV.cursor")
		servicetest.OK(t, err)
		if m == nil {
			return false
		}
		c, err := events.DecodeRecord[events.Cursor](m.Body)
		servicetest.OK(t, err)
		return c.Consumed == 1
	})
	close(decoding.decoded)
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	log := n.Log()
	checkCursors(t, log)
	if got := len(outputs(log)); got != maxOutputs+100 {
		t.Errorf("%d outputs are stored", got)
	}
}

// An active instance is ready once the outputs of what it found on the log are written, however
// many of later messages are pending.
func TestReadyUnderLoad(t *testing.T) {
	w := &worker{shardLog: &shardLog{}, caughtUp: true, role: daemon.RoleActive, rules: newRuleSource(nil)}
	w.env.Ready = func() error { return nil }
	w.put(5, []byte("{}"))
	w.beginToLead()
	w.put(9, []byte("{}"))
	w.beginToLead()
	servicetest.OK(t, w.reportReady())
	if w.ready {
		t.Error("it is ready before the backlog is written")
	}
	w.dropOutputs(1)
	servicetest.OK(t, w.reportReady())
	if !w.ready {
		t.Error("it waits for outputs of messages that came since")
	}
}
