package admitter

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/service/metrics"
	"github.com/countersign-dev/countersign/internal/service/quota"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/internal/service/shares"
	"github.com/countersign-dev/countersign/streams"
)

func TestMemoryIsReservedBeforeItIsUsed(t *testing.T) {
	m, err := newMemoryBudget(256)
	servicetest.OK(t, err)
	taken, callers := int64(0), 0
	for ; ; callers++ {
		n, fits := m.reserve(shares.Caller{Tenant: fmt.Sprint(callers), User: "u"}, callers%2*100_000, (callers+1)%2*100_000)
		if !fits {
			break
		}
		if taken += n; taken > m.limit/2 {
			t.Fatalf("%d bytes are reserved, half of the limit is %d", taken, m.limit/2)
		}
	}
	if taken < m.limit/2-requestBase-requestMemory*100_000 {
		t.Errorf("only %d bytes could be reserved", taken)
	}
	for i := range callers {
		m.release(shares.Caller{Tenant: fmt.Sprint(i), User: "u"}, taken/int64(callers))
	}
	if _, fits := m.reserve(shares.Caller{Tenant: "acme", User: "u"}, 40_000, 60_000); !fits || m.requests.Held() != requestBase+requestMemory*100_000 {
		t.Error("what was released cannot be reserved again")
	}
	for _, bad := range []int64{0, -1, 255, 1 << 60} {
		if _, err := newMemoryBudget(bad); err == nil || !strings.Contains(err.Error(), "--memory-limit") {
			t.Errorf("%d MiB: %v", bad, err)
		}
	}
}

