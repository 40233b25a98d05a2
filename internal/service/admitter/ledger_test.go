package admitter

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/admission/receipt"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

const overBudget = "denied hard_constraint_violation price_above_budget"

// spending is a server with the courier's mandate over EUR 10.00 in force.
func spending(t *testing.T) (n *servicetest.NATS, hash string) {
	t.Helper()
	n = servicetest.Start(t, streams.Shard{})
	evaluators(t, n)
	raw, hash := courier(t)
	store(t, n, "acme", raw, hash)
	return n, hash
}

// spent is the account as the bucket has it.
func spent(t *testing.T, n *servicetest.NATS) (a mandate.Account) {
	t.Helper()
	e, err := bucket(t, n, "operator", streams.BucketSpend).Get(t.Context(), mandate.AccountKey("acme", courierID, "EUR"))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return a
	}
	servicetest.OK(t, err)
	servicetest.OK(t, json.Unmarshal(e.Value(), &a))
	return a
}

// decision is the newest allow in the log.
func decision(t *testing.T, n *servicetest.NATS) (d events.Decision, seq uint64) {
	t.Helper()
	list := of(n.Log(), "gov.decisions.acme.allow.")
	m := list[len(list)-1]
	d, err := events.DecodeRecord[events.Decision](m.Body)
	servicetest.OK(t, err)
	return d, m.Seq
}

// report writes how a call ended, as the correlator does.
func report(t *testing.T, n *servicetest.NATS, c events.Call) {
	t.Helper()
	body, err := events.Encode(c)
	servicetest.OK(t, err)
	n.Publish("correlator", streams.Msg{Subject: "gov.calls.acme." + string(c.State) + "." + c.Session, Body: body})
}

// ended is the record of the call that a decision was made for.
func ended(d events.Decision, seq uint64, state events.CallState) events.Call {
	return events.Call{
		CallID: "call_1", Tenant: d.Tenant, Source: d.Source, Protocol: d.Protocol, Session: d.Session, ToolCallID: d.ToolCallID, Occurrence: 1,
		State: state, DecisionID: d.DecisionID, DecisionSeq: seq, Timeline: []events.TimelineEntry{},
	}
}

func TestCumulativeSpend(t *testing.T) {
	n, hash := spending(t)
	serve(t, n)
	nc := n.Conn(servicetest.Runtime)
	buy := func(call string, amount int) string { return propose(t, nc, booking(hash, amount), call).String() }
	for _, tc := range []struct {
		call   string
		amount int
		want   string
	}{
		{"c1", 600, "allowed"},
		{"c1", 600, "allowed"}, // asked again
		{"c2", 500, overBudget},
		{"c2", 400, "allowed"},
		{"c3", 1, overBudget},
		{"c3", 0, "allowed"},
		{"", 1, overBudget},
	} {
		if got := buy(tc.call, tc.amount); got != tc.want {
			t.Errorf("%s %d: %s, want %s", tc.call, tc.amount, got, tc.want)
		}
	}
	d, seq := decision(t, n)
	for d.ToolCallID != "c2" { // the newest allow is c3's
		m := of(n.Log(), "gov.decisions.acme.allow.")
		for _, x := range m {
			if c, err := events.DecodeRecord[events.Decision](x.Body); err == nil && c.ToolCallID == "c2" {
				d, seq = c, x.Seq
			}
		}
	}
	failed := ended(d, seq, events.CallFailed)
	failed.Outcome, failed.ExecutionSeq = "failed", seq+1
	report(t, n, failed)
	servicetest.Eventually(t, "c2 has lapsed", func() bool {
		return strings.Contains(fmt.Sprint(spent(t, n).Allowances), string(mandate.AllowanceLapsed))
	})
	if got := buy("c4", 300); got != overBudget { // c2's receipt still holds
		t.Error(got)
	}
	expire(t, n)
	becomes(t, "allowed", func() evaluation { return propose(t, nc, booking(hash, 300), "c4") })
	d, seq = decision(t, n)
	report(t, n, ended(d, seq, events.CallCompleted))
	servicetest.Eventually(t, "c4 is settled", func() bool { return spent(t, n).Spend("", time.Now().UnixMilli()).Settled == 300 })
	if got := buy("", 100); got != "allowed" {
		t.Error(got)
	}
	if s := spent(t, n).Spend("", time.Now().UnixMilli()); s.Settled != 400 || s.Reserved != 600 {
		t.Errorf("%+v", s)
	}
	// Under one id once more, after its end: it is money again.
	if got := buy("c4", 300); got != overBudget {
		t.Error(got)
	}
}

