package auditor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/build"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/metrics"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/streams"
)

func TestEveryMessageBecomesOneRecord(t *testing.T) {
	n, dsn := servicetest.Start(t, streams.Shard{}), database(t)
	n.Publish(servicetest.Runtime, append(session(t, "s1"), garbage("{nope"))...)
	s := start(t, flags(n, dsn, 100)).AwaitReady()
	holds(t, n, dsn)
	n.Publish(servicetest.Runtime, session(t, "s2")...)
	servicetest.Eventually(t, "what comes later is signed, too", func() bool {
		cp, err := tree.PeekCheckpoint(string(n.LastPublished(streams.StreamCheckpoints).Body))
		return err == nil && cp.Size == int64(len(n.Log()))
	})
	if s.Health.Report().Status != daemon.StatusOK {
		t.Errorf("health %+v", s.Health.Report())
	}
	holds(t, n, dsn)
	l := ledgerOf(t, dsn)
	parts, err := l.Session(t.Context(), servicetest.Tenant, "s1")
	servicetest.OK(t, err)
	for _, r := range parts[0].Rows {
		if strings.Contains(r.Record, "sk-live-") {
			t.Errorf("record %d holds a secret", r.Seq)
		}
	}
}

// cutPoints are the places where an auditor can die with a batch under way.
var cutPoints = map[string]func(*auditor, *batch) error{
	"before anything": func(*auditor, *batch) error { return nil },
	"after the tree": func(a *auditor, b *batch) error {
		return a.writer.InsertTreeNodes(a.records.keys.ctx, a.shard, b.nodes)
	},
	"after the evidence": func(a *auditor, b *batch) error { return a.store.write(a.records.keys.ctx, b) },
}

func TestARestartAtAnyPoint(t *testing.T) {
	n, dsn := servicetest.Start(t, streams.Shard{}), database(t)
	round := 0
	for point, die := range cutPoints {
		for _, size := range []int{1, 3, 8} {
			round++
			n.Publish(servicetest.Runtime, append(session(t, fmt.Sprintf("s%d", round%3)), garbage(fmt.Sprint("{", round)))...)
			a := standing(t, flags(n, dsn, size))
			log := n.Log()[a.tree.Size():]
			servicetest.OK(t, auditAll(t, a, log[:1]))
			batch := log[1:min(1+size, len(log))]
			if err := die(a, prepare(t, a, batch)); err != nil {
				t.Fatalf("%s: %v", point, err)
			}
			if round%2 == 0 { // the next one may cut other batches
				audited(t, n, flags(n, dsn, round))
				holds(t, n, dsn)
			}
		}
	}
	audited(t, n, flags(n, dsn, 1000))
	holds(t, n, dsn)
}

// prepare makes what audit would store of a batch.
func prepare(t *testing.T, a *auditor, msgs []events.LogMessage) (made *batch) {
	t.Helper()
	servicetest.OK(t, a.prepareBatches(t.Context(), msgs, func(b *batch) error {
		made = b
		return a.quarantine.storeBodies(t.Context(), b.msgs, b.built)
	}))
	return made
}

// auditAll audits a batch until it is stored.
func auditAll(t *testing.T, a *auditor, msgs []events.LogMessage) error {
	t.Helper()
	if err := a.auditBatch(t.Context(), msgs); err != nil {
		return err
	}
	return a.store.await()
}

func TestACheckpointThatWasNotPublishedIsPublishedLater(t *testing.T) {
	n, dsn := servicetest.Start(t, streams.Shard{}), database(t)
	n.Publish(servicetest.Runtime, session(t, "s1")...)
	a := standing(t, flags(n, dsn, 100))
	servicetest.OK(t, a.store.write(t.Context(), prepare(t, a, n.Log())))
	b := standing(t, flags(n, dsn, 100))
	text, err := tree.SignCheckpoint(b.signer, tree.Checkpoint{Shard: b.shard, Size: b.tree.Size(), Root: b.tree.Root()})
	servicetest.OK(t, err)
	servicetest.OK(t, b.writer.InsertCheckpoint(t.Context(), storage.Checkpoint{Shard: b.shard, Size: uint64(b.tree.Size()), Root: b.tree.Root(), Note: text, Created: time.Now()}))
	audited(t, n, flags(n, dsn, 100))
	holds(t, n, dsn)
}

func TestAnInsertWhoseAnswerIsLost(t *testing.T) {
	n, dsn := servicetest.Start(t, streams.Shard{}), database(t)
	n.Publish(servicetest.Runtime, session(t, "CUT-HERE")...)
	p, through := startProxy(t, dsn, "CUT-HERE")
	p.cuts.Store(3)
	audited(t, n, flags(n, through, 2))
	if p.cuts.Load() >= 0 {
		t.Errorf("%d cuts were not made", p.cuts.Load()+1)
	}
	holds(t, n, dsn)
}

