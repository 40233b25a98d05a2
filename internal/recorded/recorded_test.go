package recorded

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var space = subject.Space{}

// pair is a request and its decision as the admitter logs them. apart puts other
// requests of the session between the two.
func pair(t testing.TB, tenant, session string, apart int) (id string, msgs []streams.Msg) {
	t.Helper()
	u, err := uuid.NewV7()
	servicetest.OK(t, err)
	d := events.Decision{DecisionID: u.String(), Tenant: tenant, Protocol: "agenthook", Source: "rt1", Session: session, RequestDigest: "x",
		Verdict: events.Allow, Reasons: []events.Reason{{Evaluator: "e", Code: "c"}}, DecidedAt: events.At(time.Now()), Policy: &events.PolicyRef{Name: "p", Revision: 1}}
	body, err := events.Encode(d)
	servicetest.OK(t, err)
	request := func(id string) streams.Msg {
		return streams.Msg{Subject: space.Request(tenant, "rt1", "agenthook", session), Header: map[string][]string{events.HeaderDecisionID: {id}},
			Body: []byte(`{"of":"` + id + `"}`)}
	}
	msgs = append(msgs, request(d.DecisionID))
	for i := range apart {
		msgs = append(msgs, request(fmt.Sprint("other-", i)))
	}
	return d.DecisionID, append(msgs, streams.Msg{Subject: space.Decision(tenant, "allow", session), Header: map[string][]string{"ce-id": {d.DecisionID}}, Body: body})
}

func open(t testing.TB, n *servicetest.NATS) Log {
	t.Helper()
	return Log{JS: n.JS("operator"), Stream: streams.DefaultShard, Space: space}
}

