package auditor

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/evidence/retention"
	"github.com/countersign-dev/countersign/internal/service/metrics"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

// Policies wait while the clocks of broker and auditor differ, and for a day after both leapt. A clock that is set right
// ends that.
func TestPolicyClock(t *testing.T) {
	type reading struct {
		passed       time.Duration // since the first reading
		broker, wall time.Duration // how far the clocks are ahead of the time that passed
		says         string
	}
	const hour, year = time.Hour, 365 * 24 * time.Hour
	for name, readings := range map[string][]reading{
		"both are right":              {{0, 0, 0, ""}, {hour, 0, 0, ""}, {100 * hour, 0, 0, ""}},
		"a little apart":              {{0, clocksApart, 0, ""}, {hour, 0, clocksApart, ""}},
		"the broker's steps":          {{0, 0, 0, ""}, {hour, year, 0, "differ by 8760h"}, {100 * hour, year, 0, "differ"}, {101 * hour, 0, 0, ""}},
		"the broker's is behind":      {{0, -hour, 0, "differ by 1h0m0s"}, {hour, 0, 0, ""}},
		"the broker's is wrong":       {{0, year, 0, "differ"}, {hour, year, 0, "differ"}},
		"both step, and are mended":   {{0, 0, 0, ""}, {hour, year, year, "leapt by 8760h0m0s"}, {2 * hour, 0, 0, ""}, {3 * hour, 0, 0, ""}},
		"both step, and remain":       {{0, 0, 0, ""}, {hour, year, year, "for 24h"}, {24 * hour, year, year, "for 1h0m0s"}, {25 * hour, year, year, ""}, {26 * hour, year, year, ""}},
		"they step again":             {{0, 0, 0, ""}, {hour, year, year, "leapt"}, {25 * hour, year, year, ""}, {26 * hour, 2 * year, 2 * year, "for 24h"}},
		"the machine slept overnight": {{0, 0, 0, ""}, {hour, 16 * hour, 16 * hour, ""}, {2 * hour, 32 * hour, 32 * hour, ""}},
	} {
		t.Run(name, func(t *testing.T) {
			var clock policyClock
			begun := time.Now()
			for i, r := range readings {
				now := begun.Add(r.passed)
				clock.compare(now.Add(r.broker), now.Add(r.wall), r.passed)
				at, err := clock.policyTime(now)
				if (err == nil) != (r.says == "") || err != nil && !strings.Contains(err.Error(), r.says) || at.IsZero() != (err != nil) {
					t.Errorf("reading %d: %v, %v; want %q", i, at, err, r.says)
				}
			}
		})
	}
}

// While the clock cannot be trusted nothing is erased by a policy and the reason is told; what an operator ordered goes on.
func TestALeapErasesNothing(t *testing.T) {
	c := newCustody(t)
	c.n.Publish(servicetest.Runtime, session(t, "s1")...)
	c.n.Publish(servicetest.Runtime, session(t, "s2")...)
	c.audited()
	c.f.RetentionAhead = 11 * 24 * time.Hour
	_, err := c.bucket().Put(t.Context(), retention.PolicyKey("acme"), []byte("version: 1\nname: p\nlog: 10d\n"))
	servicetest.OK(t, err)
	c.change(func(s retention.State) (retention.State, error) {
		return s.RequestErasure(retention.Order{Scope: retention.Scope{Session: "s1"}, Note: asked("o1")})
	})
	c.step(func(ctx context.Context, k *custodian) {
		k.clock.at = time.Now().Add(-2 * leapAtMost) // then the clocks leapt by two days
		err := k.pollBucket(ctx)
		if got := fmt.Sprintf("%s of %d", c.status("o1"), len(c.state().Orders)); got != "begun of 1" || err == nil || !strings.Contains(err.Error(), "leapt by 48h") {
			t.Errorf("%s, %v", got, err)
		}
	})
	c.audited()
	c.look()
	if got := len(c.state().Orders); got != 2 {
		t.Errorf("%d orders by a clock that is right", got)
	}
}

