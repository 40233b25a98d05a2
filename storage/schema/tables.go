package schema

import (
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/storage"
)

// DerivedTable is a table that is filled from evidence.
type DerivedTable struct {
	Name string
	// View is the materialized view that fills the table. It is empty if package write does, with
	// the query in changes.sql.
	View string
	// Condition is the condition of the query: it selects the rows of evidence with a row here.
	Condition string
	// Version is the number that the view writes into the column form. A release that changes the
	// query raises it: rows with another number were made by an earlier query, and Repair makes
	// them again. 0 means that the table has no such column.
	Version uint8
}

// DerivedTables lists the tables that are filled from evidence. Their queries repeat the
// conditions; TestViewsAndConditionsAgree compares them.
var DerivedTables = []DerivedTable{
	{Name: "evidence_chain", View: "evidence_chain_mv", Condition: "session != '' OR session_index IS NOT NULL"},
	{Name: "decisions", View: "decisions_mv", Condition: "kind = 'decision'", Version: 1},
	{Name: "calls", View: "calls_mv", Condition: "kind = 'call'", Version: 1},
	{Name: "findings", View: "findings_mv", Condition: "kind = 'finding'", Version: 1},
	{Name: "approvals", View: "approvals_mv", Condition: "kind = 'approval'", Version: 1},
	{Name: changesTable, Condition: "kind = 'control' AND NOT (endsWith(subject, '.cursor') OR endsWith(subject, '.tick'))", Version: 1},
	{Name: "redactions", View: "redactions_mv", Condition: "redacted OR kind = 'unparseable'", Version: 1},
}

const changesTable = "changes"

// Changes is the table that package write fills. ChangesHas is its Condition for a row that is
// being inserted.
var Changes = DerivedTables[slices.IndexFunc(DerivedTables, func(t DerivedTable) bool { return t.Name == changesTable })]

// ChangesHas reports whether the table changes has a row of a record.
func ChangesHas(r storage.EvidenceRow) bool {
	return r.Kind == storage.KindControl && !strings.HasSuffix(r.Subject, ".cursor") && !strings.HasSuffix(r.Subject, ".tick")
}

// Expires reports whether the rows of the table are deleted together with the texts that they
// are made from.
func (t DerivedTable) Expires() bool { return slices.Contains(ExpiryTables, t.Name) }

// TableNames lists the derived tables.
func TableNames() (names []string) {
	for _, table := range DerivedTables {
		names = append(names, table.Name)
	}
	return names
}

// ExpiryTables are the derived tables with rows that are deleted together with the texts that
// they are made from. Control records never expire, so changes is not among them;
// evidence_chain holds no names except those that evidence keeps.
var ExpiryTables = []string{"decisions", "calls", "findings", "approvals", "redactions"}
