package correlator

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/evidence/retention"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/keys"
	"github.com/countersign-dev/countersign/internal/service/lease"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

// erasureRecord is one as an auditor signs it.
func erasureRecord(t *testing.T, n *servicetest.NATS, cause, state string, spans ...events.Span) streams.Msg {
	t.Helper()
	signer, _, err := keys.Checkpoint(n.Keys)
	servicetest.OK(t, err)
	st, err := streams.StreamState(t.Context(), n.JS("auditor"), "GOV")
	servicetest.OK(t, err)
	now := events.At(time.Now())
	e := events.Erasure{ErasureID: "e1", Shard: streams.IncarnationName("GOV", st.Created), State: state, Part: 1, Parts: 1, Tenant: "acme", Sessions: []string{"sess-0001"},
		Cause: cause, Sequences: spans, Reason: "r", OrderedBy: "dana", OrderedAt: now, At: now, Writer: "test"}
	for _, s := range spans {
		e.Messages += s[1] - s[0] + 1
	}
	e.Vouch, err = signing.SignErasure(signer, e)
	servicetest.OK(t, err)
	body, err := events.Encode(e)
	servicetest.OK(t, err)
	return streams.Msg{Subject: "gov.control.GOV." + events.ControlErasure, Body: body}
}

// A correlator says when it needs an erased session no more, forgets it, on the
// disk, too, and starts again from a log with an explained gap, and only from
// such a one.
func TestErasedSession(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	dir := t.TempDir()
	f := flags(n, long)
	f.StateDir, f.StateEvery = dir, saveSome
	const secret = "hush-hush-4711"
	msgs := session(t, "sess-0001")
	for i := range msgs {
		msgs[i].Body = bytes.ReplaceAll(msgs[i].Body, []byte(`"tool_input":{`), []byte(`"tool_input":{"note":"`+secret+`",`))
	}
	n.Publish(servicetest.Runtime, msgs[0], session(t, "sess-0002")[0])
	s := run(t, f).AwaitReady()
	servicetest.OK(t, ignoreCanceled(s.Stop()))
	snapshot := filepath.Join(dir, "correlator-GOV.snapshot")
	if b, err := os.ReadFile(snapshot); err != nil || !bytes.Contains(b, []byte(secret)) {
		t.Fatalf("the secret is in no snapshot, so the test shows nothing: %v", err)
	}
	s = run(t, f).AwaitReady()
	var seqs []uint64
	for _, m := range n.Log() {
		if bytes.Contains(m.Body, []byte("sess-0001")) {
			seqs = append(seqs, m.Seq)
		}
	}
	outputs := func() (list []string) {
		for _, m := range n.Log() {
			if bytes.HasPrefix([]byte(m.Subject), []byte("gov.calls.")) || bytes.HasPrefix([]byte(m.Subject), []byte("gov.findings.")) {
				list = append(list, m.HeaderValue("ce-id"))
			}
		}
		return list
	}
	before := len(outputs())
	spans := retention.JoinSpans(seqs)
	n.Publish("auditor", erasureRecord(t, n, events.CauseOrder, events.ErasureBegun, spans...))
	begun := uint64(len(n.Log()))
	servicetest.Eventually(t, "a cursor that covers the record, though there is nothing to put out", func() bool {
		m, err := streams.LastBySubject(t.Context(), n.JS("auditor"), "GOV", "gov.control.GOV.cursor")
		servicetest.OK(t, err)
		c, err := events.DecodeRecord[events.Cursor](m.Body)
		servicetest.OK(t, err)
		return c.Consumed >= begun-1 && m.Seq >= begun-1
	})
	for _, seq := range seqs {
		_, err := streams.Erase(t.Context(), n.Conn("custodian"), "GOV", seq)
		servicetest.OK(t, err)
	}
	n.Publish("auditor", erasureRecord(t, n, events.CauseOrder, events.ErasureDone, spans...))
	servicetest.Eventually(t, "the snapshot goes", func() bool {
		_, err := os.Stat(snapshot)
		return errors.Is(err, os.ErrNotExist)
	})
	n.Publish(servicetest.Runtime, session(t, "sess-0003")[0])
	count := func() int {
		st, err := streams.StreamState(t.Context(), n.JS("auditor"), "GOV")
		servicetest.OK(t, err)
		got := 0
		for seq := uint64(1); seq <= st.LastSeq; seq++ {
			if m := n.At("GOV", seq); m != nil && (bytes.HasPrefix([]byte(m.Subject), []byte("gov.calls.acme")) || bytes.HasPrefix([]byte(m.Subject), []byte("gov.findings."))) {
				got++
			}
		}
		return got
	}
	erased := before / 2 // two sessions of the same kind
	servicetest.Eventually(t, "it goes on", func() bool { return count() == before-erased+erased })
	s.Running()
	servicetest.OK(t, ignoreCanceled(s.Stop()))
	if b, err := os.ReadFile(snapshot); err == nil && bytes.Contains(b, []byte(secret)) {
		t.Error("a snapshot holds what was erased")
	}

	f.StateDir = ""
	s = run(t, f).AwaitReady()
	servicetest.OK(t, ignoreCanceled(s.Stop()))
	if got := count(); got != before {
		t.Errorf("%d outputs after a replay over the gap, %d before", got, before)
	}
	_, err := streams.Erase(t.Context(), n.Conn("custodian"), "GOV", seqs[len(seqs)-1]+1)
	servicetest.OK(t, err)
	var gap *streams.GapError
	if err := run(t, f).Wait(); !errors.As(err, &gap) {
		t.Errorf("a gap that nobody explains: %v", err)
	}
}

