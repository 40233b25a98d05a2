package auditor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/keys"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/internal/service/sessionsecrets"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/streams"
)

// TestAttackUnsignedRows: an attacker with write access to every table changes, adds or deletes
// rows behind the newest checkpoint while the auditor is stopped. An auditor that starts signs
// none of these rows, whether or not the attacker makes the tables consistent. Once the old rows
// are restored, they are signed.
func TestAttackUnsignedRows(t *testing.T) {
	n, dsn := servicetest.Start(t, streams.Shard{}), database(t)
	n.Publish(servicetest.Runtime, session(t, "s-signed")...)
	audited(t, n, flags(n, dsn, 100))
	n.Publish(servicetest.Runtime, session(t, "s-tail")...)
	a := standing(t, flags(n, dsn, 100))
	signed := a.tree.Size()
	log := n.Log()[signed:]
	for _, cut := range []int{len(log) / 2, len(log)} { // two batches, neither signed
		from := int(a.tree.Size() - signed)
		b := prepare(t, a, log[from:cut])
		servicetest.OK(t, a.store.write(t.Context(), b))
		a.records.chain.Commit()
		a.tree = b.tree
	}
	position := uint64(a.tree.Size())
	var rows []storage.EvidenceRow
	servicetest.OK(t, a.db.Scan(t.Context(), a.shard, uint64(signed)+1, position, func(r storage.EvidenceRow) error {
		rows = append(rows, r)
		return nil
	}))
	if uint64(len(rows)) != position-uint64(signed) || len(rows) < 4 {
		t.Fatalf("%d rows behind %d", len(rows), signed)
	}
	execute := ownerOf(t, dsn)
	refused := func(what string) {
		t.Helper()
		if err := start(t, flags(n, dsn, 100)).Wait(); !errors.Is(err, ErrNoIntent) {
			t.Errorf("%s: %v", what, err)
		}
		last, err := a.db.LatestCheckpoint(t.Context(), a.shard)
		servicetest.OK(t, err)
		if int64(last.Size) != signed {
			t.Fatalf("%s: the auditor signed up to %d", what, last.Size)
		}
	}
	target := rows[1]
	forged := strings.Replace(target.Record, `"seq":`, `"x":1,"seq":`, 1)
	hash := sha256.Sum256([]byte("countersign/evidence/v1\x00" + forged))
	set := func(record string, hash [32]byte) {
		t.Helper()
		execute("ALTER TABLE evidence UPDATE record = ?, record_hash = toFixedString(unhex(?), 32) WHERE seq = ?", record, hex.EncodeToString(hash[:]), target.Seq)
	}
	set(forged, hash)
	refused("a record is another one")
	set(target.Record, target.RecordHash)

	execute(fmt.Sprintf("INSERT INTO evidence (shard, seq, tenant, session, session_index, kind, subject, broker_time, body_digest, record, record_hash) "+
		"SELECT shard, %d, tenant, session, session_index, kind, subject, broker_time, body_digest, record, record_hash FROM evidence WHERE seq = %d", position+1, position))
	n.Publish(servicetest.Runtime, garbage("{more"))
	refused("a record is added")
	execute(fmt.Sprintf("ALTER TABLE evidence DELETE WHERE seq = %d", position+1))

	execute(fmt.Sprintf("ALTER TABLE evidence DELETE WHERE seq = %d", position))
	refused("a record is gone")

	// The way out that the error names.
	servicetest.OK(t, a.writer.DeleteAfter(t.Context(), a.shard, uint64(signed)))
	audited(t, n, flags(n, dsn, 100))
	holds(t, n, dsn)
}

