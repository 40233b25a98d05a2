package write

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

	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/conn"
	"github.com/countersign-dev/countersign/storage/enginetest"
	"github.com/countersign-dev/countersign/storage/expiry"
	"github.com/countersign-dev/countersign/storage/internal/storagetest"
	"github.com/countersign-dev/countersign/storage/read"
	"github.com/countersign-dev/countersign/storage/schema"
)

// expired takes steps until all is gone.
func expired(t *testing.T, db *Writer, x ExpiryBatch) {
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
func expiryRow(shard string, seq uint64) storage.EvidenceRow {
	r := storagetest.Row(shard, seq)
	r.Tenant, r.Session, r.Kind, r.Subject, r.SessionIndex = "", "", storage.KindControl, "gov.control.GOV.expiry", nil
	return r
}

// What expires is the text, and what was derived from it; everything that proofs
// need stays, of this session and of all others; and a repair brings nothing back.
func TestExpire(t *testing.T) {
	db, shard := New(enginetest.Pool(t)), storagetest.Shard(t)
	rows := storagetest.OneOfEach(t, shard, 1)
	other := storagetest.OneOfEach(t, shard, 11)
	for i := range other {
		other[i].Session = "s2"
	}
	for _, batch := range [][]storage.EvidenceRow{rows, append(other, expiryRow(shard, 16))} {
		if err := db.CommitEvidence(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
	}
	texts := func() []storage.EvidenceRow {
		return storagetest.Collect(t, func(fn func(storage.EvidenceRow) error) error {
			return expiry.New(db.pool).RecordsWithText(t.Context(), shard, "acme", "s1", fn)
		})
	}
	x := ExpiryBatch{Shard: shard, Tenant: "acme", Records: []uint64{16}}
	for i, r := range texts() {
		if x.Seqs = append(x.Seqs, r.Seq); r.Seq != rows[i].Seq || r.Record != rows[i].Record || !r.BrokerTime.Equal(rows[i].BrokerTime) {
			t.Errorf("%+v", r)
		}
	}
	if len(x.Seqs) != len(rows) {
		t.Fatalf("%d texts", len(x.Seqs))
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
		if err := read.New(db.pool).Scan(t.Context(), shard, 1, storage.AllSequences, func(r storage.EvidenceRow) error {
			gone := slices.Contains(x.Seqs, r.Seq)
			if gone != (r.Record == "") || gone != (r.Expiry == 16) || gone && (r.Kind == "" || r.Subject == "" || r.BodyDigest == "" || r.SessionIndex == nil || r.Tenant != "acme" || r.Session != "s1") {
				t.Errorf("%s: %+v", when, r)
			}
			n++
			return nil
		}); err != nil || n != len(rows)+len(other)+1 {
			t.Errorf("%s: %d rows, %v", when, n, err)
		}
		if left := storagetest.Count(t, db.pool, "SELECT count() FROM record_fields WHERE shard = '"+shard+"' AND session = 's1'"); left != 0 {
			t.Errorf("%s: %d rows in record_fields", when, left)
		}
		if n := storagetest.Count(t, db.pool, "SELECT count() FROM decisions WHERE shard = '"+shard+"' AND session = 's2'"); n != 1 {
			t.Errorf("%s: %d decisions of another session", when, n)
		}
		if n := storagetest.Count(t, db.pool, "SELECT count() FROM evidence_chain WHERE shard = '"+shard+"' AND session = 's1'"); int(n) != len(rows) {
			t.Errorf("%s: a chain of %d", when, n)
		}
	}
	check("expired")
	if added, err := db.Repair(t.Context(), shard); err != nil || added != 0 {
		t.Errorf("the repair added %d rows: %v", added, err)
	}
	check("repaired")
	// A row that is missing beside those that expired comes back, and they do not.
	if err := db.pool.Exec(t.Context(), "ALTER TABLE record_fields DELETE WHERE kind = 'decision' AND shard = {s:String} SETTINGS mutations_sync = 2", conn.Param("s", shard)); err != nil {
		t.Fatal(err)
	}
	if added, err := db.Repair(t.Context(), shard); err != nil || added != 1 {
		t.Errorf("the repair added %d rows: %v", added, err)
	}
	check("repaired once more")
	if n := storagetest.Count(t, db.pool, "SELECT count() FROM evidence WHERE shard = '"+shard+"' AND concerns = 'acme'"); n != 1 {
		t.Errorf("%d control records concern the tenant", n)
	}
	if left := texts(); len(left) != 0 {
		t.Errorf("%v", left)
	}
	var left []string
	if err := expiry.New(db.pool).IdleSessions(t.Context(), shard, "acme", storagetest.Time.Add(time.Hour), true, func(s string, _ uint64, _ time.Time) error {
		left = append(left, s)
		return nil
	}); err != nil || !slices.Equal(left, []string{"s2"}) {
		t.Errorf("%v %v", left, err)
	}
}

func hashesOf(t *testing.T, db *Writer, shard string) (list []string) {
	t.Helper()
	if err := read.New(db.pool).RecordHashes(t.Context(), shard, 1, storage.AllSequences, func(_ uint64, h [32]byte) error {
		list = append(list, string(h[:]))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return list
}

// A writer dies between two mutations of an expiry, and a repair follows. The derived rows are
// deleted, and the next caller finishes the expiry.
func TestExpireAfterCrash(t *testing.T) {
	for name, repair := range map[string]func(*Writer, string) (uint64, error){
		"at the start":      func(db *Writer, shard string) (uint64, error) { return db.Repair(t.Context(), shard) },
		"beside the writer": func(db *Writer, shard string) (uint64, error) { return db.RepairContents(t.Context(), shard, 5) },
	} {
		t.Run(name, func(t *testing.T) { expireAfterCrash(t, repair) })
	}
}

func expireAfterCrash(t *testing.T, repair func(*Writer, string) (uint64, error)) {
	db, shard := New(enginetest.Pool(t)), storagetest.Shard(t)
	if err := db.CommitEvidence(t.Context(), storagetest.OneOfEach(t, shard, 1)); err != nil {
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
	if n, err := repair(db, shard); err != nil || n != 0 {
		t.Errorf("%d rows were made anew, %v", n, err)
	}
	want := map[string]uint64{"evidence_chain": 5, "decisions": 0, "calls": 0, "findings": 0, "approvals": 0}
	storagetest.WantRows(t, db.pool, shard, want)
	expired(t, db, x)
	storagetest.WantRows(t, db.pool, shard, want)
}

// Who may read may not make anything expire.
func TestReadersExpireNothing(t *testing.T) {
	db, shard := New(enginetest.Pool(t)), storagetest.Shard(t)
	if err := db.CommitEvidence(t.Context(), storagetest.OneOfEach(t, shard, 1)); err != nil {
		t.Fatal(err)
	}
	ro := New(enginetest.Open(t, enginetest.Engine(t).ReadonlyDSN()))
	if _, err := ro.Expire(t.Context(), ExpiryBatch{Shard: shard, Tenant: "acme", Seqs: []uint64{1}, Records: []uint64{6}}); err == nil {
		t.Error("the read-only user may")
	}
	if err := ro.pool.Exec(t.Context(), "ALTER TABLE evidence UPDATE record = '' WHERE shard = '"+shard+"'"); err == nil {
		t.Error("the read-only user may, by hand")
	}
	if n := storagetest.Count(t, db.pool, "SELECT count() FROM evidence WHERE shard = '"+shard+"' AND record = ''"); n != 0 {
		t.Errorf("%d texts are gone", n)
	}
}

// An auditor of one tenant sees what says that texts of the tenant expired, and
// nothing that says so of another's.
func TestAuditorSeesTheirExpiries(t *testing.T) {
	t.Parallel()
	e, dsn := enginetest.WithAuditor(t)
	storagetest.TwoTenants(t, New(enginetest.Open(t, e.DSN())))
	db := New(enginetest.Open(t, e.DSN()))
	if err := db.CommitEvidence(t.Context(), []storage.EvidenceRow{expiryRow("S", 12), expiryRow("S", 13)}); err != nil {
		t.Fatal(err)
	}
	expired(t, db, ExpiryBatch{Shard: "S", Tenant: "acme", Seqs: []uint64{1, 2}, Records: []uint64{12}})
	expired(t, db, ExpiryBatch{Shard: "S", Tenant: "globex", Seqs: []uint64{6, 7}, Records: []uint64{13}})
	var seqs []uint64
	err := enginetest.Open(t, dsn).QueryRow(t.Context(), "SELECT groupArray(seq) FROM evidence WHERE subject LIKE '%.expiry'").Scan(&seqs)
	if err != nil || !slices.Equal(seqs, []uint64{12}) {
		t.Errorf("%v %v", seqs, err)
	}
}

// The text is gone from the disk once the parts that were replaced are deleted.
func TestExpiredIsOffTheDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e := enginetest.Start(t, dir, 0)
	db, shard := New(enginetest.Open(t, e.DSN())), storagetest.Shard(t)
	if err := schema.Migrate(t.Context(), db.pool); err != nil {
		t.Fatal(err)
	}
	const soon = " MODIFY SETTING old_parts_lifetime = 1, cleanup_delay_period = 1, cleanup_delay_period_random_add = 0, max_cleanup_delay_period = 1"
	for _, statement := range []string{
		"ALTER TABLE evidence MODIFY COLUMN record String CODEC(NONE)", // so that it can be found
		"ALTER TABLE record_fields MODIFY COLUMN fields CODEC(NONE)",
		"ALTER TABLE evidence" + soon, "ALTER TABLE record_fields" + soon,
	} {
		if err := db.pool.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	var b [24]byte
	_, _ = rand.Read(b[:])
	secret, kept := hex.EncodeToString(b[:]), hex.EncodeToString(b[:12])+"-kept"
	gone, stays := storagetest.RecordRow(t, shard, 1, storage.KindDecision, map[string]string{"agent": secret}), storagetest.RecordRow(t, shard, 2, storage.KindDecision, map[string]string{"agent": kept})
	gone.Session = "s0"
	if err := db.CommitEvidence(t.Context(), []storage.EvidenceRow{gone, stays}); err != nil {
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