func TestFind(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	l := open(t, n)
	if _, err := l.FindDecision(t.Context(), "acme", "01a1f875-4fa9-7406-990a-133a994cbdf3"); !errors.Is(err, ErrNoDecision) {
		t.Errorf("in an empty log: %v", err)
	}
	var ids []string
	for i, apart := range []int{0, 3, 0} {
		id, msgs := pair(t, "acme", fmt.Sprint("s", i%2), apart)
		ids = append(ids, id)
		n.Publish("admitter", msgs...)
	}
	for _, id := range ids {
		e, err := l.FindDecision(t.Context(), "acme", id)
		if err != nil || e.Decision.DecisionID != id || e.Request == nil || string(e.Request.Body) != `{"of":"`+id+`"}` {
			t.Errorf("%s: %+v, %v", id, e, err)
		}
		at, err := l.DecisionAt(t.Context(), e.Message.Seq)
		if err != nil || at.Decision.DecisionID != id || at.Request == nil {
			t.Errorf("at %d: %+v, %v", e.Message.Seq, at, err)
		}
	}
	other, err := uuid.NewV7()
	servicetest.OK(t, err)
	for name, try := range map[string]func() (Entry, error){
		"another id":     func() (Entry, error) { return l.FindDecision(t.Context(), "acme", other.String()) },
		"another tenant": func() (Entry, error) { return l.FindDecision(t.Context(), "globex", ids[0]) },
		"no id":          func() (Entry, error) { return l.FindDecision(t.Context(), "acme", "x") },
		"not of time":    func() (Entry, error) { return l.FindDecision(t.Context(), "acme", uuid.NewString()) },
		"beyond the end": func() (Entry, error) { return l.DecisionAt(t.Context(), 1000) },
	} {
		if _, err := try(); !errors.Is(err, ErrNoDecision) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if e, err := l.DecisionAt(t.Context(), 1); err != nil || e.Err == nil {
		t.Errorf("a request is taken for a decision: %+v, %v", e, err)
	}
}

func TestADecisionWithoutItsRequest(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	id, msgs := pair(t, "acme", "s", 0)
	n.Publish("admitter", msgs[1], msgs[0]) // after it does not count
	e, err := open(t, n).FindDecision(t.Context(), "acme", id)
	if err != nil || e.Request != nil {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestSeqAt(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	l := open(t, n)
	for range 5 {
		_, msgs := pair(t, "acme", "s", 0)
		n.Publish("admitter", msgs...)
	}
	st, err := streams.StreamState(t.Context(), l.JS, l.Stream)
	servicetest.OK(t, err)
	log := n.Log()
	for i, m := range log {
		seq, err := l.SeqAt(t.Context(), st, m.Time)
		if err != nil || seq != uint64(i+1) && !log[seq-1].Time.Equal(m.Time) {
			t.Errorf("%d: %d, %v", i+1, seq, err)
		}
	}
	for at, want := range map[time.Time]uint64{time.Unix(0, 0): 1, time.Now().Add(time.Hour): uint64(len(log)) + 1} {
		if seq, err := l.SeqAt(t.Context(), st, at); err != nil || seq != want {
			t.Errorf("%s: %d, %v", at, seq, err)
		}
	}
}

// Scan gives every decision of the tenant once, in order, with its request.
func TestScan(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	l := open(t, n)
	var want []string
	var all []streams.Msg
	for i := range 1_500 { // several stretches
		tenant := "acme"
		if i%3 == 0 {
			tenant = "globex"
		}
		id, msgs := pair(t, tenant, fmt.Sprint("s", i%7), i%2)
		if tenant == "acme" {
			want = append(want, id)
		}
		all = append(all, msgs...)
	}
	n.Publish("admitter", all...)
	var got []string
	last := uint64(0)
	begun := time.Now()
	err := l.Scan(t.Context(), "acme", 1, uint64(len(all)), func(seq uint64) { last = seq }, func(e Entry) error {
		if e.Request == nil || string(e.Request.Body) != `{"of":"`+e.Decision.DecisionID+`"}` {
			t.Errorf("%d: request %+v", e.Message.Seq, e.Request)
		}
		got = append(got, e.Decision.DecisionID)
		return nil
	})
	servicetest.OK(t, err)
	t.Logf("%d decisions in %s", len(got), time.Since(begun))
	if fmt.Sprint(got) != fmt.Sprint(want) || last != uint64(len(all)) {
		t.Errorf("%d decisions, want %d; told %d of %d", len(got), len(want), last, len(all))
	}
	stop := errors.New("stop")
	if err := l.Scan(t.Context(), "", 1, uint64(len(all)), func(uint64) {}, func(Entry) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("%v", err)
	}
	count := 0
	servicetest.OK(t, l.Scan(t.Context(), "", 2, 9, func(uint64) {}, func(Entry) error { count++; return nil }))
	if count != 3 {
		t.Errorf("%d decisions from 2 to 9", count)
	}
}

// change logs a change of policies.
func change(t *testing.T, n *servicetest.NATS, c events.PolicyChange) {
	t.Helper()
	body, err := events.Encode(c)
	servicetest.OK(t, err)
	servicetest.OK(t, streams.StoreLinked(t.Context(), n.JS("admitter"), streams.DefaultShard, streams.Msg{Subject: space.Control(streams.DefaultShard, events.ControlPolicy), Body: body}))
}

// TestALostPolicyChangeIsAnError: without the record of a change, decisions would be made again by the set before it.
func TestALostPolicyChangeIsAnError(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	l := open(t, n)
	for revision := range uint64(3) {
		change(t, n, events.PolicyChange{Revision: revision})
	}
	_, err := streams.Erase(t.Context(), n.Conn("custodian"), streams.DefaultShard, 2)
	servicetest.OK(t, err)
	if _, err := l.Policies(t.Context()); err == nil || !strings.Contains(err.Error(), "lost message 2") {
		t.Errorf("%v", err)
	}
}

func TestPolicies(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	l := open(t, n)
	builtin := []events.PolicyDocument{{Name: "a.yaml", Text: "builtin: evaluators-only\n"}}
	const digest = "sha256:0"
	ref := func(revision uint64, digest string) events.Decision {
		return events.Decision{Policy: &events.PolicyRef{Revision: revision, Digest: digest}}
	}
	p, err := l.Policies(t.Context())
	servicetest.OK(t, err)
	if _, err := p.ForDecision(t.Context(), events.Decision{}, 100); !errors.Is(err, ErrNoPolicies) {
		t.Errorf("an empty log: %v", err)
	}
	change(t, n, events.PolicyChange{Revision: 0, Policies: []events.PolicyRef{}, Error: "none"})                             // 1
	change(t, n, events.PolicyChange{Revision: 1, Policies: []events.PolicyRef{}, Digest: digest, Documents: builtin})        // 2: says another digest than it has
	change(t, n, events.PolicyChange{Revision: 2, Policies: []events.PolicyRef{}, Digest: digest, Omitted: true, Error: "x"}) // 3
	p, err = l.Policies(t.Context())
	servicetest.OK(t, err)
	for _, c := range []struct {
		name string
		d    events.Decision
		at   uint64
		want uint64 // sequence of the record
		gone bool
	}{
		{"nothing named, the newest before", events.Decision{}, 2, 1, false},
		{"nothing named, before the first", events.Decision{}, 1, 0, false},
		{"named", ref(1, digest), 9, 2, true},
		{"named, recorded later", ref(1, digest), 1, 2, true},
		{"another digest", ref(1, "sha256:1"), 9, 0, false},
		{"text gone", ref(2, digest), 9, 3, true},
	} {
		in, err := p.ForDecision(t.Context(), c.d, c.at)
		switch {
		case c.want == 0:
			if !errors.Is(err, ErrNoPolicies) {
				t.Errorf("%s: %+v, %v", c.name, in, err)
			}
		case err != nil || in.Seq != c.want || (in.GoneErr != nil) != c.gone:
			t.Errorf("%s: %+v, %v", c.name, in, err)
		}
	}
}

func BenchmarkScan(b *testing.B) {
	n := servicetest.Start(b, streams.Shard{})
	l := open(b, n)
	var all []streams.Msg
	for i := range 10_000 {
		_, msgs := pair(b, "acme", fmt.Sprint("s", i%100), 0)
		all = append(all, msgs...)
	}
	n.Publish("admitter", all...)
	for b.Loop() {
		servicetest.OK(b, l.Scan(b.Context(), "acme", 1, uint64(len(all)), func(uint64) {}, func(Entry) error { return nil }))
	}
	b.ReportMetric(float64(len(all)/2*b.N)/b.Elapsed().Seconds(), "decisions/s")
}