// expire has every receipt so far expire long ago, as the bucket has it.
func expire(t *testing.T, n *servicetest.NATS) {
	t.Helper()
	kv := bucket(t, n, "admitter", streams.BucketSpend)
	key := mandate.AccountKey("acme", courierID, "EUR")
	e, err := kv.Get(t.Context(), key)
	servicetest.OK(t, err)
	var a mandate.Account
	servicetest.OK(t, json.Unmarshal(e.Value(), &a))
	for i := range a.Allowances {
		a.Allowances[i].Expires -= 2 * time.Minute.Milliseconds()
	}
	body, err := json.Marshal(a)
	servicetest.OK(t, err)
	_, err = kv.Update(t.Context(), key, body, e.Revision())
	servicetest.OK(t, err)
}

// TestNoOverspending: however many admitters and requests there are, together
// they allow exactly the budget.
func TestNoOverspending(t *testing.T) {
	n, hash := spending(t)
	serve(t, n)
	serve(t, n)
	becomes(t, "allowed", func() evaluation { return propose(t, n.Conn(servicetest.Runtime), booking(hash, 0), "") })
	const clients, each = 12, 5
	var wg sync.WaitGroup
	answers := make(chan string, clients*each)
	for c := range clients {
		nc := n.Conn([]string{servicetest.Runtime, "rt2"}[c%2])
		wg.Go(func() {
			for i := range each {
				id := fmt.Sprintf("c%d-%d", c, i)
				if i%2 == 1 {
					id = "" // settled at once
				}
				answers <- propose(t, nc, booking(hash, 70), id).String()
			}
		})
	}
	wg.Wait()
	close(answers)
	got := map[string]int{}
	for a := range answers {
		got[a]++
	}
	s := spent(t, n).Spend("", time.Now().UnixMilli())
	if got["allowed"] != 1000/70 || got["allowed"]+got[overBudget] != clients*each || s.Settled+s.Reserved != 14*70 {
		t.Errorf("%v, %+v", got, s)
	}
}

// ledgerOn is the part alone, as an admitter has it.
func ledgerOn(t *testing.T, n *servicetest.NATS) (l *spendLedger, stop func()) {
	t.Helper()
	s := unstarted(t, n)
	s.env = daemon.Env{Health: daemon.NewHealth()}
	l = newSpendLedger(s).(*spendLedger)
	nc := n.Conn("admitter")
	js, err := jetstream.New(nc)
	servicetest.OK(t, err)
	stop, err = l.start(t.Context(), nc, js)
	servicetest.OK(t, err)
	return l, stop
}

// reserve takes money for a decision as the admitter does.
func reserve(t *testing.T, l *spendLedger, call string, amount int64) (admission.Outcome, reservation, error) {
	t.Helper()
	id, err := uuid.NewV7()
	servicetest.OK(t, err)
	out := admission.Outcome{Decision: events.Decision{
		DecisionID: id.String(), Tenant: "acme", Source: "rt1", Protocol: "aump", Session: "s1", ToolCallID: call, Verdict: events.Allow,
		RequestDigest: "hmac-sha256:00", Reasons: []events.Reason{}, DecidedAt: events.At(time.Now()),
	}}
	out.Claims.ExpiresAt = events.At(time.Now().Add(time.Minute))
	out.Consumption.Spend = &mandate.Reservation{Amount: amount, Budget: 1000, Proposal: mandate.Proposal{
		Tenant: "acme", Source: "rt1", Session: "s1", ToolCallID: call, MandateID: courierID, Currency: "EUR", Action: []byte(`{}`),
	}}
	tk, err := l.reserve(t.Context(), admission.Request{}, &out)
	return out, tk, err
}

