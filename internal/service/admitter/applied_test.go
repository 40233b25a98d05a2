package admitter

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/service/rollout"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

// verdictPolicy gives every request one verdict.
func verdictPolicy(verdict string) []byte {
	return fmt.Appendf(nil, "apiVersion: countersign.dev/v1\nkind: AdmissionPolicy\nmetadata: {name: all}\nspec:\n  rules: [{name: all, when: 'true', verdict: %s, reason: all}]\n", verdict)
}

func await(t *testing.T, n *servicetest.NATS, done func(rollout.State) bool) []rollout.Instance {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), servicetest.Guard)
	defer cancel()
	late, err := rollout.Await(ctx, n.Conn("operator"), n.JS("operator"), done)
	servicetest.OK(t, err)
	return late
}

// Requests that are sent after a change was confirmed are decided by it, whichever
// of two admitters gets them, and the log has the record of the change before the
// first decision by it.
func TestConfirmedChangesDecide(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	put(t, n, "all.yaml", verdictPolicy("allow"))
	serve(t, n)
	serve(t, n)
	nc, body := n.Conn(servicetest.Runtime), file(t, "requests/pre-tool-use.json")
	operator, js := n.Conn("operator"), n.JS("operator")
	verdicts, revisions := []string{"deny", "allow"}, map[string]uint64{}
	for round := range 12 {
		want := verdicts[round%2]
		// Decisions under way when the change comes must not come after it.
		var busy sync.WaitGroup
		stop := make(chan struct{})
		for range 4 {
			busy.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						_, _ = nc.Request("gov.admit.acme.agenthook", body, servicetest.Guard)
					}
				}
			})
		}
		revision := put(t, n, "all.yaml", verdictPolicy(want))
		revisions[fmt.Sprint(revision)] = revision
		ctx, cancel := context.WithTimeout(t.Context(), servicetest.Guard)
		late, err := rollout.Await(ctx, operator, js, rollout.AtRevision(streams.BucketPolicies, revision))
		cancel()
		servicetest.OK(t, err)
		if len(late) > 0 {
			t.Fatalf("late: %v", late)
		}
		for i := range 20 {
			if got := ask(t, nc, "gov.admit.acme.agenthook", body).Header.Get(events.HeaderVerdict); got != want {
				t.Errorf("round %d, request %d: %s, want %s", round, i, got, want)
			}
		}
		close(stop)
		busy.Wait()
	}
	checkChangesPrecede(t, n)
}

// checkChangesPrecede reads the log: a verdict that differs from the one before
// stands behind the record of a change.
func checkChangesPrecede(t *testing.T, n *servicetest.NATS) {
	t.Helper()
	recorded := map[uint64]bool{} // revisions of which the log has the record
	for _, m := range n.Log() {
		switch {
		case strings.HasPrefix(m.Subject, "gov.control.") && strings.HasSuffix(m.Subject, "."+events.ControlPolicy):
			c, err := events.DecodeRecord[events.PolicyChange](m.Body)
			servicetest.OK(t, err)
			recorded[c.Revision] = true
		case strings.HasPrefix(m.Subject, "gov.decisions."):
			d, err := events.DecodeRecord[events.Decision](m.Body)
			servicetest.OK(t, err)
			if d.Policy == nil || !recorded[d.Policy.Revision] {
				t.Errorf("decision %d goes by %+v, of which the log has no record yet", m.Seq, d.Policy)
			}
		}
	}
}

