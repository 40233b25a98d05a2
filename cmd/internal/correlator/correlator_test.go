package correlator

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/daemon"
	"github.com/countersign-dev/countersign/cmd/internal/rig"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/streams"
)

const long = time.Hour // no deadline passes in a test

func TestExactlyOnceWhereverItIsCut(t *testing.T) {
	n := rig.Start(t, streams.Shard{})
	inputs := len(session(t, "sess-0000"))
	for every := 1; every <= 4; every++ {
		for k := 1; k <= inputs; k++ {
			before := uint64(len(n.Log()))
			n.Publish(rig.Runtime, session(t, fmt.Sprintf("sess-%d%03d", every, k))...)
			cut(t, newWorker(t, n, long, "cut"), before+uint64(k), every)
		}
	}
	rig.OK(t, ignoreCancel(start(t, n, long).AwaitReady().Stop()))
	compare(t, n, long)
	before := len(n.Log())
	rig.OK(t, ignoreCancel(start(t, n, long).AwaitReady().Stop()))
	if after := len(n.Log()); after != before {
		t.Errorf("a restart with nothing to do wrote %d messages", after-before)
	}
}

// ignoreCancel takes out the error of a service that was told to stop.
func ignoreCancel(err error) error {
	if err != nil && strings.Contains(err.Error(), "context canceled") {
		return nil
	}
	return err
}

func TestMoreOutputsThanABatchHolds(t *testing.T) {
	const missing = 300 * time.Millisecond
	for _, partial := range []int{0, 1, maxOutputs, 999} {
		t.Run(fmt.Sprintf("cut after %d", partial), func(t *testing.T) {
			n := rig.Start(t, streams.Shard{})
			var open []streams.Msg
			for i := range 700 { // each gives a call and a finding when it is given up
				open = append(open, pre(i))
			}
			n.Publish(rig.Runtime, open...)
			// Their outputs so far are put out first, so that the cut is inside the one message's.
			w := newWorker(t, n, missing, "cut")
			cut(t, w, uint64(len(open)), len(open))
			rig.OK(t, w.flush(t.Context(), w.head, 0))
			log := n.Log()
			due := log[len(open)-1].Time.Add(missing)
			rig.Eventually(t, "all deadlines have passed", func() bool { return time.Now().After(due.Add(10 * time.Millisecond)) })
			n.Publish(rig.Runtime, session(t, "sess-0000")[0])
			last := n.Log()[len(log)]
			if partial > 0 {
				dieInside(t, n, missing, last, partial)
			}
			s := start(t, n, missing).AwaitReady()
			rig.Eventually(t, "every call is given up", func() bool {
				core := newCore(t, n, missing)
				log := n.Log()
				want, _ := undisturbed(core, log)
				_, open := core.NextDeadline()
				return !open && len(outputs(log)) == len(want)
			})
			rig.OK(t, ignoreCancel(s.Stop()))
			if most := compare(t, n, missing); most <= streams.MaxBatch {
				t.Fatalf("no message had more than %d outputs", most)
			}
		})
	}
}

// dieInside leaves the log as a worker does that dies after it has put out so
// many of one message's outputs.
func dieInside(t *testing.T, n *rig.NATS, missing time.Duration, m events.LogMessage, partial int) {
	t.Helper()
	w := newWorker(t, n, missing, "dies")
	for _, earlier := range n.Log()[:m.Seq-1] {
		rig.OK(t, w.apply(t.Context(), earlier))
	}
	for _, o := range w.core.Apply(m)[:partial] {
		w.pending = append(w.pending, message(o, streams.DefaultShard, m.Time))
	}
	w.lastTime = m.Time
	rig.OK(t, w.flush(t.Context(), m.Seq-1, partial))
}

func TestBatchesAreBoundedInBytes(t *testing.T) {
	n := rig.Start(t, streams.Shard{})
	w := newWorker(t, n, long, "w")
	n.Publish(rig.Runtime, session(t, "sess-0000")...)
	log := n.Log()
	w.pending = []streams.Msg{{Subject: "gov.findings.acme.low.s", Body: bytes.Repeat([]byte(" "), 7<<20)}}
	w.bytes = maxBytes
	rig.OK(t, w.apply(t.Context(), log[0]))
	rig.OK(t, w.apply(t.Context(), log[1]))
	if w.cursorSeq == 0 || w.bytes >= maxBytes || len(w.pending) == 0 {
		t.Errorf("cursor at %d, %d outputs of %d bytes wait", w.cursorSeq, len(w.pending), w.bytes)
	}
}

func TestTwoCorrelatorsOneWriter(t *testing.T) {
	n := rig.Start(t, streams.Shard{})
	n.Publish(rig.Runtime, session(t, "sess-0001")...)
	a := start(t, n, long).AwaitReady()
	b := start(t, n, long).AwaitReady() // reads along until both have something to say
	n.Publish(rig.Runtime, session(t, "sess-0002")...)
	var fenced error
	rig.Eventually(t, "one of them steps down", func() bool {
		for _, s := range []*rig.Service{a, b} {
			if ended, err := s.Ended(); ended {
				fenced = err
				return true
			}
		}
		return false
	})
	if !errors.Is(fenced, daemon.ErrFenced) {
		t.Errorf("it ended with %v", fenced)
	}
	aEnded, _ := a.Ended()
	bEnded, _ := b.Ended()
	if aEnded == bEnded {
		t.Error("both ended")
	}
	rig.Eventually(t, "the other one goes on", func() bool {
		want, _ := undisturbed(newCore(t, n, long), n.Log())
		return len(outputs(n.Log())) == len(want)
	})
	compare(t, n, long)
}