func TestOutlivesClickHouseAndNATS(t *testing.T) {
	n, dsn := servicetest.Start(t, streams.Shard{}), database(t)
	p, through := startProxy(t, dsn, "never")
	s := supervised(t, flags(n, through, 3)).AwaitReady()
	p.away(true)
	n.Publish(servicetest.Runtime, session(t, "s1")...)
	servicetest.Eventually(t, "it says that it cannot store", func() bool { return s.Health.Report().Problems["store"] != "" })
	p.away(false)
	servicetest.Eventually(t, "it goes on", func() bool { return signedUp(n) == len(n.Log()) })
	n.Stop()
	servicetest.Eventually(t, "it says that it is cut off", func() bool { return s.Health.Report().Problems["nats"] != "" })
	n.Restart()
	n.Publish(servicetest.Runtime, append(session(t, "s2"), garbage("{"))...)
	servicetest.Eventually(t, "it goes on again", func() bool { s.Running(); return signedUp(n) == len(n.Log()) })
	servicetest.Eventually(t, "it is healthy", func() bool { return s.Health.Report().Status == daemon.StatusOK })
	holds(t, n, dsn)
}

// signedUp is how far the newest published checkpoint goes.
func signedUp(n *servicetest.NATS) int {
	m := n.LastPublished(streams.StreamCheckpoints)
	if m == nil {
		return 0
	}
	cp, err := tree.PeekCheckpoint(string(m.Body))
	if err != nil {
		return -1
	}
	return int(cp.Size)
}

func TestOfTwoAuditorsOneStepsDownAndNothingIsDoubled(t *testing.T) {
	n, dsn := servicetest.Start(t, streams.Shard{}), database(t)
	n.Publish(servicetest.Runtime, append(session(t, "s1"), session(t, "s2")...)...)
	log := n.Log()
	b, c, a := standing(t, flags(n, dsn, 100)), standing(t, flags(n, dsn, 100)), standing(t, flags(n, dsn, 100)) // the last one is the active one
	other := prepare(t, b, log[:4])
	servicetest.OK(t, auditAll(t, a, log[:6]))
	// a got in between b's look at the position and its insert: the same token.
	servicetest.OK(t, b.writer.InsertTreeNodes(t.Context(), b.shard, other.nodes))
	servicetest.OK(t, b.writer.CommitEvidence(t.Context(), other.rows))
	b.records.chain.Commit()
	b.tree = other.tree
	// Neither may go on where they think the evidence ends.
	if err := auditAll(t, b, log[4:]); !errors.Is(err, daemon.ErrFenced) {
		t.Errorf("a batch that begins inside another one: %v", err)
	}
	if err := auditAll(t, c, log[:4]); !errors.Is(err, daemon.ErrFenced) {
		t.Errorf("a batch that is there: %v", err)
	}
	servicetest.OK(t, auditAll(t, a, log[6:]))
	servicetest.OK(t, a.handleIdle(t.Context()))
	holds(t, n, dsn)
}

// The records of a batch are made while the one before it is being stored, and
// chained to its records, however few heads the chain holds.
func TestTheNextBatchIsMadeWhileOneIsStored(t *testing.T) {
	n, dsn := servicetest.Start(t, streams.Shard{}), database(t)
	for range 3 {
		for i := range 4 {
			n.Publish(servicetest.Runtime, session(t, fmt.Sprint("s", i))...)
		}
	}
	p, through := startProxy(t, dsn, "nothing")
	a := standing(t, flags(n, through, 100))
	log := n.Log()
	if _, err := a.records.build(t.Context(), log[:1]); err == nil {
		t.Error("a record was made of a session whose head was not read")
	}
	a.records.chain = build.NewChain(func(events.SessionID) (evidence.Head, error) {
		return evidence.Head{}, errors.New("all heads were asked for")
	}, 1)
	servicetest.OK(t, auditAll(t, a, log[:2]))
	p.away(true)
	servicetest.OK(t, a.auditBatch(t.Context(), log[2:4])) // the sessions' heads are held, so nothing is asked
	next := prepare(t, a, log[4:6])
	if next.before != 4 || next.built[0].Record.SessionPrev == nil {
		t.Errorf("the next batch is %+v", next.built[0].Record)
	}
	p.away(false)
	servicetest.OK(t, a.store.await())
	a.records.chain.Commit()
	a.tree = next.tree
	a.store.start(t.Context(), next)
	for at := 6; at < len(log); at += 3 {
		servicetest.OK(t, a.auditBatch(t.Context(), log[at:min(at+3, len(log))]))
	}
	servicetest.OK(t, a.handleIdle(t.Context()))
	holds(t, n, dsn)
}