// TestCrashBeforeTheRecord: what was reserved for a decision that never reached the log stays
// reserved, and is released once it is certain that no caller was told an allow.
func TestCrashBeforeTheRecord(t *testing.T) {
	n, _ := spending(t)
	l, crash := ledgerOn(t, n)
	_, _, err := reserve(t, l, "c1", 600)
	servicetest.OK(t, err)
	out, _, err := reserve(t, l, "c2", 300)
	servicetest.OK(t, err)
	msgs, err := l.s.logMessages(admission.Request{Body: []byte(`{}`)}, out.Decision)
	servicetest.OK(t, err)
	_, err = l.s.committer.Append(t.Context(), msgs...)
	servicetest.OK(t, err)
	crash()

	l, stop := ledgerOn(t, n)
	defer stop()
	if _, _, err := reserve(t, l, "c3", 200); !errors.Is(err, errConflict) {
		t.Fatalf("%v: money of a decision in doubt is spent again", err)
	}
	servicetest.OK(t, l.sweepReservations(t.Context(), time.Now().Add(unrecordedAfter-time.Minute)))
	if s := spent(t, n).Spend("", time.Now().UnixMilli()); s.Reserved != 900 {
		t.Errorf("released too early: %+v", s)
	}
	servicetest.OK(t, l.sweepReservations(t.Context(), time.Now().Add(unrecordedAfter+time.Minute)))
	if s := spent(t, n).Spend("", time.Now().UnixMilli()); s.Reserved != 300 {
		t.Errorf("%+v: want the recorded decision's money reserved, and no other", s)
	}
	if _, _, err := reserve(t, l, "c3", 200); err != nil {
		t.Error(err)
	}
}

// TestErasedAllow: the money of an allow that was recorded and erased since is not given back: its call may have run.
// What is erased of before the reservation keeps no money.
func TestErasedAllow(t *testing.T) {
	n, _ := spending(t)
	l, crash := ledgerOn(t, n)
	n.Publish("admitter", streams.Msg{Subject: "gov.events.acme.rt1.agenthook.old.PreToolUse", Body: []byte(`{}`)})
	before := uint64(len(n.Log()))
	out, _, err := reserve(t, l, "c1", 600)
	servicetest.OK(t, err)
	_, _, err = reserve(t, l, "c2", 300) // and never recorded
	servicetest.OK(t, err)
	msgs, err := l.s.logMessages(admission.Request{Body: []byte(`{}`)}, out.Decision)
	servicetest.OK(t, err)
	_, err = l.s.committer.Append(t.Context(), msgs...)
	servicetest.OK(t, err)
	crash()
	sweep := func() (reserved int64) {
		l, stop := ledgerOn(t, n)
		defer stop()
		servicetest.OK(t, l.sweepReservations(t.Context(), time.Now().Add(unrecordedAfter+time.Minute)))
		return spent(t, n).Spend("", time.Now().UnixMilli()).Reserved
	}
	n.PublishErasure(events.Erasure{ErasureID: "e1", State: events.ErasureBegun, Sessions: []string{"old"}, Sequences: []events.Span{{before, before}}})
	if got := sweep(); got != 600 {
		t.Errorf("after an erasure of something else %d is reserved, want 600", got)
	}
	for _, m := range n.Log() {
		if m.HeaderValue(headerEventID) == out.Decision.DecisionID {
			n.PublishErasure(events.Erasure{ErasureID: "e2", State: events.ErasureBegun, Sessions: []string{"s1"}, Sequences: []events.Span{{m.Seq, m.Seq}}})
			_, err := streams.Erase(t.Context(), n.Conn("custodian"), "GOV", m.Seq)
			servicetest.OK(t, err)
		}
	}
	for range 2 {
		if got := sweep(); got != 600 {
			t.Errorf("%d is reserved: the erased allow's money was given back", got)
		}
	}
}

