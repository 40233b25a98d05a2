package correlator

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/correlation"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/metrics"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

const long = time.Hour // no deadline passes in a test

func TestExactlyOnceWhereverItIsCut(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	inputs := len(session(t, "sess-0000"))
	for every := 1; every <= 4; every++ {
		for k := 1; k <= inputs; k++ {
			before := uint64(len(n.Log()))
			n.Publish(servicetest.Runtime, session(t, fmt.Sprintf("sess-%d%03d", every, k))...)
			cut(t, alone(t, n, long, "cut"), before+uint64(k), every)
		}
	}
	servicetest.OK(t, ignoreCancel(start(t, n, long).AwaitReady().Stop()))
	compare(t, n, long)
	// A restart writes nothing before there are new outputs.
	before := len(n.Log())
	s := start(t, n, long).AwaitReady()
	n.Publish(servicetest.Runtime, session(t, "sess-9001")...)
	awaitOutputs(t, n, "the new session is judged")
	servicetest.OK(t, ignoreCancel(s.Stop()))
	compare(t, n, long)
	for _, m := range n.Log()[before:] {
		if m.Subject != "gov.control.GOV.cursor" {
			continue
		}
		if c, err := events.DecodeRecord[events.Cursor](m.Body); err != nil || c.Outputs == 0 {
			t.Errorf("after a restart: cursor %+v (%v)", c, err)
		}
	}
}

// awaitOutputs waits until the log has as many outputs as an undisturbed run puts out.
func awaitOutputs(t *testing.T, n *servicetest.NATS, what string) {
	t.Helper()
	servicetest.Eventually(t, what, func() bool {
		log := n.Log()
		want, _ := undisturbed(newCore(t, n, long), log)
		return len(outputs(log)) == len(want)
	})
}

// ignoreCancel takes out the error of a service that was told to stop.
func ignoreCancel(err error) error {
	if err != nil && strings.Contains(err.Error(), "context canceled") {
		return nil
	}
	return err
}

func TestMoreOutputsThanABatchHolds(t *testing.T) {
	const missing = time.Second // longer than a busy machine needs to store the events
	for _, partial := range []int{0, 1, maxOutputs, 999} {
		t.Run(fmt.Sprintf("cut after %d", partial), func(t *testing.T) {
			n := servicetest.Start(t, streams.Shard{})
			var open []streams.Msg
			for i := range 700 { // each gives a call and a finding when it is given up
				open = append(open, pre(i))
			}
			n.Publish(servicetest.Runtime, open...)
			// Their outputs so far are put out first, so that the cut is inside the one message's.
			w := alone(t, n, missing, "cut")
			cut(t, w, uint64(len(open)), len(open))
			servicetest.OK(t, w.flush(t.Context()))
			log := n.Log()
			due := log[len(open)-1].Time.Add(missing)
			servicetest.Eventually(t, "all deadlines have passed", func() bool { return time.Now().After(due.Add(10 * time.Millisecond)) })
			n.Publish(servicetest.Runtime, session(t, "sess-0000")[0])
			last := n.Log()[len(log)]
			if partial > 0 {
				dieInside(t, n, missing, last, partial)
			}
			s := start(t, n, missing).AwaitReady()
			servicetest.Eventually(t, "every call is given up", func() bool {
				core := newCore(t, n, missing)
				log := n.Log()
				want, _ := undisturbed(core, log)
				_, open := core.NextDeadline()
				return !open && len(outputs(log)) == len(want)
			})
			servicetest.OK(t, ignoreCancel(s.Stop()))
			if most := compare(t, n, missing); most <= streams.MaxBatch {
				t.Fatalf("no message had more than %d outputs", most)
			}
		})
	}
}

// dieInside leaves the log as a worker does that dies after it has put out so
// many of one message's outputs.
func dieInside(t *testing.T, n *servicetest.NATS, missing time.Duration, m events.LogMessage, partial int) {
	t.Helper()
	w := alone(t, n, missing, "dies")
	for _, earlier := range n.Log()[:m.Seq-1] {
		w.feedOne(t, earlier)
	}
	w.feedOne(t, m)
	b := w.nextOutgoing()
	b.outputs = w.pending[:partial]
	b.limitTo(w.pending[partial])
	servicetest.OK(t, w.writeBatch(t.Context(), b).err)
}

