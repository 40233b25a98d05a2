package streams

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/events"
)

func TestStallObserve(t *testing.T) {
	begin := time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)
	type step struct {
		second    int
		next, due uint64
		want      bool
	}
	for _, tt := range []struct {
		name  string
		steps []step
	}{
		{"nothing is due", []step{{0, 5, 0, false}, {60, 5, 0, false}}},
		{"what is due was handled", []step{{0, 5, 4, false}, {60, 5, 4, false}}},
		{"due for three seconds", []step{{0, 5, 5, false}, {2, 5, 5, false}, {3, 5, 9, true}, {9, 5, 9, true}}},
		{"a message that has just come", []step{{0, 5, 0, false}, {60, 5, 5, false}, {62, 5, 5, false}, {63, 5, 5, true}}},
		{"progress", []step{{0, 5, 9, false}, {2, 6, 9, false}, {4, 7, 9, false}, {6, 7, 9, false}, {7, 7, 9, true}}},
		{"caught up between", []step{{0, 5, 5, false}, {2, 5, 0, false}, {4, 5, 5, false}, {6, 5, 5, false}}},
	} {
		var s StallDetector
		for _, p := range tt.steps {
			if got := s.Observe(p.next, p.due, begin.Add(time.Duration(p.second)*time.Second)); got != p.want {
				t.Errorf("%s: after %d s: %t", tt.name, p.second, got)
			}
		}
	}
}

// pauseConsumers makes all consumers of a stream stand still as one does on a
// replica that lags: heartbeats go on, nothing is delivered, nothing is refused. It
// returns how many there were.
func pauseConsumers(t *testing.T, f *fixture, stream string) (n int) {
	t.Helper()
	nc := f.conn("provisioner")
	st, err := f.js(nc).Stream(ctx(t), stream)
	ok(t, err)
	names := st.ConsumerNames(ctx(t))
	for name := range names.Name() {
		body, err := json.Marshal(map[string]any{"pause_until": time.Now().Add(time.Hour)})
		ok(t, err)
		msg, err := nc.Request("$JS.API.CONSUMER.PAUSE."+stream+"."+name, body, guard)
		ok(t, err)
		var resp struct{ Error *apiError }
		ok(t, json.Unmarshal(msg.Data, &resp))
		if resp.Error != nil {
			t.Fatal(resp.Error)
		}
		n++
	}
	ok(t, names.Err())
	return n
}

// TestReadLogNoticesAConsumerThatStandsStill: the consumer delivers nothing more,
// without an error and with heartbeats, while the leader's log goes on. The reader
// makes it anew, says so, and delivers everything in order.
func TestReadLogNoticesAConsumerThatStandsStill(t *testing.T) {
	for _, tt := range []struct {
		name   string
		filter []string
	}{{"the whole log", nil}, {"some subjects", []string{"gov.decisions.>", "gov.events.acme.*.aaep.>"}}} {
		t.Run(tt.name, func(t *testing.T) {
			f := flatServer(t, `{ user: runtime, password: pw-runtime }, { user: auditor, password: pw-auditor }`)
			rt := f.conn("runtime")
			ok(t, PublishEvents(ctx(t), rt, events64("runtime", 10)))
			stalls, paused, idled := 0, 0, uint64(0)
			d := &dense{t: t, next: 1, want: 40}
			o := ReadOptions{
				Stream: DefaultShard, Filter: tt.filter, stallAfter: 300 * time.Millisecond, IdleEvery: 10 * time.Millisecond,
				Stalled: func() { stalls++ },
				Idle:    func() error { idled = d.next; return nil },
			}
			err := ReadLog(ctx(t), f.js(f.conn("auditor")), o, func(b []events.LogMessage) error {
				err := d.handle(b)
				if d.next == 11 && paused == 0 {
					paused = pauseConsumers(t, f, DefaultShard)
					ok(t, PublishEvents(ctx(t), rt, events64("runtime", 30)))
				}
				return err
			})
			if !errors.Is(err, errEnough) || paused != 1 || stalls < 1 || idled > 11 {
				t.Errorf("%v; %d consumers stood still, %d noticed; called caught up at %d", err, paused, stalls, idled)
			}
		})
	}
}

// TestReadLogIdleDoesNotMakeConsumersAnew: no message is due, so none is missed.
func TestReadLogIdleDoesNotMakeConsumersAnew(t *testing.T) {
	f := start(t)
	ok(t, StoreAll(ctx(t), f.conn("admitter"), events64("runtime", 3)))
	for _, filter := range [][]string{nil, {"gov.decisions.>"}} {
		end := time.Now().Add(time.Second)
		err := ReadLog(ctx(t), f.js(f.conn("auditor")), ReadOptions{
			Stream: DefaultShard, From: 4, Filter: filter, stallAfter: 50 * time.Millisecond, IdleEvery: 10 * time.Millisecond,
			Stalled: func() { t.Error("a consumer was made anew") },
			Idle: func() error {
				if time.Now().After(end) {
					return errEnough
				}
				return nil
			},
		}, func([]events.LogMessage) error { return nil })
		if !errors.Is(err, errEnough) {
			t.Error(err)
		}
	}
}

// TestCaughtUpByTheLeader: what a filtered reader must have handled to be caught up
// is what the leader holds, not what its consumer says is pending.
func TestCaughtUpByTheLeader(t *testing.T) {
	f := start(t)
	ok(t, StoreAll(ctx(t), f.conn("admitter"), events64("runtime", 7)))
	js := f.js(f.conn("auditor"))
	since := time.Now()
	for _, tt := range []struct {
		filter []string
		since  time.Time
		want   uint64
	}{
		{[]string{"gov.decisions.>"}, time.Time{}, 0},
		{[]string{"gov.decisions.>", "gov.events.>"}, time.Time{}, 7},
		{[]string{"gov.events.>"}, since, 0},
		{[]string{"gov.events.>"}, since.Add(-time.Hour), 7},
	} {
		if got, err := lastDue(ctx(t), js, DefaultShard, tt.filter, tt.since); err != nil || got != tt.want {
			t.Errorf("%v: %d %v", tt.filter, got, err)
		}
	}
	for from, want := range map[uint64]uint64{1: 1, 7: 7, 8: 0, 20: 0} {
		if due, last, err := nextDue(ctx(t), js, DefaultShard, nil, from); err != nil || due != want || last != 7 {
			t.Errorf("from %d: %d %d %v", from, due, last, err)
		}
	}
}

// TestShorterStreamOfAReplicaIsAskedAgain: a stream with replicas that seems to have
// lost messages is asked again; on a single server the answer counts at once.
func TestShorterStreamOfAReplicaIsAskedAgain(t *testing.T) {
	var again *retryError
	r := &logReader{options: ReadOptions{Stream: "GOV"}, next: 9}
	if err := r.checkRewound(State{LastSeq: 5, Replicas: 3}); !errors.As(err, &again) {
		t.Errorf("%v", err)
	}
	r.shortSince = time.Now().Add(-rewoundAfter)
	if err := r.checkRewound(State{LastSeq: 5, Replicas: 3}); !errors.Is(err, ErrRewound) || !strings.Contains(err.Error(), "8 was already stored") {
		t.Errorf("%v", err)
	}
	if err := (&logReader{options: ReadOptions{Stream: "GOV"}, next: 9}).checkRewound(State{LastSeq: 5, Replicas: 1}); !errors.Is(err, ErrRewound) {
		t.Errorf("%v", err)
	}
}