func TestTheSecondAuditorStandsByAndTakesOver(t *testing.T) {
	n, dsn := servicetest.Start(t, streams.Shard{}), database(t)
	first := start(t, flags(n, dsn, 2)).AwaitReady()
	counts := metrics.New("auditor")
	second := servicetest.Run(t, func(ctx context.Context, env daemon.Env) error {
		env.Metrics = counts
		return Run(ctx, flags(n, dsn, 3), env)
	}).AwaitReady()
	if !strings.Contains(string(counts.Text()), `countersign_findings_total{rule="log_recreated",service="auditor",severity="critical",shard="GOV"} 0`) {
		t.Error("a standby does not show its findings at 0: the first would be no increase")
	}
	if a, b := first.Health.Report().Role, second.Health.Report().Role; a != daemon.RoleActive || b != daemon.RoleStandby {
		t.Fatalf("roles %q and %q", a, b)
	}
	n.Publish(servicetest.Runtime, session(t, "s1")...)
	servicetest.Eventually(t, "the first one works", func() bool { return signedUp(n) == len(n.Log()) })
	if err := first.Stop(); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	n.Publish(servicetest.Runtime, session(t, "s2")...)
	servicetest.Eventually(t, "the second one goes on", func() bool { return signedUp(n) == len(n.Log()) })
	if role := second.Health.Report().Role; role != daemon.RoleActive {
		t.Errorf("it works as %q", role)
	}
	holds(t, n, dsn)
}

func TestRefusesARewoundLog(t *testing.T) {
	n, dsn := servicetest.Start(t, streams.Shard{}), database(t)
	n.Publish(servicetest.Runtime, session(t, "s1")...)
	a := standing(t, flags(n, dsn, 100))
	servicetest.OK(t, auditAll(t, a, n.Log()))
	size := uint64(a.tree.Size())
	rewound := func(by string) {
		t.Helper()
		signed, err := a.signedAbove(t.Context(), size-1)
		servicetest.OK(t, err)
		if err := a.compareEnd(t.Context(), size, signed, size-1); !errors.Is(err, ErrRewound) || !errors.Is(err, daemon.ErrUntrustedLog) {
			t.Errorf("a log that ends before the evidence, by %s: %v", by, err)
		}
		if err := a.compareEnd(t.Context(), size, signed, size); err != nil {
			t.Errorf("a log that has grown meanwhile: %v", err)
		}
	}
	rewound("all that is signed")
	n.DeleteStream(streams.StreamCheckpoints)
	n.Provision()
	rewound("the intents and the stored checkpoints")
	intents := a.intents.notes
	a.intents.notes = nil
	rewound("the stored checkpoints")
	ownerOf(t, dsn)("TRUNCATE TABLE checkpoints")
	a.intents.notes = intents
	rewound("the intents")
	a.intents.notes = nil
	if err := a.compareEnd(t.Context(), size, 0, size-1); !errors.Is(err, ErrNoIntent) || daemon.IsUntrusted(err) {
		t.Errorf("only rows say that the log ended later: %v", err)
	}
}

func TestRefusesALogThatDiffers(t *testing.T) {
	n, dsn := servicetest.Start(t, streams.Shard{}), database(t)
	n.Publish(servicetest.Runtime, session(t, "s1")...)
	a := standing(t, flags(n, dsn, 100))
	log := n.Log()
	log[len(log)-1].Body = bytes.Replace(log[len(log)-1].Body, []byte("mail"), []byte("male"), 1)
	servicetest.OK(t, auditAll(t, a, log)) // evidence of something that was never in the log
	if err := start(t, flags(n, dsn, 100)).Wait(); !errors.Is(err, ErrDiffers) || !errors.Is(err, daemon.ErrUntrustedLog) {
		t.Errorf("it ended with %v", err)
	}
}

func TestARecreatedLogIsAFinding(t *testing.T) {
	n, dsn := servicetest.Start(t, streams.Shard{}), database(t)
	n.Publish(servicetest.Runtime, session(t, "s1")...)
	s := start(t, flags(n, dsn, 100)).AwaitReady()
	n.Stop()
	n.Recreate()
	if err := s.Wait(); !errors.Is(err, streams.ErrRecreated) {
		t.Errorf("a log replaced while it was read: %v", err)
	}
	standing(t, flags(n, dsn, 100)) // dies before it has stored anything
	audited(t, n, flags(n, dsn, 100))
	log := n.Log()
	if len(log) != 1 {
		t.Fatalf("%d messages, want one finding", len(log))
	}
	f, err := events.DecodeRecord[events.Finding](log[0].Body)
	servicetest.OK(t, err)
	if f.Rule != ruleRecreated || f.Severity != events.SeverityCritical || !strings.HasPrefix(log[0].Subject, "gov.findings.") {
		t.Errorf("%s: %+v", log[0].Subject, f)
	}
	holds(t, n, dsn)
}

func TestRefusesBadFlags(t *testing.T) {
	f := Flags{Batch: 0, CheckpointEvery: time.Second}
	if err := Run(t.Context(), f, daemon.Env{}); err == nil || !strings.Contains(err.Error(), "--batch") {
		t.Errorf("error %v", err)
	}
}