// TestOutcomeWhileAway: the end of a call counts, too, when no admitter was
// there to see it, and for each one only once.
func TestOutcomeWhileAway(t *testing.T) {
	n, _ := spending(t)
	l, stop := ledgerOn(t, n)
	out, _, err := reserve(t, l, "c1", 600)
	servicetest.OK(t, err)
	stop()
	d := out.Decision
	report(t, n, ended(d, 1<<40, events.CallAbandoned))
	report(t, n, ended(d, 1<<40, events.CallCompleted))
	for range 2 {
		_, stop := ledgerOn(t, n)
		servicetest.Eventually(t, "the call is settled", func() bool {
			s := spent(t, n).Spend("", time.Now().UnixMilli())
			return s.Settled == 600 && s.Reserved == 0
		})
		stop()
	}
}

// TestEndsAreAppliedTogether: the ends of many calls cost an account one write, so that one tenant's
// calls do not keep the money of the others waiting.
func TestEndsAreAppliedTogether(t *testing.T) {
	n, _ := spending(t)
	l, stop := ledgerOn(t, n)
	defer stop()
	var batch []events.LogMessage
	for i := range 10 {
		out, _, err := reserve(t, l, fmt.Sprint("c", i), 60)
		servicetest.OK(t, err)
		c := ended(out.Decision, 1<<40, []events.CallState{events.CallCompleted, events.CallFailed}[i%2])
		body, err := events.Encode(c)
		servicetest.OK(t, err)
		batch = append(batch, events.LogMessage{Subject: "gov.calls.acme." + string(c.State) + "." + c.Session, Seq: 1<<40 + uint64(i), Time: time.Now(), Body: body})
	}
	revision := func() uint64 {
		e, err := bucket(t, n, "operator", streams.BucketSpend).Get(t.Context(), mandate.AccountKey("acme", courierID, "EUR"))
		servicetest.OK(t, err)
		return e.Revision()
	}
	before := revision()
	servicetest.OK(t, l.applyCalls(t.Context(), batch))
	if s := spent(t, n).Spend("", time.Now().UnixMilli()); s.Settled != 300 || revision() != before+1 {
		t.Errorf("%+v after %d writes, want 300 settled by one", s, revision()-before)
	}
	servicetest.OK(t, l.applyCalls(t.Context(), batch))
	if n := revision(); n != before+1 {
		t.Errorf("%d writes when the ends come again", n-before-1)
	}
}

// TestOutcomeBeforeTheReservationIsSeen: an admitter that reads how a call ended waits until it
// has seen every earlier reservation, by any admitter.
func TestOutcomeBeforeTheReservationIsSeen(t *testing.T) {
	n, _ := spending(t)
	reader, stopReader := ledgerOn(t, n)
	defer stopReader()
	_, _, err := reserve(t, reader, "c0", 100) // so that it looks at the session at all
	servicetest.OK(t, err)
	servicetest.OK(t, reader.follower.caughtUp(t.Context()))
	reader.follower.watermark.mu.Lock() // it cannot say for a while that it has seen anything new
	writer, stopWriter := ledgerOn(t, n)
	out, _, err := reserve(t, writer, "c1", 600)
	servicetest.OK(t, err)
	stopWriter()
	body, err := events.Encode(ended(out.Decision, 1<<40, events.CallCompleted))
	servicetest.OK(t, err)
	done := make(chan error, 1)
	go func() {
		done <- reader.applyCalls(t.Context(), []events.LogMessage{{Seq: 1 << 41, Subject: "gov.calls.acme.completed.s1", Time: time.Now(), Body: body}})
	}()
	select {
	case err := <-done:
		t.Error("it did not wait", err)
		close(done)
	case <-time.After(100 * time.Millisecond): // long enough to do without waiting
	}
	reader.follower.watermark.mu.Unlock()
	servicetest.OK(t, <-done)
	if s := spent(t, n).Spend("", time.Now().UnixMilli()); s.Settled != 600 || s.Reserved != 100 {
		t.Errorf("%+v", s)
	}
}

func TestGiveBackAfterARefusedRecord(t *testing.T) {
	n, _ := spending(t)
	l, stop := ledgerOn(t, n)
	defer stop()
	_, tk, err := reserve(t, l, "c1", 600)
	servicetest.OK(t, err)
	tk.release(t.Context())
	if s := spent(t, n).Spend("", time.Now().UnixMilli()); s.Reserved != 0 {
		t.Errorf("%+v", s)
	}
}

