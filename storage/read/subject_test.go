package read

import (
	"strings"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/enginetest"
	"github.com/countersign-dev/countersign/storage/internal/storagetest"
	"github.com/countersign-dev/countersign/storage/write"
)

// Keys are few and read for every proof: of a merged part only the granule of the index (16 of the
// table) with changes is looked at, by the owner or by an auditor. A small part that is not merged
// yet has no index.
func TestChangesAreFoundByIndex(t *testing.T) {
	e, dsn := enginetest.WithAuditor(t)
	storagetest.TwoTenants(t, write.New(enginetest.Open(t, e.DSN())))
	owner, auditor := New(enginetest.Open(t, e.DSN())), New(enginetest.Open(t, dsn))
	rows := storagetest.Rows("S", 12, 20_012)
	for i := range rows {
		if i%7 == 0 {
			rows[i].Kind, rows[i].Tenant, rows[i].Session, rows[i].Subject = storage.KindControl, "", "", "gov.control.GOV.cursor"
		}
	}
	if err := write.New(owner.pool).InsertEvidence(t.Context(), write.EvidenceToken("S", 12), rows); err != nil {
		t.Fatal(err)
	}
	if err := owner.pool.Exec(t.Context(), "OPTIMIZE TABLE evidence FINAL"); err != nil {
		t.Fatal(err)
	}
	for who, db := range map[string]*Reader{"owner": owner, "auditor": auditor} {
		found := storagetest.Collect(t, func(fn func(storage.EvidenceRow) error) error {
			return db.ScanSubject(t.Context(), "S", "gov.control.GOV.key", fn)
		})
		if len(found) != 1 || found[0].Seq != 10 {
			t.Errorf("%s: found %d records", who, len(found))
		}
		plan := ""
		err := db.pool.EachRow(t.Context(), "EXPLAIN indexes = 1 SELECT seq FROM evidence WHERE shard = 'S' AND subject = 'gov.control.GOV.key' AND "+changeExpression, func(r driver.Rows) error {
			var line string
			err := r.Scan(&line)
			plan += line + "\n"
			return err
		})
		if who == "owner" && (err != nil || !strings.Contains(plan, "by_change") || !strings.Contains(plan, "Granules: 16/39")) {
			t.Errorf("%v\n%s", err, plan)
		}
	}
}