func TestAnAcknowledgementThatIsLostIsNoSecondWriter(t *testing.T) {
	n := rig.Start(t, streams.Shard{})
	n.Publish(rig.Runtime, session(t, "sess-0001")...)
	w, other := newWorker(t, n, long, "w"), newWorker(t, n, long, "other")
	batch := []streams.Msg{
		{Subject: "gov.findings.acme.low.s", Body: []byte("{}")},
		{Subject: "gov.control.GOV.cursor", Body: []byte(`{"writer":"w"}`)},
	}
	first, err := w.write(t.Context(), batch, batch[1].Body)
	rig.OK(t, err)
	again, err := w.write(t.Context(), batch, batch[1].Body) // as after ErrDoubt: the fence has moved, by itself
	rig.OK(t, err)
	if first != again || len(n.Log()) != len(session(t, "sess-0001"))+2 {
		t.Errorf("cursor at %d, then at %d; %d messages", first, again, len(n.Log()))
	}
	if _, err := other.write(t.Context(), batch, []byte(`{"writer":"other"}`)); !errors.Is(err, daemon.ErrFenced) {
		t.Errorf("another writer: %v", err)
	}
}

func TestOutlivesARestartOfTheServer(t *testing.T) {
	n := rig.Start(t, streams.Shard{})
	n.Publish(rig.Runtime, session(t, "sess-0001")...)
	s := start(t, n, long).AwaitReady()
	w := newWorker(t, n, long, "w")
	for _, m := range n.Log() {
		rig.OK(t, w.apply(t.Context(), m))
	}
	n.Stop()
	rig.Eventually(t, "it says that it is cut off", func() bool { return s.Health.Report().Problems["nats"] != "" })
	n.Restart()
	n.Publish(rig.Runtime, session(t, "sess-0002")...)
	rig.Eventually(t, "it goes on", func() bool {
		want, _ := undisturbed(newCore(t, n, long), n.Log())
		return len(want) > 0 && len(outputs(n.Log())) == len(want)
	})
	s.Running()
	compare(t, n, long)
}

func TestAWriteWaitsForTheServer(t *testing.T) {
	n := rig.Start(t, streams.Shard{})
	n.Publish(rig.Runtime, session(t, "sess-0001")...)
	w := newWorker(t, n, long, "w")
	for _, m := range n.Log() {
		rig.OK(t, w.apply(t.Context(), m))
	}
	n.Stop()
	done := make(chan error)
	go func() { done <- w.flush(t.Context(), w.head, 0) }()
	rig.Eventually(t, "it says why nothing happens", func() bool { return w.env.Health.Report().Problems["log"] != "" })
	n.Restart()
	rig.OK(t, <-done)
	compare(t, n, long)
}

func TestStepsDownWhenTheLogIsReplaced(t *testing.T) {
	n := rig.Start(t, streams.Shard{})
	n.Publish(rig.Runtime, session(t, "sess-0001")...)
	s := start(t, n, long).AwaitReady()
	rig.Eventually(t, "its outputs are in the log", func() bool { return len(outputs(n.Log())) > 0 })
	n.Stop()
	n.Recreate()
	if err := s.Wait(); !errors.Is(err, streams.ErrRewound) {
		t.Errorf("it ended with %v", err)
	}
}

func TestTimePassesOnAnIdleShard(t *testing.T) {
	n := rig.Start(t, streams.Shard{})
	n.Publish(rig.Runtime, pre(1))
	start(t, n, 20*time.Millisecond)
	rig.Eventually(t, "the call is given up", func() bool {
		return strings.Contains(fmt.Sprint(outputs(n.Log())), "gov.calls.acme.abandoned.sess-open")
	})
}

// The correlator's own records let no time pass. If the last message of the log
// is one of them, a tick is needed all the same.
func TestATickIsDueAfterOnesOwnRecord(t *testing.T) {
	n := rig.Start(t, streams.Shard{})
	w := newWorker(t, n, time.Minute, "w")
	begun := time.Now().Add(-time.Hour)
	msg := pre(1)
	rig.OK(t, w.apply(t.Context(), events.LogMessage{Seq: 1, Subject: msg.Subject, Time: begun, Body: msg.Body}))
	rig.OK(t, w.apply(t.Context(), events.LogMessage{Seq: 2, Subject: "gov.calls.acme.open.sess-open", Time: begun.Add(2 * time.Minute), Body: []byte("{}")}))
	ticks := func() (count int) {
		for _, m := range n.Log() {
			if m.Subject == "gov.control.GOV.tick" {
				count++
			}
		}
		return count
	}
	rig.OK(t, w.tick(t.Context(), begun.Add(30*time.Second)))
	if ticks() != 0 {
		t.Error("a tick before the deadline")
	}
	now := time.Now()
	for range 3 { // the clock of the broker may be behind: no tick a second for that
		rig.OK(t, w.tick(t.Context(), now))
	}
	if got := ticks(); got != 1 {
		t.Errorf("%d ticks, want 1", got)
	}
	rig.OK(t, w.tick(t.Context(), now.Add(tickAgain)))
	if got := ticks(); got != 2 {
		t.Errorf("%d ticks later, want 2", got)
	}
}