// TestSpendBucketMadeAnew: the bucket was lost, and counts its revisions from one again. Budgets begin
// anew, in the admitter that knew the old accounts too.
func TestSpendBucketMadeAnew(t *testing.T) {
	n, _ := spending(t)
	l, stop := ledgerOn(t, n)
	defer stop()
	_, _, err := reserve(t, l, "c1", 600)
	servicetest.OK(t, err)
	_, _, err = reserve(t, l, "c2", 300)
	servicetest.OK(t, err)
	n.Stop()
	n.Recreate()
	servicetest.Eventually(t, "the whole budget can be spent", func() bool {
		_, _, err := reserve(t, l, "c3", 1000)
		return err == nil
	})
	if s := spent(t, n).Spend("", time.Now().UnixMilli()); s.Reserved != 1000 {
		t.Errorf("%+v", s)
	}
}

// TestUnreadableAccount: the amount spent is unknown, so no spending is allowed.
func TestUnreadableAccount(t *testing.T) {
	n, hash := spending(t)
	_, err := bucket(t, n, "admitter", streams.BucketSpend).Put(t.Context(), mandate.AccountKey("acme", courierID, "EUR"), []byte(`{"v":2,"settled":"0"}`))
	servicetest.OK(t, err)
	serve(t, n)
	nc := n.Conn(servicetest.Runtime)
	if got := propose(t, nc, booking(hash, 1), "c1").String(); got != "denied ledger_unreadable" {
		t.Error(got)
	}
	if got := propose(t, nc, booking(hash, 0), "c1").String(); got != "allowed" {
		t.Error(got)
	}
}

// TestLedgerKeepsNoSecrets: the bucket does not hold what was asked.
func TestLedgerKeepsNoSecrets(t *testing.T) {
	n, hash := spending(t)
	serve(t, n)
	nc := n.Conn(servicetest.Runtime)
	if got := propose(t, nc, booking(hash, 5), "call-secret").String(); got != "allowed" {
		t.Fatal(got)
	}
	b, err := json.Marshal(spent(t, n))
	servicetest.OK(t, err)
	if strings.Contains(string(b), "call-secret") || strings.Contains(string(b), "Book a van") {
		t.Errorf("%s", b)
	}
	if e := spent(t, n).Allowances; len(e) != 1 || !slices.Contains([]mandate.AllowanceState{mandate.AllowanceReserved}, e[0].State) {
		t.Errorf("%+v", e)
	}
}

// claimsOf reads what a receipt says, without checking its signature.
func claimsOf(t *testing.T, reply *nats.Msg) (c receipt.Claims) {
	t.Helper()
	part := strings.Split(reply.Header.Get(events.HeaderReceipt), ".")
	if len(part) != 3 {
		t.Fatalf("no receipt: %s", reply.Data)
	}
	body, err := base64.RawURLEncoding.DecodeString(part[1])
	servicetest.OK(t, err)
	servicetest.OK(t, json.Unmarshal(body, &c))
	return c
}

// TestReceiptsOfOneAllowance: however often an action is allowed under one id, an
// executor can use one of the receipts.
func TestReceiptsOfOneAllowance(t *testing.T) {
	n, hash := spending(t)
	serve(t, n)
	nc := n.Conn(servicetest.Runtime)
	buy := func(call string, amount int) receipt.Claims {
		return claimsOf(t, ask(t, nc, "gov.admit.acme.aump", booking(hash, amount), events.HeaderSession, "s1", events.HeaderToolCallID, call))
	}
	first, again := buy("c1", 600), buy("c1", 600)
	if first.Nonce != again.Nonce || first.DecisionID == again.DecisionID || first.UseUntil != again.UseUntil || first.UseUntil.Before(again.ExpiresAt.Time) {
		t.Errorf("%+v\n%+v", first, again)
	}
	if other := buy("c2", 300); other.Nonce == first.Nonce || other.UseUntil.IsZero() {
		t.Errorf("%+v", other)
	}
	if free := buy("c1", 0); free.Nonce == first.Nonce || !free.UseUntil.IsZero() {
		t.Errorf("%+v", free)
	}
}

