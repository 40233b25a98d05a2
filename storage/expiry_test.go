package storage

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// expired takes steps until all is gone.
func expired(t *testing.T, db *DB, x ExpiryBatch) {
	t.Helper()
	for n := 0; ; n++ {
		done, err := db.Expire(t.Context(), x)
		if err != nil {
			t.Fatal(err)
		}
		if done {
			return
		}
		if t.Context().Err() != nil {
			t.Fatalf("not done after %d steps", n)
		}
		time.Sleep(5 * time.Millisecond) // a mutation is under way
	}
}

// expiryRow is the row of a control record.
func expiryRow(shard string, seq uint64) EvidenceRow {
	r := row(shard, seq)
	r.Tenant, r.Session, r.Kind, r.Subject, r.SessionIndex = "", "", KindControl, "gov.control.GOV.expiry", nil
	return r
}

// What expires is the text, and what was derived from it; everything that proofs
// need stays, of this session and of all others; and a repair brings nothing back.
func TestExpire(t *testing.T) {
	db, shard := sharedDB(t), testShard(t)
	rows := oneOfEach(t, shard, 1)
	other := oneOfEach(t, shard, 11)
	for i := range other {
		other[i].Session = "s2"
	}
	for _, batch := range [][]EvidenceRow{rows, append(other, expiryRow(shard, 16))} {
		if err := db.CommitEvidence(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
	}
	places, newest, err := db.RecordsWithText(t.Context(), shard, "acme", "s1")
	if err != nil || len(places) != len(rows) || places[0].Seq != 1 || places[0].Index != *rows[0].SessionIndex || !newest.Equal(rows[len(rows)-1].BrokerTime) {
		t.Fatalf("%+v %v %v", places, newest, err)
	}
	x := ExpiryBatch{Shard: shard, Tenant: "acme", Records: []uint64{16}}
	for _, p := range places {
		x.Seqs = append(x.Seqs, p.Seq)
	}
	for _, wrong := range []ExpiryBatch{{}, {Shard: shard, Tenant: "acme", Seqs: x.Seqs}, {Shard: shard, Seqs: x.Seqs, Records: x.Records}} {
		if _, err := db.Expire(t.Context(), wrong); err == nil {
			t.Errorf("%+v expires", wrong)
		}
	}
	before := hashesOf(t, db, shard)
	expired(t, db, x)
	expired(t, db, x) // again: nothing is there to be done
	if after := hashesOf(t, db, shard); !slices.Equal(before, after) {
		t.Errorf("hashes changed:\n%x\n%x", before, after)
	}
	check := func(when string) {
		t.Helper()
		n := 0
		if err := db.Scan(t.Context(), shard, 1, AllSequences, func(r EvidenceRow) error {
			gone := slices.Contains(x.Seqs, r.Seq)
			if gone != (r.Record == "") || gone != (r.Expiry == 16) || gone && (r.Kind == "" || r.Subject == "" || r.BodyDigest == "" || r.SessionIndex == nil || r.Tenant != "acme" || r.Session != "s1") {
				t.Errorf("%s: %+v", when, r)
			}
			n++
			return nil
		}); err != nil || n != len(rows)+len(other)+1 {
			t.Errorf("%s: %d rows, %v", when, n, err)
		}
		for _, table := range expiryTables {
			if left := count(t, db, "SELECT count() FROM "+table+" WHERE shard = '"+shard+"' AND session = 's1'"); left != 0 {
				t.Errorf("%s: %d rows in %s", when, left, table)
			}
		}
		if n := count(t, db, "SELECT count() FROM decisions WHERE shard = '"+shard+"' AND session = 's2'"); n != 1 {
			t.Errorf("%s: %d decisions of another session", when, n)
		}
		if n := count(t, db, "SELECT count() FROM evidence_chain WHERE shard = '"+shard+"' AND session = 's1'"); int(n) != len(rows) {
			t.Errorf("%s: a chain of %d", when, n)
		}
	}
	check("expired")
	if added, err := db.Repair(t.Context(), shard); err != nil || added != 0 {
		t.Errorf("the repair added %d rows: %v", added, err)
	}
	check("repaired")
	// A row that is missing beside those that expired comes back, and they do not.
	if err := db.conn.Exec(t.Context(), "ALTER TABLE decisions DELETE WHERE shard = {s:String} SETTINGS mutations_sync = 2", queryParam("s", shard)); err != nil {
		t.Fatal(err)
	}
	if added, err := db.Repair(t.Context(), shard); err != nil || added != 1 {
		t.Errorf("the repair added %d rows: %v", added, err)
	}
	check("repaired once more")
	if n := count(t, db, "SELECT count() FROM evidence WHERE shard = '"+shard+"' AND concerns = 'acme'"); n != 1 {
		t.Errorf("%d control records concern the tenant", n)
	}
	if places, _, err := db.RecordsWithText(t.Context(), shard, "acme", "s1"); err != nil || len(places) != 0 {
		t.Errorf("%v %v", places, err)
	}
	var left []string
	if err := db.SessionsWithText(t.Context(), shard, "acme", testTime.Add(time.Hour), func(s string, _ uint64, _ time.Time) error {
		left = append(left, s)
		return nil
	}); err != nil || !slices.Equal(left, []string{"s2"}) {
		t.Errorf("%v %v", left, err)
	}
}

func hashesOf(t *testing.T, db *DB, shard string) (list []string) {
	t.Helper()
	if err := db.RecordHashes(t.Context(), shard, 1, AllSequences, func(_ uint64, h [32]byte) error {
		list = append(list, string(h[:]))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return list
}

// A writer that dies between a mutation and the next is followed by a repair; the
// derived rows go with it, and the expiry is finished by whoever comes next.
func TestExpireAfterCrash(t *testing.T) {
	db, shard := sharedDB(t), testShard(t)
	if err := db.CommitEvidence(t.Context(), oneOfEach(t, shard, 1)); err != nil {
		t.Fatal(err)
	}
	x := ExpiryBatch{Shard: shard, Tenant: "acme", Seqs: []uint64{1, 2, 3, 4, 5}, Records: []uint64{6}}
	if done, err := db.Expire(t.Context(), x); done || err != nil { // the first step only
		t.Fatal(done, err)
	}
	for {
		if busy, err := db.isMutating(t.Context()); err != nil {
			t.Fatal(err)
		} else if !busy {
			break
		}
	}
	if added, err := db.Repair(t.Context(), shard); err != nil || added != 0 {
		t.Errorf("%d rows added, %v", added, err)
	}
	want := map[string]uint64{"evidence_chain": 5, "decisions": 0, "calls": 0, "findings": 0, "approvals": 0}
	wantRows(t, db, shard, want)
	expired(t, db, x)
	wantRows(t, db, shard, want)
}

// Who may read may not make anything expire.
func TestReadersExpireNothing(t *testing.T) {
	db, shard := sharedDB(t), testShard(t)
	if err := db.CommitEvidence(t.Context(), oneOfEach(t, shard, 1)); err != nil {
		t.Fatal(err)
	}
	ro := openDB(t, shared.engine.ReadonlyDSN())
	if _, err := ro.Expire(t.Context(), ExpiryBatch{Shard: shard, Tenant: "acme", Seqs: []uint64{1}, Records: []uint64{6}}); err == nil {
		t.Error("the read-only user may")
	}
	if err := ro.conn.Exec(t.Context(), "ALTER TABLE evidence UPDATE record = '' WHERE shard = '"+shard+"'"); err == nil {
		t.Error("the read-only user may, by hand")
	}
	if n := count(t, db, "SELECT count() FROM evidence WHERE shard = '"+shard+"' AND record = ''"); n != 0 {
		t.Errorf("%d texts are gone", n)
	}
}

// An auditor of one tenant sees what says that texts of the tenant expired, and
// nothing that says so of another's.
func TestAuditorSeesTheirExpiries(t *testing.T) {
	e, dsn := twoTenants(t)
	db := openDB(t, e.DSN())
	if err := db.CommitEvidence(t.Context(), []EvidenceRow{expiryRow("S", 12), expiryRow("S", 13)}); err != nil {
		t.Fatal(err)
	}
	expired(t, db, ExpiryBatch{Shard: "S", Tenant: "acme", Seqs: []uint64{1, 2}, Records: []uint64{12}})
	expired(t, db, ExpiryBatch{Shard: "S", Tenant: "globex", Seqs: []uint64{6, 7}, Records: []uint64{13}})
	text, rows, err := everything(t, dsn, "SELECT toString(seq) FROM evidence WHERE subject LIKE '%.expiry'")
	if err != nil || rows != 1 || text != "12\n" {
		t.Errorf("%q %v", text, err)
	}
}

// The text is gone from the disk once the parts that were replaced are deleted.
func TestExpiredIsOffTheDisk(t *testing.T) {
	dir := t.TempDir()
	e := startEngine(t, dir, 0)
	db, shard := openDB(t, e.DSN()), testShard(t)
	if err := db.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	const soon = " MODIFY SETTING old_parts_lifetime = 1, cleanup_delay_period = 1, cleanup_delay_period_random_add = 0, max_cleanup_delay_period = 1"
	for _, statement := range []string{
		"ALTER TABLE evidence MODIFY COLUMN record String CODEC(NONE)", // so that it can be found
		"ALTER TABLE decisions MODIFY COLUMN agent String CODEC(NONE)",
		"ALTER TABLE evidence" + soon, "ALTER TABLE decisions" + soon,
	} {
		if err := db.conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	var b [24]byte
	_, _ = rand.Read(b[:])
	secret, kept := hex.EncodeToString(b[:]), hex.EncodeToString(b[:12])+"-kept"
	gone, stays := recordRow(t, shard, 1, KindDecision, map[string]string{"agent": secret}), recordRow(t, shard, 2, KindDecision, map[string]string{"agent": kept})
	gone.Session = "s0"
	if err := db.CommitEvidence(t.Context(), []EvidenceRow{gone, stays}); err != nil {
		t.Fatal(err)
	}
	if found(t, dir, secret) < 2 || found(t, dir, kept) < 2 {
		t.Fatal("the test cannot find what is there")
	}
	expired(t, db, ExpiryBatch{Shard: shard, Tenant: "acme", Seqs: []uint64{1}, Records: []uint64{3}})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for found(t, dir, secret) > 0 {
		select {
		case <-ctx.Done():
			t.Fatal("it is still on the disk")
		case <-time.After(200 * time.Millisecond):
		}
	}
	if found(t, dir, kept) < 2 {
		t.Error("what did not expire is gone, too")
	}
}

// found counts the files below dir that have a text in them.
func found(t *testing.T, dir, text string) (n int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil // it may just have been deleted
		}
		if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, []byte(text)) {
			n++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