// An instance that resumes behind a begun erasure owes the cursor that its predecessor did not
// write.
func TestOwedCursorAfterASnapshot(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	dir := t.TempDir()
	w := keeping(t, n, long, dir)
	feed := func() {
		for _, m := range n.Log()[w.head:] {
			w.feedOne(t, m)
		}
	}
	n.Publish(servicetest.Runtime, session(t, "sess-0001")...)
	feed()
	servicetest.OK(t, w.flush(t.Context()))
	if keeping(t, n, long, dir).erasure.owesCursor(0, w.head) {
		t.Error("a cursor is owed, and nothing is erased")
	}
	n.Publish("auditor", erasureRecord(t, n, events.CauseOrder, events.ErasureBegun, events.Span{1, 1}))
	feed()
	w.saveNow(t)
	if again := keeping(t, n, long, dir); again.head != w.head || !again.erasure.owesCursor(again.cursor.Consumed, again.head) {
		t.Errorf("at %d, behind the record at %d, it owes no cursor", again.head, again.erasure.owedSeq)
	}
}

// What a policy erased of sessions that were silent for long is forgotten a day later, with all that it erases meanwhile,
// also by an instance that goes on from a snapshot. What is ordered, or still has calls in memory, is forgotten at once.
func TestErasuresOfADayAreForgottenTogether(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	dir := t.TempDir()
	n.Publish(servicetest.Runtime, session(t, "sess-0002")...)
	w := keeping(t, n, long, dir)
	next := func() (err error) {
		for _, m := range n.Log()[w.head:] {
			in := w.core.NewDecoder().Decode(m)
			err = w.applyMessage(&in)
		}
		return err
	}
	servicetest.OK(t, next())
	idle := func(w *worker) error {
		return w.applyBatch(t.Context(), &batch{idle: true})
	}
	n.Publish("auditor", erasureRecord(t, n, events.CausePolicy, events.ErasureDone, events.Span{1, 1}))
	servicetest.OK(t, next())
	first := w.erasure.startOverAt
	if in := time.Until(first); in > startOverWithin || in < startOverWithin-time.Minute {
		t.Fatalf("it starts over in %v", in)
	}
	n.Publish("auditor", erasureRecord(t, n, events.CausePolicy, events.ErasureDone, events.Span{2, 2}))
	servicetest.OK(t, next())
	servicetest.OK(t, idle(w))
	w.saveNow(t)
	again := keeping(t, n, long, dir)
	if again.head != w.head || !again.erasure.startOverAt.Equal(first) || again.erasure.staggered {
		t.Errorf("at %d of %d it starts over at %v, want %v", again.head, w.head, again.erasure.startOverAt, first)
	}
	w.erasure.staggered = true
	w.saveNow(t)
	if !keeping(t, n, long, dir).erasure.staggered {
		t.Error("a restart puts two instances in step")
	}
	again.erasure.startOverAt = time.Now().Add(startOverWithin/2 - time.Minute)
	servicetest.OK(t, idle(again))
	again.role = daemon.RoleStandby
	if err := idle(again); !errors.Is(err, errErased) {
		t.Errorf("a standby, half a day later: %v", err)
	}
	again.role = daemon.RoleActive
	again.erasure.startOverAt = time.Now()
	if err := idle(again); !errors.Is(err, errErased) {
		t.Errorf("a day later: %v", err)
	}

	n.Publish("auditor", erasureRecord(t, n, events.CauseOrder, events.ErasureDone, events.Span{3, 3}))
	if err := next(); !errors.Is(err, errErased) {
		t.Errorf("by order: %v", err)
	}
	n.Publish(servicetest.Runtime, session(t, "sess-0001")[0])
	servicetest.OK(t, next())
	n.Publish("auditor", erasureRecord(t, n, events.CausePolicy, events.ErasureDone, events.Span{4, 4}))
	if err := next(); !errors.Is(err, errErased) {
		t.Errorf("with calls in memory: %v", err)
	}
}

