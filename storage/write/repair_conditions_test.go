package write

import (
	"fmt"
	"testing"

	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/conn"
	"github.com/countersign-dev/countersign/storage/enginetest"
	"github.com/countersign-dev/countersign/storage/internal/storagetest"
	"github.com/countersign-dev/countersign/storage/schema"
)

// Repair compares by conditions of its own, because the views' queries are dear:
// they must pick the same rows, with the same form.
func TestViewsAndConditionsAgree(t *testing.T) {
	db, shard := New(enginetest.Pool(t)), storagetest.Shard(t)
	rows := storagetest.OneOfEach(t, shard, 1)
	add := func(change func(r *storage.EvidenceRow)) {
		r := storagetest.Row(shard, uint64(len(rows)+1))
		change(&r)
		rows = append(rows, r)
	}
	for _, kind := range []string{"policy", "cursor", "tick", "key"} {
		add(func(r *storage.EvidenceRow) {
			r.Kind, r.Subject, r.Tenant, r.Session, r.SessionIndex = storage.KindControl, "gov.control.GOV."+kind, "", "", nil
		})
	}
	add(func(r *storage.EvidenceRow) { r.Kind, r.Session = storage.KindUnparseable, "" })
	add(func(r *storage.EvidenceRow) { r.SessionIndex = nil })
	add(func(r *storage.EvidenceRow) {
		r.Record = `{"body":{},"redactions":[{"commitment":"c","detector":"email","path":"/body/to"}],"v":1}`
	})
	if err := db.CommitEvidence(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	seqs := func(form, from, where string) (text string) {
		query := fmt.Sprintf("SELECT toString(arraySort(groupArray((seq, toUInt8(%s))))) FROM %s WHERE shard = {s:String} AND (%s)", form, from, where)
		if err := db.pool.QueryRow(t.Context(), query, conn.Param("s", shard)).Scan(&text); err != nil {
			t.Fatalf("%s: %v", query, err)
		}
		return text
	}
	for _, table := range schema.DerivedTables {
		view, _, err := schema.ViewDefinition(t.Context(), db.pool, table)
		if err != nil {
			t.Fatal(err)
		}
		form := "0"
		if table.Version > 0 {
			form = "form"
		}
		want, got := seqs(form, "("+view+")", "true"), seqs(fmt.Sprint(table.Version), "evidence", table.Condition)
		if want != got || want == "[]" {
			t.Errorf("table %s: its view picks %s, its condition %s", table.Name, want, got)
		}
	}
	if windows, err := db.differingWindows(t.Context(), shard, 0); err != nil || len(windows) != 0 {
		t.Errorf("the tables differ from the evidence: %v %v", windows, err)
	}
}
