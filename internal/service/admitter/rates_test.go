package admitter

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/service/admitter/tally"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

const atMost = `apiVersion: countersign.dev/v1
kind: AdmissionPolicy
metadata: {name: limited}
spec:
  rules:
    - {name: fine, when: 'true', verdict: allow, reason: fine}
    - name: enough
      when: 'true'
      limit: {max: %d, per: %s, by: [%s]}
      verdict: deny
      reason: enough
`

// verdicts asks n times at once and counts the answers.
func verdicts(t *testing.T, n *servicetest.NATS, times int) map[string]int {
	t.Helper()
	nc, body := n.Conn(servicetest.Runtime), file(t, "requests/pre-tool-use.json")
	var mu sync.Mutex
	var wg sync.WaitGroup
	got := map[string]int{}
	for range times {
		wg.Go(func() {
			reply := ask(t, nc, "gov.admit.acme.agenthook", body)
			mu.Lock()
			defer mu.Unlock()
			got[reply.Header.Get(events.HeaderVerdict)]++
		})
	}
	wg.Wait()
	return got
}

func expectVerdicts(t *testing.T, n *servicetest.NATS, times int, want string) {
	t.Helper()
	if got := fmt.Sprint(verdicts(t, n, times)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A burst through one admitter does not exceed the limit, its own decisions are
// not counted again when they come back, and the log says what was counted.
func TestLimitHoldsInABurstAndAcrossRestarts(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	put(t, n, "p.yaml", fmt.Appendf(nil, atMost, 12, "1h", "source"))
	s := serve(t, n)
	expectVerdicts(t, n, 30, "map[allow:12 deny:18]")
	counted := 0
	for _, m := range of(n.Log(), "gov.decisions.") {
		d, err := events.DecodeRecord[events.Decision](m.Body)
		servicetest.OK(t, err)
		if len(d.Counts) != 1 || d.Counts[0].Amount != 1 || d.Counts[0].WindowMS != 3_600_000 || d.Counts[0].Total < 0 {
			t.Fatalf("%+v", d.Counts)
		}
		if d.Verdict == events.Allow {
			counted++
		}
	}
	if counted != 12 {
		t.Errorf("%d decisions count", counted)
	}
	servicetest.OK(t, s.Stop())
	serve(t, n)
	expectVerdicts(t, n, 3, "map[deny:3]")
	put(t, n, "p.yaml", fmt.Appendf(nil, atMost, 14, "1h", "source")) // the maximum is no part of the counter
	servicetest.Eventually(t, "the new limit", func() bool { return verdicts(t, n, 1)["allow"] == 1 })
	servicetest.Eventually(t, "the end of the new limit", func() bool { return verdicts(t, n, 1)["deny"] == 1 })
	expectVerdicts(t, n, 3, "map[deny:3]")
}

// Two admitters agree as soon as the log has reached both.
func TestLimitIsSharedBetweenAdmitters(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	put(t, n, "p.yaml", fmt.Appendf(nil, atMost, 10, "1h", "tenant"))
	serve(t, n)
	expectVerdicts(t, n, 8, "map[allow:8]")
	second := unstartedRates(t, n)
	key := lastCount(t, n).Key
	if total, known := second.current.Load().Total(key, 0, lastDecision(t, n).DecidedAt.Time); total != 8 || !known {
		t.Errorf("the second admitter begins with %d, %t", total, known)
	}
	expectVerdicts(t, n, 2, "map[allow:2]")
	servicetest.Eventually(t, "the first one's decisions at the second", func() bool {
		total, _ := second.current.Load().Total(key, 0, lastDecision(t, n).DecidedAt.Time)
		return total == 10
	})
}

// unstartedRates runs the part of another admitter by itself.
func unstartedRates(t *testing.T, n *servicetest.NATS) *rateStore {
	t.Helper()
	s := unstarted(t, n)
	doc := policy.Document{Name: "p", Data: fmt.Appendf(nil, atMost, 10, "1h", "tenant")}
	set, err := policy.Compile([]policy.Document{doc})
	servicetest.OK(t, err)
	stop, err := s.rates.start(t.Context(), n.Conn("admitter"), n.JS("admitter"))
	servicetest.OK(t, err)
	t.Cleanup(stop)
	s.rates.prepareSet(t.Context(), set)
	if s.rates.current.Load() == nil {
		t.Fatal("nothing is known")
	}
	return s.rates
}

func lastDecision(t *testing.T, n *servicetest.NATS) events.Decision {
	t.Helper()
	list := of(n.Log(), "gov.decisions.")
	d, err := events.DecodeRecord[events.Decision](list[len(list)-1].Body)
	servicetest.OK(t, err)
	return d
}

func lastCount(t *testing.T, n *servicetest.NATS) events.Count {
	t.Helper()
	d := lastDecision(t, n)
	if len(d.Counts) != 1 {
		t.Fatalf("%+v", d)
	}
	return d.Counts[0]
}

// The log is read only while a policy has a limit, further back when a longer
// window comes, and what is counted survives that.
func TestLimitsComeAndGo(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	s := unstarted(t, n)
	compile := func(text string) *policy.Set {
		set, err := policy.Compile([]policy.Document{{Name: "p", Data: []byte(text)}})
		servicetest.OK(t, err)
		return set
	}
	without, err := policy.EvaluatorsOnlySet()
	servicetest.OK(t, err)
	stop, err := s.rates.start(t.Context(), n.Conn("admitter"), n.JS("admitter"))
	servicetest.OK(t, err)
	defer stop()
	force := func(set *policy.Set) {
		s.rates.prepareSet(t.Context(), set)
		s.rates.finishPrepare(set)
	}
	force(without)
	if s.rates.current.Load() != nil {
		t.Error("the log is read for nothing")
	}
	force(compile(fmt.Sprintf(atMost, 5, "1m", "tool")))
	first := s.rates.current.Load()
	if first == nil {
		t.Fatal("the log is not read")
	}
	force(compile(fmt.Sprintf(atMost, 6, "30s", "tool")))
	if s.rates.current.Load() != first {
		t.Error("read again for a shorter window")
	}
	// A set with a longer window may be in force before that is read back: its limits deny, and shorter ones go on.
	now := countedAt
	for window, want := range map[time.Duration]bool{time.Minute: true, time.Hour: false} {
		_, known := first.Total("k", window, now)
		if reserved := first.Reserve("mine too", []policy.Count{{Key: "k", Window: window, Amount: 1, Max: 9}}, now); known != want || reserved != want {
			t.Errorf("%s: known %t, reserved %t", window, known, reserved)
		}
	}
	first.Release("mine too")
	first.Reserve("mine", counted("k", 4, 9), now)
	force(compile(fmt.Sprintf(atMost, 6, "1h", "tool")))
	longer := s.rates.current.Load()
	if longer == first || longer == nil {
		t.Fatal("not read further back")
	}
	expectTotal(t, longer, "k", 4)
	s.env.Health.Set("rates", "the log cannot be read")
	force(without)
	if s.rates.current.Load() != nil {
		t.Error("the log is read on")
	}
	if problem := s.env.Health.Report().Problems["rates"]; problem != "" {
		t.Error("unhealthy for counts that no policy needs:", problem)
	}
	force(nil)
	stop()
	stop()
}

// Without a view of the log the totals are unknown and nothing can be reserved; decisions without
// a limit are not affected.
func TestNothingIsTakenWhileNothingIsKnown(t *testing.T) {
	r := newRateStore(nil)
	var in admission.Inputs
	if r.load(admission.Request{}, &in); in.Counters != nil {
		t.Error("counters out of nothing")
	}
	if _, err := r.reserve(t.Context(), admission.Request{}, &admission.Outcome{}); err != nil {
		t.Error(err)
	}
	out := &admission.Outcome{Consumption: admission.Consumption{Counts: counted("a", 1, 5)}}
	if _, err := r.reserve(t.Context(), admission.Request{}, out); !errors.Is(err, errConflict) {
		t.Error(err)
	}
}

// What was certainly not recorded does not count.
func TestWhatIsNotRecordedIsGivenBack(t *testing.T) {
	r, out := newRateStore(nil), &admission.Outcome{Consumption: admission.Consumption{Counts: counted("a", 1, 5)}}
	l := tally.New(policy.MaxWindow)
	r.current.Store(l)
	out.Decision.DecisionID, out.Decision.DecidedAt = "d", events.At(countedAt)
	took, err := r.reserve(t.Context(), admission.Request{}, out)
	servicetest.OK(t, err)
	expectTotal(t, l, "a", 1)
	took.release(t.Context())
	expectTotal(t, l, "a", 0)
}

// TestReservationsOutliveTheirTally: the log could not be read any more while decisions were under way.
// Those that the log did not show meanwhile count in the next tally; the others count once.
func TestReservationsOutliveTheirTally(t *testing.T) {
	r, now, one := newRateStore(nil), time.Now(), counted("a", 1, 5)
	take := func(id string) reservation {
		t.Helper()
		out := &admission.Outcome{Consumption: admission.Consumption{Counts: one}}
		out.Decision.DecisionID, out.Decision.DecidedAt = id, events.At(now)
		took, err := r.reserve(t.Context(), admission.Request{}, out)
		servicetest.OK(t, err)
		return took
	}
	first := tally.New(policy.MaxWindow)
	r.install(first)
	take("under way")
	take("stored")
	undone := take("undone")
	r.forget(first)
	if first.Reserve("late", one, now) {
		t.Error("a tally that is not used any more takes reservations")
	}
	undone.release(t.Context())
	body, err := events.Encode(events.Decision{DecisionID: "stored", Verdict: events.Allow, DecidedAt: events.At(now), Counts: policy.RecordCounts(one)})
	servicetest.OK(t, err)
	second := tally.New(policy.MaxWindow)
	observeAll(second, r.reserved.Load(), []events.LogMessage{{Body: body, Time: now}})
	r.forget(first) // by a reader that ends later
	r.install(second)
	if total, known := second.Total(one[0].Key, time.Minute, now); total != 2 || !known {
		t.Errorf("%d, known %v, want 2", total, known)
	}
}

var countedAt = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// counterKey has the part of a key that a tenant has.
func counterKey(key string) string { return "tenant-part-" + key }

// counted is an amount of a counter within a minute.
func counted(key string, amount, limit int64) []policy.Count {
	return []policy.Count{{Key: counterKey(key), Window: time.Minute, Amount: amount, Max: limit}}
}

// expectTotal demands what is counted within a minute.
func expectTotal(t *testing.T, l *tally.Tally, key string, want int64) {
	t.Helper()
	if total, known := l.Total(counterKey(key), time.Minute, countedAt); total != want || !known {
		t.Errorf("%s: %d, known %v, want %d", key, total, known, want)
	}
}
