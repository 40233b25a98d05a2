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

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence/build"
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

// TestAttackRowsBehindTheLog: what a user of the database alone claims of the log stops the auditor at most, and no
// admission.
func TestAttackRowsBehindTheLog(t *testing.T) {
	n, dsn := servicetest.Start(t, streams.Shard{}), database(t)
	n.Publish(servicetest.Runtime, session(t, "s1")...)
	audited(t, n, flags(n, dsn, 100))
	a, execute, signed := standing(t, flags(n, dsn, 100)), ownerOf(t, dsn), signedUp(n)
	for _, seq := range []int{9_000_000, signed + 3} {
		execute(fmt.Sprintf("INSERT INTO evidence (shard, seq, tenant, session, kind, subject, broker_time, body_digest, record, record_hash) "+
			"SELECT shard, %d, tenant, session, kind, subject, broker_time, body_digest, record, record_hash FROM evidence WHERE seq = 1", seq))
		err := start(t, flags(n, dsn, 100)).Wait()
		if !errors.Is(err, ErrNoIntent) || daemon.IsUntrusted(err) || !strings.Contains(err.Error(), "countersign audit cut") {
			t.Errorf("a row of sequence %d: %v", seq, err)
		}
		servicetest.OK(t, a.writer.DeleteAfter(t.Context(), a.shard, uint64(signed))) // what audit cut does
		n.Publish(servicetest.Runtime, garbage("{"), garbage("{"), garbage("{"))
	}
	audited(t, n, flags(n, dsn, 100))
	holds(t, n, dsn)

	last := fmt.Sprintf("seq = %d", signedUp(n))
	for _, changed := range []string{"body_digest = 'sha256:00'", "record = concat(record, ' ')"} {
		execute("ALTER TABLE evidence UPDATE " + changed + " WHERE " + last)
		n.Publish(servicetest.Runtime, garbage("{"))
		audited(t, n, flags(n, dsn, 100)) // goes on, and signs what is in its own tree
	}
}

// TestAttackHeadsTakenAway: an attacker with write access to the database hides for a moment where sessions end, or
// shows another end. No auditor signs a record that does not follow, whether or not it made the last one itself.
func TestAttackHeadsTakenAway(t *testing.T) {
	n, dsn := servicetest.Start(t, streams.Shard{}), database(t)
	n.Publish(servicetest.Runtime, append(session(t, "s1"), session(t, "s2")...)...)
	audited(t, n, flags(n, dsn, 100))
	execute := ownerOf(t, dsn)
	execute("CREATE TABLE kept_rows ENGINE = MergeTree ORDER BY seq AS SELECT * FROM evidence")
	execute("CREATE TABLE kept_index ENGINE = MergeTree ORDER BY seq AS SELECT * FROM evidence_chain")
	defer func() { execute("DROP TABLE kept_rows"); execute("DROP TABLE kept_index") }()
	n.Publish(servicetest.Runtime, session(t, "s1")[0])
	const newest = "(SELECT max(seq) FROM kept_rows WHERE session = 's1')"
	forged := "replaceRegexpOne(record, '\"session_index\":[0-9]+', '\"session_index\":2')"
	for what, statement := range map[string]string{
		"the index is away":           "ALTER TABLE evidence_chain DELETE WHERE session = 's1'",
		"the index names another end": "ALTER TABLE evidence_chain DELETE WHERE session = 's1' AND seq = " + newest,
		"the index names another's":   "INSERT INTO evidence_chain SELECT * REPLACE ('s1' AS session) FROM kept_index WHERE seq IN (SELECT seq FROM kept_rows WHERE session = 's2')",
		"the text is away":            "ALTER TABLE evidence UPDATE record = '' WHERE seq = " + newest,
		"text and hash are others":    "ALTER TABLE evidence UPDATE record_hash = SHA256(concat('countersign/evidence/v1', char(0), " + forged + ")), record = " + forged + " WHERE seq = " + newest,
		"the hash alone is another":   "ALTER TABLE evidence UPDATE record = '', record_hash = reverse(record_hash) WHERE seq = " + newest,
	} {
		later := standing(t, flags(n, dsn, 100))
		execute(statement)
		if err := auditAll(t, later, n.Log()[later.tree.Size():]); !errors.Is(err, daemon.ErrFenced) {
			t.Errorf("%s: %v", what, err)
		}
		execute("ALTER TABLE evidence UPDATE record = (SELECT any(record) FROM kept_rows WHERE seq = " + newest + "), record_hash = (SELECT any(record_hash) FROM kept_rows WHERE seq = " + newest + ") WHERE seq = " + newest)
		execute("TRUNCATE TABLE evidence_chain")
		execute("INSERT INTO evidence_chain SELECT * FROM kept_index")
	}
	a := standing(t, flags(n, dsn, 100)) // which then forgets the head, and not where it is
	servicetest.OK(t, auditAll(t, a, n.Log()[a.tree.Size():]))
	servicetest.OK(t, a.store.await())
	a.records.chain = build.NewChain(refuseHead, 0)
	n.Publish(servicetest.Runtime, session(t, "renamed")[0]) // an earlier build would have named it otherwise
	a.records.last.note(events.SessionID{Tenant: "acme", Session: "renamed"}, 1)
	servicetest.OK(t, auditAll(t, a, n.Log()[a.tree.Size():]))
	n.Publish(servicetest.Runtime, session(t, "s1")[1])
	execute("ALTER TABLE evidence_chain DELETE WHERE session = 's1' AND seq > " + newest)
	if err := auditAll(t, a, n.Log()[a.tree.Size():]); !errors.Is(err, daemon.ErrFenced) {
		t.Errorf("its own record is away: %v", err)
	}
	audited(t, n, flags(n, dsn, 100)) // whose start makes the index again
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