func TestBatchesAreBoundedInBytes(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	w := alone(t, n, long, "w")
	for i := range 3 {
		out := correlation.Output{Subject: "gov.findings.acme.low.s", Type: events.TypeFinding, ID: fmt.Sprint(i), Body: bytes.Repeat([]byte(" "), 5<<20)}
		w.pending = append(w.pending, pendingOutput{out, uint64(10 + i), i, time.Now()})
	}
	w.head = 20
	for left := 2; left >= 0; left-- {
		servicetest.OK(t, w.handleResult(t.Context(), w.writeBatch(t.Context(), w.nextOutgoing())))
		if len(w.pending) != left {
			t.Fatalf("%d outputs wait, want %d", len(w.pending), left)
		}
		if c := w.cursor; left > 0 && (c.Consumed != w.pending[0].seq-1 || c.Partial != w.pending[0].n) || left == 0 && c.Consumed != 20 {
			t.Errorf("cursor %+v with %d outputs to come", c, left)
		}
	}
}

// The second of two correlators reads along and writes nothing, until the first
// one goes.
func TestTwoCorrelatorsOneWriter(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	n.Publish(servicetest.Runtime, session(t, "sess-0001")...)
	a := start(t, n, long).AwaitReady()
	b := start(t, n, long).AwaitReady()
	if a, b := a.Health.Report().Role, b.Health.Report().Role; a != daemon.RoleActive || b != daemon.RoleStandby {
		t.Fatalf("the first is %s, the second %s", a, b)
	}
	n.Publish(servicetest.Runtime, session(t, "sess-0002")...)
	awaitOutputs(t, n, "the first one writes")
	servicetest.OK(t, ignoreCancel(a.Stop()))
	n.Publish(servicetest.Runtime, session(t, "sess-0003")...)
	awaitOutputs(t, n, "the second one goes on")
	writers := map[string]bool{}
	for _, m := range n.Log() {
		if m.Subject == "gov.control.GOV.cursor" {
			c, err := events.DecodeRecord[events.Cursor](m.Body)
			servicetest.OK(t, err)
			writers[c.Writer] = true
		}
	}
	if len(writers) != 2 {
		t.Errorf("%d writers", len(writers))
	}
	compare(t, n, long)
}

// A standby keeps what no cursor covers, forgets it when one does, and writes
// the rest when it takes over, whatever its predecessor has written meanwhile.
func TestWhatAStandbyKeeps(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	n.Publish(servicetest.Runtime, session(t, "sess-0001")...)
	n.Publish(servicetest.Runtime, session(t, "sess-0002")...)
	active, standby := alone(t, n, long, "active"), alone(t, n, long, "standby")
	standby.role = daemon.RoleStandby
	log := n.Log()
	for _, m := range log[:len(log)/2] {
		active.feedOne(t, m)
	}
	for _, m := range log {
		standby.feedOne(t, m)
	}
	all := len(standby.pending)
	first := active.nextOutgoing()
	servicetest.OK(t, active.handleResult(t.Context(), active.writeBatch(t.Context(), first)))
	for _, m := range n.Log()[len(log):] {
		standby.feedOne(t, m)
	}
	if kept := len(standby.pending); all == 0 || len(first.outputs) == 0 || kept != all-len(first.outputs) {
		t.Fatalf("of %d outputs %d are kept after %d were written", all, kept, len(first.outputs))
	}
	// It takes over, and the predecessor's last write lands only then.
	standby.role = daemon.RoleActive
	for _, m := range log[len(log)/2 : len(log)-1] {
		active.feedOne(t, m)
	}
	servicetest.OK(t, active.flush(t.Context()))
	servicetest.OK(t, standby.flush(t.Context()))
	active.feedOne(t, log[len(log)-1])
	if err := active.flush(t.Context()); !errors.Is(err, daemon.ErrFenced) {
		t.Errorf("the predecessor goes on: %v", err)
	}
	compare(t, n, long)
}

