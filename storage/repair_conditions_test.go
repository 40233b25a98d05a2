package storage

import (
	"fmt"
	"testing"
)

// Repair compares by conditions of its own, because the views' queries are dear:
// they must pick the same rows, with the same form.
func TestViewsAndConditionsAgree(t *testing.T) {
	db, shard := sharedDB(t), testShard(t)
	rows := oneOfEach(t, shard, 1)
	add := func(change func(r *EvidenceRow)) {
		r := row(shard, uint64(len(rows)+1))
		change(&r)
		rows = append(rows, r)
	}
	for _, kind := range []string{"policy", "cursor", "tick", "key"} {
		add(func(r *EvidenceRow) {
			r.Kind, r.Subject, r.Tenant, r.Session, r.SessionIndex = KindControl, "gov.control.GOV."+kind, "", "", nil
		})
	}
	add(func(r *EvidenceRow) { r.Kind, r.Session = KindUnparseable, "" })
	add(func(r *EvidenceRow) { r.SessionIndex = nil })
	add(func(r *EvidenceRow) {
		r.Record = `{"body":{},"redactions":[{"commitment":"c","detector":"email","path":"/body/to"}],"v":1}`
	})
	if err := db.CommitEvidence(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	seqs := func(form, from, where string) (text string) {
		query := fmt.Sprintf("SELECT toString(arraySort(groupArray((seq, toUInt8(%s))))) FROM %s WHERE shard = {s:String} AND (%s)", form, from, where)
		if err := db.conn.QueryRow(t.Context(), query, queryParam("s", shard)).Scan(&text); err != nil {
			t.Fatalf("%s: %v", query, err)
		}
		return text
	}
	for _, table := range derivedTables {
		view, _, err := db.viewDefinition(t.Context(), table)
		if err != nil {
			t.Fatal(err)
		}
		form := "0"
		if table.version > 0 {
			form = "form"
		}
		want, got := seqs(form, "("+view+")", "true"), seqs(fmt.Sprint(table.version), "evidence", table.condition)
		if want != got || want == "[]" {
			t.Errorf("table %s: its view picks %s, its condition %s", table.name, want, got)
		}
	}
	if windows, err := db.differingWindows(t.Context(), shard, 0); err != nil || len(windows) != 0 {
		t.Errorf("the tables differ from the evidence: %v %v", windows, err)
	}
}
