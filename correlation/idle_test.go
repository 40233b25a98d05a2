package correlation

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/events"
)

// TestOneSessionAlone: a session on its own, with ticks where NextDeadline and
// NextIdle ask for them, comes to what it comes to among others: nobody keeps it from
// being forgotten, and it is not forgotten over its own deadline.
func TestOneSessionAlone(t *testing.T) {
	of := func(e tree) tree { return set(e, "session_id", "s2") }
	waiting := func(l *ledger, d time.Duration) func(*events.Decision) {
		return func(r *events.Decision) {
			r.Approval = &events.ApprovalRef{WorkflowID: "wf-" + r.DecisionID, Status: statusPending, ExpiresAt: events.At(l.now.Add(d))}
		}
	}
	for name, play := range map[string]func(l *ledger){
		"it waits for three days": func(l *ledger) {
			l.admit(of(pre(2)), "d2", events.Ask, waiting(l, 72*time.Hour))
			l.hours(1, 72)
			l.at(72*3600 + 15*60 + 2).tick()
			l.at(72*3600 + 15*60 + 60).event(of(set(post(4), "timestamp", stamp(72*3600+15*60))))
		},
		"another waits for six": func(l *ledger) {
			l.admit(pre(1), "d1", events.Ask, waiting(l, 144*time.Hour))
			l.at(10).event(of(pre(2)))
			l.hours(1, 30)
			l.at(30 * 3600).event(of(set(post(4), "timestamp", stamp(30*3600))))
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(t)
			l.opts.RequireVerdict = false
			play(l)
			l.tick()
			if diff := cmp.Diff(ofS2(l.run()), ofS2(l.alone(t, "s2"))); diff != "" {
				t.Errorf("among others (-), alone (+): %s", diff)
			}
		})
	}
}

// ofS2 is what was found of session s2, and when.
func ofS2(r result) (list []string) {
	for _, f := range append(r.findings, r.checks...) {
		if f.Session == "s2" {
			list = append(list, f.FindingID+" "+f.Rule+" "+f.DetectedAt.String())
		}
	}
	return list
}

// hours is a log on which something happens every hour.
func (l *ledger) hours(from, to int) {
	for h := from; h < to; h++ {
		l.at(float64(h) * 3600).tick()
	}
}

// alone replays a session as countersign replay does.
func (l *ledger) alone(t *testing.T, session string) result {
	r, seq := result{core: New(l.opts)}, uint64(0)
	apply := func(m events.LogMessage) {
		seq = m.Seq
		r.add(t, r.core.Apply(m))
	}
	pass := func(to uint64, until time.Time) {
		for {
			due, any := r.core.NextDeadline()
			if idle, too := r.core.NextIdle(); too && (!any || idle.Before(due)) {
				due, any = idle, true
			}
			if !any || until.Before(due) {
				return
			}
			for seq < to && l.msgs[seq].Time.Before(due) {
				seq++
			}
			if seq >= to {
				return
			}
			apply(events.LogMessage{Seq: seq + 1, Time: l.msgs[seq].Time, Subject: space.Control("GOV", events.ControlTick), Body: []byte("{}")})
		}
	}
	for _, m := range l.msgs {
		p, _ := space.Parse(m.Subject)
		if p.Session == session || p.Kind == events.ControlKey {
			pass(m.Seq-1, m.Time)
			apply(m)
		}
	}
	pass(uint64(len(l.msgs)), l.now)
	return r
}

// TestADeadlineIsNotInThePast: whatever was looked at in between, the next deadline
// is one that time has not reached, and so a tick for it is written.
func TestADeadlineIsNotInThePast(t *testing.T) {
	l := newLedger(t)
	l.opts.RequireVerdict = false
	shake := func(source string, e tree) {
		typ, _ := e["type"].(string)
		l.put(space.Event("acme", source, protoAAEP, "", typ), nil, encode(e))
	}
	request := func(who string) tree {
		return tree{"type": "subscription.request", "aaep_version": "1.0.0", "subscriber_id": who, "capabilities": tree{}}
	}
	accepted := tree{"type": "subscription.accepted", "subscription_id": "sub_1", "aaep_version": "1.0.0", "producer": tree{"agent_id": "clerk"},
		"honored_capabilities": tree{"supports_confirmation_reply": true}}
	for i, source := range []string{"rt1", "rt2"} {
		l.at(float64(i) * 3600)
		shake(source, request("a"))
		shake(source, accepted)
		shake(source, request("b")) // nobody answers
	}
	l.event(wire(1, "session.started", 0, nil))
	l.event(set(completeAAEP(tree{"t": "awaiting.confirmation", "ask": "1", "at": 3602.0}, 2), "timeout_seconds", 600))
	l.at(3700).event(tree{"type": "confirmation.reply", "subscription_id": "sub_1", "reply_token": "rpl_1", "decision": "reject", "timestamp": stamp(3700)})
	l.event(wire(9, "session.cancelled", 3701, tree{"cancelled_by": "user"}))
	l.hours(2, 24)
	l.at(23.9 * 3600).event(pre(50))
	for range 20 {
		core := l.run().core
		due, any := core.NextDeadline()
		if !any {
			break
		}
		if now := core.Stats().LogTime; !due.After(now) {
			t.Fatalf("the next deadline is %v at %v", due, now)
		}
		l.now = due
		l.tick()
	}
	if r := l.run(); r.core.Stats().Open != 0 {
		t.Error("a call is still open")
	}
}