// A standby that keeps as much as it may waits for the active one.
func TestStandbyWaits(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	n.Publish(servicetest.Runtime, session(t, "sess-0001")...)
	active, standby := alone(t, n, long, "active"), alone(t, n, long, "standby")
	standby.role = daemon.RoleStandby
	for _, m := range n.Log() {
		active.feedOne(t, m)
		standby.feedOne(t, m)
	}
	standby.pending = append(standby.pending, make([]pendingOutput, maxStandby)...)
	for i := range standby.pending {
		standby.pending[i].seq = 1
	}
	servicetest.OK(t, standby.refreshCursor(t.Context()))
	if !standby.isFull() {
		t.Fatal("it reads on")
	}
	servicetest.OK(t, active.flush(t.Context()))
	servicetest.OK(t, standby.refreshCursor(t.Context()))
	if standby.isFull() || len(standby.pending) > 0 {
		t.Errorf("it waits for nothing, with %d outputs", len(standby.pending))
	}
}

func TestAnAcknowledgementThatIsLostIsNoSecondWriter(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	n.Publish(servicetest.Runtime, session(t, "sess-0001")...)
	w, other := alone(t, n, long, "w"), alone(t, n, long, "other")
	batch := []streams.Msg{
		{Subject: "gov.findings.acme.low.s", Body: []byte("{}")},
		{Subject: "gov.control.GOV.cursor", Body: []byte(`{"writer":"w"}`)},
	}
	first, err := w.storeBatch(t.Context(), batch, batch[1].Body, 0)
	servicetest.OK(t, err)
	again, err := w.storeBatch(t.Context(), batch, batch[1].Body, 0) // as after ErrDoubt: the fence has moved, by itself
	servicetest.OK(t, err)
	if first != again || len(n.Log()) != len(session(t, "sess-0001"))+2 {
		t.Errorf("cursor at %d, then at %d; %d messages", first, again, len(n.Log()))
	}
	if _, err := other.storeBatch(t.Context(), batch, []byte(`{"writer":"other"}`), 0); !errors.Is(err, daemon.ErrFenced) {
		t.Errorf("another writer: %v", err)
	}
}

func TestOutlivesARestartOfTheServer(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	n.Publish(servicetest.Runtime, session(t, "sess-0001")...)
	s := supervised(t, n, long).AwaitReady()
	w := alone(t, n, long, "w")
	for _, m := range n.Log() {
		w.feedOne(t, m)
	}
	n.Stop()
	servicetest.Eventually(t, "it says that it is cut off", func() bool { return s.Health.Report().Problems["nats"] != "" })
	n.Restart()
	n.Publish(servicetest.Runtime, session(t, "sess-0002")...)
	servicetest.Eventually(t, "it goes on", func() bool {
		s.Running()
		want, _ := undisturbed(newCore(t, n, long), n.Log())
		return len(want) > 0 && len(outputs(n.Log())) == len(want)
	})
	compare(t, n, long)
}

func TestAWriteWaitsForTheServer(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	n.Publish(servicetest.Runtime, session(t, "sess-0001")...)
	w := alone(t, n, long, "w")
	for _, m := range n.Log() {
		w.feedOne(t, m)
	}
	n.Stop()
	done := make(chan error)
	go func() { done <- w.flush(t.Context()) }()
	servicetest.Eventually(t, "it says why nothing happens", func() bool { return w.env.Health.Report().Problems["log"] != "" })
	n.Restart()
	servicetest.OK(t, <-done)
	compare(t, n, long)
}

func TestStepsDownWhenTheLogIsReplaced(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	n.Publish(servicetest.Runtime, session(t, "sess-0001")...)
	s := start(t, n, long).AwaitReady()
	servicetest.Eventually(t, "its outputs are in the log", func() bool { return len(outputs(n.Log())) > 0 })
	n.Stop()
	n.Recreate()
	if err := s.Wait(); !errors.Is(err, streams.ErrRecreated) {
		t.Errorf("it ended with %v", err)
	}
}

func TestTimePassesOnAnIdleShard(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	n.Publish(servicetest.Runtime, pre(1))
	start(t, n, 20*time.Millisecond)
	servicetest.Eventually(t, "the call is given up", func() bool {
		return strings.Contains(fmt.Sprint(outputs(n.Log())), "gov.calls.acme.abandoned.sess-open")
	})
}