// An admitter that does not answer is named; one that is gone is not waited for.
func TestAdmittersThatDoNotAnswerAreNamed(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	put(t, n, "all.yaml", verdictPolicy("allow"))
	serve(t, n)
	admitter := n.Conn("admitter")
	leases := bucket(t, n, "admitter", streams.BucketLeases)
	sub, err := admitter.SubscribeSync("$SRV.APPLIED.admitter.PAUSED")
	servicetest.OK(t, err)
	servicetest.OK(t, admitter.Flush())
	for _, id := range []string{"PAUSED", "GONE"} {
		_, err := leases.Put(t.Context(), "admitter."+id, fmt.Appendf(nil, `{"id":%q,"name":"host, process %s"}`, id, id))
		servicetest.OK(t, err)
	}
	revision := put(t, n, "all.yaml", verdictPolicy("deny"))
	operator, js := n.Conn("operator"), n.JS("operator")
	var late []rollout.Instance
	servicetest.Eventually(t, "all but one have the change", func() bool { // a busy machine may need several attempts for those
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		late, err = rollout.Await(ctx, operator, js, rollout.AtRevision(streams.BucketPolicies, revision))
		return err == nil && len(late) <= 1
	})
	if len(late) != 1 || late[0].ID != "PAUSED" || late[0].Name != "host, process PAUSED" {
		t.Errorf("late: %+v", late)
	}
	servicetest.OK(t, sub.Unsubscribe())
	servicetest.OK(t, admitter.Flush())
	if late := await(t, n, rollout.AtRevision(streams.BucketPolicies, revision)); len(late) > 0 {
		t.Errorf("late: %+v", late)
	}
	// The next admitter takes the entries of those that are gone out.
	serve(t, n)
	servicetest.Eventually(t, "entries of processes that are gone are taken out", func() bool {
		_, err := leases.Get(t.Context(), "admitter.GONE")
		return err != nil
	})
}

// A decision under way keeps a change from being confirmed until it is answered.
func TestDecisionsUnderWayHoldAConfirmationBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProgress()
		end := p.beginDecision()
		p.noteChange("policies", 7)
		p.noteSigner("", "old")
		p.noteSigner("old", "new")
		after := p.beginDecision() // by the new state: it holds nothing back
		defer after()
		synctest.Wait()
		if s := p.rolloutState(); s.Revisions["policies"] != 0 || len(s.SigningKeys) != 2 {
			t.Errorf("%+v before the decision has ended", s)
		}
		end()
		synctest.Wait()
		if s := p.rolloutState(); s.Revisions["policies"] != 7 || len(s.SigningKeys) != 1 || s.SigningKeys[0] != "new" {
			t.Errorf("%+v after the decision has ended", s)
		}
		p.unrecorded.Add(1)
		if s := p.rolloutState(); len(s.Revisions) != 0 {
			t.Errorf("%+v while a change is not in the log", s)
		}
	})
}

// While the record of a change is not in the log nothing is decided: neither by
// what was in force nor by what is now.
func TestNothingIsDecidedBeforeTheChangeIsRecorded(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	s := unstarted(t, n)
	s.secrets.cached = nil
	good, closed := s.js, n.Conn("admitter")
	closed.Close()
	var err error
	s.js, err = jetstream.New(closed)
	servicetest.OK(t, err)
	p := newPolicyStore(s)
	p.applyChanges(t.Context(), map[string]bucketEntry{"all.yaml": {verdictPolicy("allow"), 1}}, 1)
	s.js = good
	if r := preToolUse(t); true {
		s.admitRequest(t.Context(), r, time.Now())
		if got := readNative(t, r.body); got.Decision != "deny" || got.Reason != admission.CodeAuditUnavailable {
			t.Errorf("%s", r.body)
		}
	}
	if log := of(n.Log(), "gov.decisions."); len(log) != 0 {
		t.Errorf("%d decisions are in the log before the change", len(log))
	}
	p.applyChanges(t.Context(), nil, 1) // tried again
	r := preToolUse(t)
	s.admitRequest(t.Context(), r, time.Now())
	if got := r.answer.Get(events.HeaderVerdict); got != "allow" {
		t.Errorf("%s, %s", got, r.body)
	}
	checkChangesPrecede(t, n)
}

// Every bucket that an operator changes and an admitter decides by is confirmed.
func TestEveryBucketOfAnOperatorIsConfirmed(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	put(t, n, "all.yaml", verdictPolicy("allow"))
	serve(t, n)
	for _, name := range []string{streams.BucketPolicies, streams.BucketMandates, streams.BucketPublishers} {
		kv := bucket(t, n, "operator", name)
		revision, err := kv.Put(t.Context(), "something", []byte("else"))
		servicetest.OK(t, err)
		if late := await(t, n, rollout.AtRevision(name, revision)); len(late) > 0 {
			t.Errorf("%s: a put is not confirmed", name)
		}
		servicetest.OK(t, kv.Delete(t.Context(), "something"))
		if late := await(t, n, rollout.AtRevision(name, revision+1)); len(late) > 0 {
			t.Errorf("%s: a deletion is not confirmed", name)
		}
	}
}
