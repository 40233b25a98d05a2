package auditor

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

// publishedSizes are the sizes of all published checkpoints, in the order of publication.
func publishedSizes(t *testing.T, n *servicetest.NATS) (sizes []int64) {
	t.Helper()
	for m, err := range streams.MessagesBack(t.Context(), n.JS("auditor"), streams.StreamCheckpoints) {
		servicetest.OK(t, err)
		cp, err := tree.PeekCheckpoint(string(m.Body))
		servicetest.OK(t, err)
		sizes = append(sizes, cp.Size)
	}
	slices.Reverse(sizes)
	return sizes
}

// restoreBackup makes the database what it was at a size, at which there was a checkpoint.
func restoreBackup(t *testing.T, a *auditor, execute func(string, ...any), size int64) {
	t.Helper()
	servicetest.OK(t, a.writer.DeleteAfter(t.Context(), a.shard, uint64(size)))
	execute(fmt.Sprintf("ALTER TABLE checkpoints DELETE WHERE size > %d", size))
}

// An older database is filled up from the log: the records are those that were signed, nothing is
// signed twice, and the checkpoints that the database lacked are stored again.
func TestARestoredDatabaseIsFilledUp(t *testing.T) {
	n, dsn := servicetest.Start(t, streams.Shard{}), database(t)
	for i := range 3 { // each with a checkpoint
		n.Publish(servicetest.Runtime, session(t, fmt.Sprint("s", i))...)
		audited(t, n, flags(n, dsn, 100))
	}
	before := publishedSizes(t, n)
	a, newest := standing(t, flags(n, dsn, 100)), before[len(before)-1]
	restoreBackup(t, a, ownerOf(t, dsn), before[0])

	a = standing(t, flags(n, dsn, 2))
	for _, m := range slices.Collect(slices.Chunk(n.Log()[a.tree.Size():], 2)) { // batches that end between checkpoints
		servicetest.OK(t, auditAll(t, a, m))
		servicetest.OK(t, a.checkpoints.sign(t.Context(), true))
	}
	if left := a.checkpoints.restores.Load(); left != 1 {
		t.Errorf("%d restores are still to end, want that of the start, which auditShard begins", left)
	}
	for _, size := range publishedSizes(t, n)[len(before):] {
		if size < newest {
			t.Errorf("a checkpoint of size %d was published after that of %d", size, newest)
		}
	}
	for _, size := range before {
		if stored, err := a.db.CheckpointsAt(t.Context(), a.shard, uint64(size)); err != nil || len(stored) == 0 {
			t.Errorf("checkpoint of size %d: %d are stored (%v)", size, len(stored), err)
		}
	}
	holds(t, n, dsn)
}

// Records that are made again under another policy are not those that were signed: the auditor
// ends, and signs none of them.
func TestRecordsMadeAgainUnderAnotherPolicyAreNotSigned(t *testing.T) {
	n, dsn := servicetest.Start(t, streams.Shard{}), database(t)
	for i := range 2 {
		n.Publish(servicetest.Runtime, mail(fmt.Sprint("s", i)))
		audited(t, n, flags(n, dsn, 100))
	}
	putPolicy(t, n, servicetest.Tenant, mailPolicy)
	n.Publish(servicetest.Runtime, mail("s2"))
	audited(t, n, flags(n, dsn, 100))
	before := publishedSizes(t, n)
	a := standing(t, flags(n, dsn, 100))
	restoreBackup(t, a, ownerOf(t, dsn), before[0])

	if err := start(t, flags(n, dsn, 100)).Wait(); !errors.Is(err, ErrRemade) {
		t.Errorf("it ended with %v", err)
	}
	if after := publishedSizes(t, n); !slices.Equal(after, before) {
		t.Errorf("published %v, before %v", after, before)
	}
	if last, err := a.db.LatestCheckpoint(t.Context(), a.shard); err != nil || int64(last.Size) != before[0] {
		t.Errorf("stored up to size %d (%v), want %d", last.Size, err, before[0])
	}
}

// A published checkpoint of more records than the log holds shows that both stores are older than it.
func TestRefusesALogBehindACheckpoint(t *testing.T) {
	n, dsn := servicetest.Start(t, streams.Shard{}), database(t)
	n.Publish(servicetest.Runtime, session(t, "s1")...)
	a := standing(t, flags(n, dsn, 100))
	text, err := tree.SignCheckpoint(a.signer, tree.Checkpoint{Shard: a.shard, Size: int64(len(n.Log())) + 1, Root: a.tree.Root()})
	servicetest.OK(t, err)
	servicetest.OK(t, streams.StoreAll(t.Context(), a.nc, []streams.Msg{{Subject: a.space.Checkpoints(a.stream), Body: []byte(text)}}))
	if err := start(t, flags(n, dsn, 100)).Wait(); !errors.Is(err, ErrRewound) {
		t.Errorf("it ended with %v", err)
	}
}

// An auditor that stood still, while another one took over and published, publishes nothing behind the other's
// checkpoint: a witness would see a log that was rolled back.
func TestAnOvertakenAuditorPublishesNothing(t *testing.T) {
	n, dsn := servicetest.Start(t, streams.Shard{}), database(t)
	n.Publish(servicetest.Runtime, session(t, "s1")...)
	a := standing(t, flags(n, dsn, 100))
	larger := int64(len(n.Log())) + 1
	text, err := tree.SignCheckpoint(a.signer, tree.Checkpoint{Shard: a.shard, Size: larger, Root: a.tree.Root()})
	servicetest.OK(t, err)
	servicetest.OK(t, streams.StoreAll(t.Context(), a.nc, []streams.Msg{{Subject: a.space.Checkpoints(a.stream), Body: []byte(text)}}))
	if err := errors.Join(auditAll(t, a, n.Log()), a.checkpoints.sign(t.Context(), true)); !errors.Is(err, daemon.ErrFenced) {
		t.Errorf("it went on: %v", err)
	}
	if sizes := publishedSizes(t, n); !slices.Equal(sizes, []int64{larger}) {
		t.Errorf("published %v", sizes)
	}
}