// What waits for its erasure is counted from when it was due; what is held, or whose policy is gone, does not wait.
func TestOverdueSessions(t *testing.T) {
	c := newCustody(t)
	c.n.Publish(servicetest.Runtime, session(t, "s1")...)
	c.n.Publish(servicetest.Runtime, session(t, "s2")...)
	c.audited()
	newest := time.Now()
	_, err := c.bucket().Put(t.Context(), retention.PolicyKey("acme"), []byte("version: 1\nname: p\nlog: 10d\nsessions: [{match: s1, log: 1d}, {match: s2, log: 2d}]\n"))
	servicetest.OK(t, err)
	const day = 24 * time.Hour
	c.step(func(ctx context.Context, k *custodian) {
		k.policies.counts = metrics.New("auditor").Auditor("GOV", nil, nil)
		due := func(after time.Duration) time.Duration {
			t.Helper()
			servicetest.OK(t, k.policies.applyPolicies(ctx, newest.Add(after), everyTenant))
			for _, o := range c.state().Orders {
				if o.Status == retention.Ordered {
					c.change(func(s retention.State) (retention.State, error) {
						return s.RefuseOrder(o.ID, "the test has seen it", time.Now())
					})
				}
			}
			if at := k.policies.dueSince["acme"]; !at.IsZero() {
				return at.Sub(newest).Round(time.Hour)
			}
			return 0
		}
		if got := due(time.Hour); got != 0 {
			t.Errorf("nothing is due, and it says %v", got)
		}
		if got := due(5 * day); got != day {
			t.Errorf("due since %v, want a day", got)
		}
		c.change(func(s retention.State) (retention.State, error) {
			return s.PlaceHold(retention.Hold{Scope: retention.Scope{Session: "s1"}, Note: asked("h1")})
		})
		if got := due(5 * day); got != 2*day {
			t.Errorf("due since %v, want two days", got)
		}
		if got := due(time.Hour); got != 0 {
			t.Errorf("nothing is due any more, and it says %v", got)
		}
		due(5 * day)
		servicetest.OK(t, c.bucket().Delete(t.Context(), retention.PolicyKey("acme")))
		if got := due(5 * day); got != 0 {
			t.Errorf("without a policy: %v", got)
		}
	})
}

// A restart makes no clock right: a new custodian measures the leap in the evidence, until the records are those of a day
// without one or a person has found the clocks right.
func TestALeapBeforeTheStart(t *testing.T) {
	c := newCustody(t)
	c.n.Publish(servicetest.Runtime, session(t, "s1")...)
	c.audited()
	st, err := streams.StreamState(t.Context(), c.n.JS("auditor"), "GOV")
	servicetest.OK(t, err)
	execute := ownerOf(t, c.dsn)
	for _, tt := range []struct {
		name    string
		ages    []int         // hours, of the newest records; those before are as old as the first one
		checked time.Duration // how long ago; 0: not
		says    string
	}{
		{name: "a young log", ages: []int{2, 1}},
		{name: "a log without a break", ages: []int{60, 40, 20}},
		{name: "nothing came since the leap", ages: []int{8760}, says: "leapt by 8760h0m0s: no retention policy is applied for 24h0m0s"},
		{name: "an hour since the leap", ages: []int{8760, 1}, says: "leapt by 8760h0m0s: no retention policy is applied for 23h0m0s"},
		{name: "a day since the leap", ages: []int{8760, 25, 2}},
		{name: "off for a weekend", ages: []int{64}, says: "leapt by 64h"},
		{name: "it was ahead and is mended", ages: []int{48, -100, 1}, says: "for 24h0m0s"},
		{name: "a person has checked", ages: []int{8760, 1}, checked: time.Hour},
		{name: "a supervisor repeats the check", ages: []int{8760, 1}, checked: 25 * time.Hour, says: "leapt by 8760h0m0s"},
		{name: "by a trusted clock it is earlier", ages: []int{8760, 1}, checked: -8760 * time.Hour, says: "leapt by 8760h0m0s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			from := 0
			for i, age := range tt.ages {
				execute(fmt.Sprintf("ALTER TABLE evidence UPDATE broker_time = now64(9) - toIntervalHour(%d) WHERE seq >= %d", age, from))
				from = int(st.LastSeq) + i + 2 - len(tt.ages)
			}
			if c.f.ClocksChecked = (time.Time{}); tt.checked != 0 {
				c.f.ClocksChecked = time.Now().Add(-tt.checked)
			}
			c.step(func(ctx context.Context, k *custodian) {
				servicetest.OK(t, k.markEnd(ctx))
				now, err := k.decisionTime(ctx)
				servicetest.OK(t, err)
				at, err := k.clock.policyTime(now)
				if (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) || at.IsZero() != (err != nil) {
					t.Errorf("%v, %v; want %q", at, err, tt.says)
				}
			})
		})
	}
}