// TestSpendingAfterAnErasure: the correlator forgets a session with its erasure and counts the calls under an id anew.
// What runs afterwards under an id that ran before is spent besides, for every admitter, after a restart too.
func TestSpendingAfterAnErasure(t *testing.T) {
	n, hash := spending(t)
	first := serve(t, n)
	nc := n.Conn(servicetest.Runtime)
	for _, amount := range []int{600, 400} {
		if got := propose(t, nc, booking(hash, amount), "c1").String(); got != "allowed" {
			t.Fatal(amount, got)
		}
		d, seq := decision(t, n)
		completed := ended(d, seq, events.CallCompleted) // of occurrence 1, both times
		completed.Verdict, completed.ExecutionSeq, completed.Match = events.Allow, seq+1, "equal"
		completed.Timeline = []events.TimelineEntry{{Step: "requested", Seq: seq - 1}, {Step: "decided", Seq: seq}}
		report(t, n, completed)
		servicetest.Eventually(t, "the call is over", func() bool {
			return slices.ContainsFunc(spent(t, n).Allowances, func(x mandate.Allowance) bool { return x.ID == d.DecisionID && x.Decisions[0].Over })
		})
		servicetest.OK(t, first.Stop())
		first = serve(t, n)
	}
	serve(t, n)
	expire(t, n)
	for range 4 {
		if got := propose(t, nc, booking(hash, 1), "c2").String(); got != overBudget {
			t.Errorf("%s after all is spent: %+v", got, spent(t, n))
		}
	}
}

// TestEndsOfOtherCalls: what ends under a call's id frees the money of the
// decisions on this very call, which the call's record names by their places, and
// of no other.
func TestEndsOfOtherCalls(t *testing.T) {
	n, hash := spending(t)
	serve(t, n)
	nc := n.Conn(servicetest.Runtime)
	var places []uint64
	for range 2 {
		if got := propose(t, nc, booking(hash, 600), "c1").String(); got != "allowed" {
			t.Fatal(got)
		}
		_, seq := decision(t, n)
		places = append(places, seq)
	}
	d, seq := decision(t, n)
	denied := ended(d, seq+10, events.CallDenied)
	denied.DecisionID, denied.Verdict, denied.Occurrence = "another", events.Deny, 2
	denied.Timeline = []events.TimelineEntry{{Step: "decided", Seq: seq + 10}}
	report(t, n, denied)
	failed := ended(d, seq+12, events.CallDenied) // the first call was denied as well, after two allows
	failed.DecisionID, failed.Verdict = "a third", events.Deny
	failed.Timeline = []events.TimelineEntry{{Step: "decided", Seq: places[0]}, {Step: "decided", Seq: seq + 12}}
	state := func() mandate.Allowance { return spent(t, n).Allowances[0] }
	time.Sleep(200 * time.Millisecond) // long enough for a ledger that took the first record for c1's
	if e := state(); e.State != mandate.AllowanceReserved || e.Decisions[0].Over {
		t.Errorf("the end of another call under the id: %+v", e)
	}
	report(t, n, failed)
	servicetest.Eventually(t, "both decisions are over", func() bool { e := state(); return e.Decisions[0].Over && e.Decisions[1].Over })
	if e := state(); e.State != mandate.AllowanceLapsed {
		t.Errorf("%+v", e)
	}
	if got := propose(t, nc, booking(hash, 600), "c2").String(); got != overBudget {
		t.Errorf("while a receipt holds: %s", got)
	}
	expire(t, n)
	becomes(t, "allowed", func() evaluation { return propose(t, nc, booking(hash, 600), "c2") })
}

func TestTakeWithoutMoney(t *testing.T) {
	l := newSpendLedger(nil).(*spendLedger)
	if tk, err := l.reserve(context.Background(), admission.Request{}, &admission.Outcome{}); err != nil || tk.release != nil {
		t.Error(tk, err)
	}
}