func TestEvaluationsShareTheMemory(t *testing.T) {
	m, err := newMemoryBudget(256)
	servicetest.OK(t, err)
	if n := m.evaluating.Capacity(); n*evaluationMemory > m.limit/4 {
		t.Fatalf("%d evaluations of %d bytes at the same time", n, evaluationMemory)
	}
	inside, leave := make(chan struct{}), make(chan struct{})
	for i := range m.evaluating.Capacity() {
		go func() {
			_ = m.runEvaluation(context.Background(), shares.Caller{Tenant: fmt.Sprint(i), User: "u"}, func() { inside <- struct{}{}; <-leave })
		}()
		<-inside
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := m.runEvaluation(ctx, shares.Caller{Tenant: "acme", User: "u"}, func() { t.Error("one more was evaluated") }); !errors.Is(err, errDeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	close(leave)
}

// A request for which there is no memory is refused as one for which there is no
// worker, and what it would have taken is free again.
func TestRefusesBeforeTheMemoryIsUsedUp(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	s := unstarted(t, n)
	full := s.memory.limit/2 - 1
	s.memory.requests.Take(shares.Caller{Tenant: "globex", User: "u"}, full)
	r := preToolUse(t)
	s.acceptRequest(t.Context(), r)
	if got := readNative(t, r.body); got.Decision != "deny" || got.Reason != codeOverloaded {
		t.Errorf("%s", r.body)
	}
	if got := s.memory.requests.Held(); got != full || s.workers.places.Held() != 0 {
		t.Errorf("%d bytes are reserved and %d places taken after the refusal", got, s.workers.places.Held())
	}
}

// The headers of a request are counted, too, also those of one whose body is too large to be read.
func TestHeadersTakeMemory(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	s := unstarted(t, n)
	r := preToolUse(t)
	left := requestNeeds(quota.HeaderBytes(r.header), len(r.data))
	s.memory.requests.Take(shares.Caller{Tenant: "globex", User: "u"}, s.memory.limit/2-left)
	r.header["Ce-X"] = []string{"x"}
	s.acceptRequest(t.Context(), r)
	if got := readNative(t, r.body); got.Decision != "deny" || got.Reason != codeOverloaded {
		t.Errorf("%s", r.body)
	}
	if more := requestNeeds(1000, 2<<20) - requestNeeds(0, 2<<20); more != requestMemory*1000 {
		t.Errorf("%d bytes more", more)
	}
}

// A request that policies could not judge in time is refused, and no decision is
// recorded that another run would not make.
func TestPoliciesThatTakeTooLongAreADenialWithoutARecord(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	s := unstarted(t, n)
	s.flags.Timeout = 20 * time.Millisecond
	set, err := policy.Compile([]policy.Document{{Name: "slow.yaml", Data: []byte(`apiVersion: countersign.dev/v1
kind: AdmissionPolicy
metadata: {name: slow}
spec:
  params: {list: [` + strings.TrimSuffix(strings.Repeat("1,", 450), ",") + `]}
  rules: [{name: slow, when: 'params.list.all(x, params.list.all(y, x == y)) || true', verdict: allow, reason: slow}]
`)}})
	servicetest.OK(t, err)
	s.config.Store(&admission.Config{Policies: set})
	s.secrets.cached = nil
	counts := metrics.New("admitter")
	s.metrics = counts.Admitter("GOV", 1, func() int { return 0 })
	r := preToolUse(t)
	s.admitRequest(t.Context(), r, time.Now())
	if got := readNative(t, r.body); got.Decision != "deny" || got.Reason != policy.CodePolicyDeadline || r.answer.Get(events.HeaderVerdict) != "deny" {
		t.Errorf("%s", r.body)
	}
	if log := n.Log(); len(log) != 0 {
		t.Errorf("%d messages in the log", len(log))
	}
	if !strings.Contains(string(counts.Text()), `refused_total{code="policy_deadline",service="admitter"} 1`) {
		t.Error("the denial is not counted under its code")
	}
}

// contested is a store whose state other callers change all the time.
type contested struct{ stateStore }

func (contested) load(admission.Request, *admission.Inputs) {}

func (contested) reserve(context.Context, admission.Request, *admission.Outcome) (reservation, error) {
	return reservation{}, errConflict
}

// TestStateThatOthersKeepChangingIsADenial: the request is refused when its time is over, and nothing is said of the
// log, which is not at fault.
func TestStateThatOthersKeepChangingIsADenial(t *testing.T) {
	s := unstarted(t, servicetest.Start(t, streams.Shard{}))
	s.flags.Timeout, s.stores, s.secrets.cached = 100*time.Millisecond, []stateStore{contested{}}, nil
	r := preToolUse(t)
	s.admitRequest(t.Context(), r, time.Now())
	if got := readNative(t, r.body); got.Decision != "deny" || got.Reason != codeOverloaded {
		t.Errorf("%s", r.body)
	}
	if problem := s.env.Health.Report().Problems["log"]; problem != "" {
		t.Errorf("health says of the log: %s", problem)
	}
}

// The factor by which a request is counted is enough for the worst documents: many
// small values.
func TestMemoryOfARequestIsNotUnderestimated(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	s := unstarted(t, n)
	s.secrets.cached = nil
	for name, args := range map[string]string{
		"numbers": strings.Repeat("1,", 100_000) + "1", "lists": strings.Repeat("[],", 70_000) + "1",
		"objects": strings.Repeat("{},", 70_000) + "1", "members": strings.Repeat(`{"":0},`, 30_000) + "1", "texts": strings.Repeat(`"",`, 70_000) + "1",
	} {
		r := preToolUse(t)
		r.data = []byte(strings.Replace(string(r.data), `"to": "dana@acme.example"`, `"to": [`+args+"]", 1))
		if len(r.data) < 200_000 {
			t.Fatalf("the example request has changed: %d bytes", len(r.data))
		}
		held := heldByDecision(t, s, r)
		if held > requestMemory*int64(len(r.data)) {
			t.Errorf("%s: %d bytes are held for a request of %d", name, held, len(r.data))
		}
		t.Logf("%s: %d times its size", name, held/int64(len(r.data)))
	}
}

// heldByDecision gives the memory that a decision and its request hold when it is made.
func heldByDecision(t *testing.T, s *service, r *fake) int64 {
	t.Helper()
	req, ofTenant := s.parseRequest(r, time.Now())
	in, err := s.drawInputs(req, ofTenant)
	servicetest.OK(t, err)
	var before, after runtime.MemStats
	// Twice, because the first leaves what pools keep. Those buffers are used while an evaluation
	// runs, and counted with it (evaluationMemory).
	collect := func() { runtime.GC(); runtime.GC() }
	collect()
	runtime.ReadMemStats(&before)
	out := admission.Decide(req, nil, in)
	collect()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(out)
	return int64(after.HeapAlloc) - int64(before.HeapAlloc)
}
