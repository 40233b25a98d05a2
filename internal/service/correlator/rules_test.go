package correlator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/service/lease"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

func rulesBucket(t *testing.T, n *servicetest.NATS) jetstream.KeyValue {
	t.Helper()
	kv, err := n.JS("operator").KeyValue(t.Context(), streams.BucketRules)
	servicetest.OK(t, err)
	return kv
}

func changes(t *testing.T, n *servicetest.NATS) (list []events.RulesChange) {
	t.Helper()
	for _, m := range n.Log() {
		if m.Subject == "gov.control.GOV.rules" {
			c, err := events.DecodeRecord[events.RulesChange](m.Body)
			servicetest.OK(t, err)
			list = append(list, c)
		}
	}
	return list
}

// found are the findings of a rule in a session.
func found(t *testing.T, n *servicetest.NATS, rule, session string) (list []events.Finding) {
	t.Helper()
	for _, o := range outputs(n.Log()) {
		if strings.HasPrefix(o.subject, "gov.findings.") && strings.HasSuffix(o.subject, "."+session) {
			var f events.Finding
			servicetest.OK(t, json.Unmarshal([]byte(o.body), &f))
			if f.Rule == rule {
				list = append(list, f)
			}
		}
	}
	return list
}

// A switch is on the log before it applies, a replay of the log gives the same findings, and
// after a restart nothing is written twice.
func TestRuleSwitches(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	kv := rulesBucket(t, n)
	s := start(t, n, long).AwaitReady()
	const rule = "executed_without_verdict"
	probe := func(name string) []events.Finding {
		n.Publish(servicetest.Runtime, session(t, name)...)
		servicetest.Eventually(t, "the session is correlated", func() bool {
			for _, o := range outputs(n.Log()) {
				if strings.HasPrefix(o.subject, "gov.calls.acme.completed."+name) {
					return true
				}
			}
			return false
		})
		return found(t, n, rule, name)
	}
	put := func(rules string, want int) {
		t.Helper()
		_, err := kv.Put(t.Context(), "acme", []byte(`{"tenant":"acme","rules":{`+rules+`}}`))
		servicetest.OK(t, err)
		servicetest.Eventually(t, "the switch is on the log", func() bool { return len(changes(t, n)) == want })
	}
	if f := probe("sess-0001"); len(f) == 0 || f[0].Enforced {
		t.Errorf("before: %+v", f)
	}
	put(fmt.Sprintf("%q:%q", rule, "off"), 1)
	if f := probe("sess-0002"); len(f) != 0 {
		t.Errorf("off: %+v", f)
	}
	put(fmt.Sprintf("%q:%q", rule, "enforce"), 2)
	if f := probe("sess-0003"); len(f) == 0 || !f[0].Enforced {
		t.Errorf("enforced: %+v", f)
	}
	servicetest.OK(t, kv.Delete(t.Context(), "acme"))
	servicetest.Eventually(t, "so is its end", func() bool { return len(changes(t, n)) == 3 })
	if f := probe("sess-0004"); len(f) == 0 || f[0].Enforced {
		t.Errorf("deleted: %+v", f)
	}
	servicetest.Eventually(t, "everything is put out", func() bool {
		log := n.Log()
		want, _ := undisturbed(newCore(t, n, long), log)
		return len(outputs(log)) == len(want)
	})
	servicetest.OK(t, ignoreCancel(s.Stop()))
	compare(t, n, long)
	before := len(n.Log())
	servicetest.OK(t, ignoreCancel(start(t, n, long).AwaitReady().Stop()))
	if after := len(n.Log()); after != before {
		t.Errorf("a restart wrote %d messages", after-before)
	}
	n.CheckLinked(events.ControlRules)
}

// A switch is written while outputs are pending and no moment without messages comes.
func TestRuleSwitchUnderLoad(t *testing.T) {
	n := someLog(t)
	_, err := rulesBucket(t, n).Put(t.Context(), "acme", []byte(`{"tenant":"acme","rules":{"input_drift":"off"}}`))
	servicetest.OK(t, err)
	w := alone(t, n, long, "w")
	w.role = roleUnknown
	w.put(1, slices.Repeat([][]byte{[]byte("{}")}, maxWaiting)...)
	caughtUp, busy := &batch{idle: true, decoded: make(chan struct{})}, &batch{decoded: make(chan struct{})}
	close(caughtUp.decoded)
	in := newDecodePipeline(w.core, w.keys)
	in.ordered <- caughtUp
	in.ordered <- busy
	e := election{lead: make(chan *lease.Lease, 1), standby: make(chan struct{}, 1)}
	servicetest.OK(t, e.run(t.Context(), w))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- w.rules.run(ctx) }()
	go func() { ended <- w.runLoop(ctx, in, e) }()
	servicetest.Eventually(t, "the switch is on the log", func() bool { return len(changes(t, n)) == 1 })
	stop()
	for range 2 {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

// What is no document of switches counts for nothing, and health says so; the
// others count nonetheless.
func TestBadRuleSwitches(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	kv := rulesBucket(t, n)
	for key, text := range map[string]string{
		"a": "not JSON", "b": `{"tenant":"another","rules":{}}`, "c": `{"tenant":"c","rules":{"input_drift":"loud"}}`, "=h" + strings.Repeat("0", 64): `{}`,
		"empty": `{"tenant":"empty","rules":{}}`, "acme": `{"tenant":"acme","rules":{"input_drift":"off"}}`,
	} {
		_, err := kv.Put(t.Context(), key, []byte(text))
		servicetest.OK(t, err)
	}
	s := start(t, n, long).AwaitReady()
	servicetest.Eventually(t, "the good one is on the log", func() bool { return len(changes(t, n)) == 1 })
	servicetest.Eventually(t, "the others are told", func() bool {
		p := s.Health.Report().Problems["rules"]
		return strings.Contains(p, ": a in") && strings.Contains(p, ": b in") && strings.Contains(p, "loud")
	})
	if c := changes(t, n)[0]; c.Tenant != "acme" || c.Rules["input_drift"] != "off" || c.Revision == 0 || !strings.HasPrefix(c.Store, "KV_rules@") {
		t.Errorf("%+v", c)
	}
	for _, key := range []string{"a", "b", "c", "=h" + strings.Repeat("0", 64)} {
		servicetest.OK(t, kv.Delete(t.Context(), key))
	}
	servicetest.Eventually(t, "a hashed name is all that is left", func() bool {
		p := s.Health.Report().Problems["rules"]
		return strings.Contains(p, "names no tenant") && !strings.Contains(p, "loud")
	})
}