// The broker's clock counts, even if it is ahead of the correlator's. A silent session is noticed
// without an open call.
func TestTicksByTheBrokersClock(t *testing.T) {
	started := events.LogMessage{Subject: "gov.events.acme.rt1.aaep.sess_silent.agent.session.started", Body: []byte(`{"@context":"https://aaep-protocol.org/context/v1","type":"aaep:agent.session.started",
		"event_id":"evt_1","session_id":"sess_silent","timestamp":"2026-11-20T09:00:00Z","producer":{"agent_id":"a"},"urgency":"normal","aaep_version":"1.0.0","summary_normal":"It begins."}`)}
	for name, tc := range map[string]struct {
		msg    events.LogMessage
		ahead  time.Duration
		passed time.Duration
	}{
		"a call is open":        {events.LogMessage{Subject: pre(1).Subject, Body: pre(1).Body}, time.Hour, 2 * time.Minute},
		"a session is silent":   {started, 0, 7 * time.Hour},
		"silent, and far ahead": {started, 24 * time.Hour, 7 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			n := servicetest.Start(t, streams.Shard{})
			w := alone(t, n, time.Minute, "w")
			now := time.Now()
			tc.msg.Seq, tc.msg.Time = 1, now.Add(tc.ahead)
			w.feedOne(t, tc.msg)
			w.lastApplied = now
			ticks := func() (count int) {
				for _, m := range n.Log() {
					if m.Subject == "gov.control.GOV.tick" {
						count++
					}
				}
				return count
			}
			servicetest.OK(t, w.writeTick(t.Context(), now.Add(time.Second)))
			if ticks() != 0 {
				t.Error("a tick before its time")
			}
			servicetest.OK(t, w.writeTick(t.Context(), now.Add(tc.passed)))
			if ticks() != 1 {
				t.Errorf("%d ticks", ticks())
			}
		})
	}
}

// The correlator's own records let no time pass. If the last message of the log
// is one of them, a tick is needed all the same.
func TestATickIsDueAfterOnesOwnRecord(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	w := alone(t, n, time.Minute, "w")
	begun := time.Now().Add(-time.Hour)
	msg := pre(1)
	w.feedOne(t, events.LogMessage{Seq: 1, Subject: msg.Subject, Time: begun, Body: msg.Body})
	w.feedOne(t, events.LogMessage{Seq: 2, Subject: "gov.calls.acme.open.sess-open", Time: begun.Add(2 * time.Minute), Body: []byte("{}")})
	ticks := func() (count int) {
		for _, m := range n.Log() {
			if m.Subject == "gov.control.GOV.tick" {
				count++
			}
		}
		return count
	}
	servicetest.OK(t, w.writeTick(t.Context(), begun.Add(30*time.Second)))
	if ticks() != 0 {
		t.Error("a tick before the deadline")
	}
	now := time.Now()
	for range 3 { // the clock of the broker may be behind: no tick a second for that
		servicetest.OK(t, w.writeTick(t.Context(), now))
	}
	if got := ticks(); got != 1 {
		t.Errorf("%d ticks, want 1", got)
	}
	servicetest.OK(t, w.writeTick(t.Context(), now.Add(tickAgain)))
	if got := ticks(); got != 2 {
		t.Errorf("%d ticks later, want 2", got)
	}
	n.CheckLinked(events.ControlTick)
}

// A finding of a severity that alerts look at has a counter before the first one, also where a case is graded higher
// than its rule: arguments that changed under a receipt are critical.
func TestGradedFindingsAreCountedFromTheStart(t *testing.T) {
	r := metrics.New("correlator")
	r.Correlator("GOV", alertedRules())
	text := string(r.Text())
	for rule, severity := range map[string]events.Severity{"input_drift": events.SeverityCritical, "missing_completion": events.SeverityHigh, "executed_despite_deny": events.SeverityCritical} {
		if line := fmt.Sprintf(`countersign_findings_total{rule="%s",service="correlator",severity="%s",shard="GOV"} 0`, rule, severity); !strings.Contains(text, line+"\n") {
			t.Errorf("%s is not there", line)
		}
	}
}