// TestAttackHeads: an attacker with write access to the database changes columns of the last record of a
// session while the auditor runs. The auditor signs no record that does not follow on the text.
func TestAttackHeads(t *testing.T) {
	n, dsn := servicetest.Start(t, streams.Shard{}), database(t)
	n.Publish(servicetest.Runtime, append(session(t, "s1"), session(t, "s2")...)...)
	audited(t, n, flags(n, dsn, 100))
	a, execute := standing(t, flags(n, dsn, 100)), ownerOf(t, dsn)
	n.Publish(servicetest.Runtime, append(session(t, "s1"), session(t, "s2")...)...)
	log := n.Log()
	execute("ALTER TABLE evidence UPDATE session_index = 7 WHERE session = 's1'")
	half := int(a.tree.Size()) + len(session(t, "s1"))
	servicetest.OK(t, auditAll(t, a, log[a.tree.Size():half]))
	execute("ALTER TABLE evidence UPDATE record_hash = reverse(record_hash) WHERE session = 's2'")
	if err := auditAll(t, a, log[half:]); !errors.Is(err, daemon.ErrFenced) {
		t.Errorf("another hash: %v", err)
	}
	execute("ALTER TABLE evidence UPDATE record_hash = reverse(record_hash) WHERE session = 's2'")
	audited(t, n, flags(n, dsn, 100))
	holds(t, n, dsn)
}

// TestAnnouncedByTheActiveOneOnly: an auditor that another one has followed
// announces nothing more, and stores nothing more.
func TestAnnouncedByTheActiveOneOnly(t *testing.T) {
	n, dsn := servicetest.Start(t, streams.Shard{}), database(t)
	n.Publish(servicetest.Runtime, session(t, "s1")...)
	earlier := standing(t, flags(n, dsn, 100))
	later := standing(t, flags(n, dsn, 100))
	if err := earlier.store.write(t.Context(), prepare(t, earlier, n.Log())); !errors.Is(err, daemon.ErrFenced) {
		t.Errorf("%v", err)
	}
	servicetest.OK(t, later.store.write(t.Context(), prepare(t, later, n.Log())))
	// An answer that was lost: the same notes once more.
	later.intents.revision--
	servicetest.OK(t, later.intents.writeNotes(context.Background(), later.intents.notes))
	for range 2 * keptIntents {
		servicetest.OK(t, later.intents.store(t.Context(), later.tree))
	}
	e, err := later.intents.kv.Get(t.Context(), later.intents.key)
	servicetest.OK(t, err)
	var notes []string
	servicetest.OK(t, json.Unmarshal(e.Value(), &notes))
	if len(notes) != keptIntents {
		t.Errorf("%d notes are kept", len(notes))
	}
	known, err := later.ownVerifier()
	servicetest.OK(t, err)
	if _, err := tree.OpenCheckpoint(notes[0], known); err == nil {
		t.Error("an intent passes for a checkpoint")
	}
}

// TestAnotherKeyIsRefused: an auditor with a key that is not the log's says which file is wrong, and
// not that an attacker wrote rows.
func TestAnotherKeyIsRefused(t *testing.T) {
	n, dsn := servicetest.Start(t, streams.Shard{}), database(t)
	n.Publish(servicetest.Runtime, session(t, "s-1")...)
	audited(t, n, flags(n, dsn, 100))
	for file, want := range map[string]error{keys.MasterFile: sessionsecrets.ErrOtherMaster, keys.CheckpointFile: ErrOtherKey} {
		for _, in := range []string{dsn, database(t)} { // an empty one is filled from the log
			f := flags(n, in, 100)
			f.Keys = n.KeysWithAnother(file)
			if err := start(t, f).Wait(); !errors.Is(err, want) {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
}

// TestUnopenedKeyStopsNothing: a session's key that does not open makes the auditor unhealthy, and
// everything is audited all the same.
func TestUnopenedKeyStopsNothing(t *testing.T) {
	n, dsn := servicetest.Start(t, streams.Shard{}), database(t)
	bucket, err := n.JS("auditor").KeyValue(t.Context(), streams.BucketSessionSecrets)
	servicetest.OK(t, err)
	_, err = bucket.Put(t.Context(), sessionsecrets.BucketKey(sessionsecrets.SessionOfName("acme", "s-1")), []byte("no key of ours"))
	servicetest.OK(t, err)
	n.Publish(servicetest.Runtime, append(session(t, "s-1"), session(t, "s-2")...)...)
	s := start(t, flags(n, dsn, 100))
	auditedBy(t, n, s)
	if problem := s.Health.Report().Problems["unopened_keys"]; !strings.Contains(problem, `session "s-1" of tenant "acme"`) {
		t.Errorf("%q", problem)
	}
}
