package storage

import (
	"strings"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// Keys are few and read for every proof: no granule without a change is looked at,
// by the owner or by an auditor.
func TestChangesAreFoundByIndex(t *testing.T) {
	e, dsn := twoTenants(t)
	owner, auditor := openDB(t, e.DSN()), openDB(t, dsn)
	rows := rowsOf("S", 12, 20_012)
	for i := range rows {
		if i%7 == 0 {
			rows[i].Kind, rows[i].Tenant, rows[i].Session, rows[i].Subject = KindControl, "", "", "gov.control.GOV.cursor"
		}
	}
	if err := owner.InsertEvidence(t.Context(), EvidenceToken("S", 12), rows); err != nil {
		t.Fatal(err)
	}
	for who, db := range map[string]*DB{"owner": owner, "auditor": auditor} {
		found := collect(t, func(fn func(EvidenceRow) error) error {
			return db.ScanSubject(t.Context(), "S", "gov.control.GOV.key", fn)
		})
		if len(found) != 1 || found[0].Seq != 10 {
			t.Errorf("%s: found %d records", who, len(found))
		}
		plan := ""
		err := db.eachRow(t.Context(), "EXPLAIN indexes = 1 SELECT seq FROM evidence WHERE shard = 'S' AND subject = 'gov.control.GOV.key' AND "+changeExpression, func(r driver.Rows) error {
			var line string
			err := r.Scan(&line)
			plan += line + "\n"
			return err
		})
		if who == "owner" && (err != nil || !strings.Contains(plan, "by_change") || !strings.Contains(plan, "Granules: 1/")) {
			t.Errorf("%v\n%s", err, plan)
		}
	}
}