// Of two instances that hold what was erased, one forgets it half a day before the other, in each cycle, and each one
// once a day. One that starts over by order is in step with the other again.
func TestInstancesStartOverApart(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	at := func(hours int) time.Time { return time.Unix(0, 0).Add(time.Duration(hours) * time.Hour) }
	const replay = 2 // hours
	active, standby := alone(t, n, long, "a"), alone(t, n, long, "b")
	standby.role = daemon.RoleStandby
	active.erasure.startOverAt, standby.erasure.startOverAt = at(24), at(24)
	startOver := func(w *worker, h int) *worker {
		next := w.newFromScratch(at(h))
		next.role = daemon.RoleStandby
		next.erasure.startOverAt = at(h + replay + 24) // an erasure of each hour is found when the log is read
		return next
	}
	var handedOver []int
	for h := range 4 * 24 {
		if standby.erasure.isDue(at(h), standby.role) {
			if len(handedOver) > 0 || h != 12 {
				t.Errorf("at %d: the standby starts over", h)
			}
			standby = startOver(standby, h)
		}
		if active.erasure.isDue(at(h), active.role) {
			if standby.replaySince.After(at(h - replay)) {
				t.Errorf("at %d: the active instance starts over, and the standby is not ready", h)
			}
			active, standby = standby, startOver(active, h)
			active.role = daemon.RoleActive
			handedOver = append(handedOver, h)
		}
	}
	if want := []int{24, 38, 50, 64, 76, 90}; !slices.Equal(handedOver, want) {
		t.Errorf("handed over at %v, want %v", handedOver, want)
	}
	ordered := active.newFromScratch(at(91))
	ordered.role, ordered.erasure.startOverAt = daemon.RoleStandby, at(91+24)
	if !ordered.erasure.isDue(at(91+12), ordered.role) || ordered.standBack != 0 {
		t.Error("after an order it is not in step")
	}
}

// An active instance that starts over because its day is over leaves the lease to a standby, which is ready.
func TestTheStandbyTakesOver(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	n.Publish(servicetest.Runtime, session(t, "sess-0001")...)
	w := keeping(t, n, long, "")
	e := election{lead: make(chan *lease.Lease, 1), standby: make(chan struct{}, 1)}
	servicetest.OK(t, e.run(t.Context(), w))
	w.lease = <-e.lead
	start(t, n, long).AwaitReady() // the standby
	w.erasure.startOverAt = time.Now()
	err := w.applyBatch(t.Context(), &batch{idle: true})
	if err = w.shutDown(err); !errors.Is(err, errErased) {
		t.Fatal(err)
	}
	again := w.newFromScratch(time.Now())
	servicetest.OK(t, again.resumeState(t.Context()))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- again.run(ctx) }()
	servicetest.Eventually(t, "the other instance is active", func() bool {
		return again.env.Health.Report().Role == daemon.RoleStandby
	})
	stop()
	servicetest.OK(t, ignoreCanceled(<-ended))
}

// While the log is read again for long, the health report of the active instance says so.
func TestAReplayIsShown(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	w := alone(t, n, long, "w").newFromScratch(time.Now())
	shown := func() string { return w.env.Health.Report().Problems["replay"] }
	servicetest.OK(t, w.applyBatch(t.Context(), &batch{}))
	if got := shown(); got != "" {
		t.Errorf("at once: %s", got)
	}
	w.replaySince = w.replaySince.Add(-replayShown)
	servicetest.OK(t, w.applyBatch(t.Context(), &batch{}))
	if got := shown(); !strings.Contains(got, "read again") {
		t.Errorf("after a minute: %q", got)
	}
	w.role = daemon.RoleStandby
	servicetest.OK(t, w.applyBatch(t.Context(), &batch{}))
	if got := shown(); got != "" {
		t.Errorf("of a standby: %s", got)
	}
	w.role = daemon.RoleActive
	servicetest.OK(t, w.applyBatch(t.Context(), &batch{}))
	if got := shown(); !strings.Contains(got, "read again") {
		t.Errorf("active again: %q", got)
	}
	servicetest.OK(t, w.applyBatch(t.Context(), &batch{idle: true}))
	if got := shown(); got != "" {
		t.Errorf("at the end: %s", got)
	}
}

func ignoreCanceled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
