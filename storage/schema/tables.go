package schema

import "slices"

// DerivedTable is a table that a materialized view fills from evidence.
type DerivedTable struct {
	Name, View string
	// Condition is the condition of the view: it selects the rows of evidence with a row here.
	Condition string
	// Version is the number that the view writes into the column form. Rows with a lower number
	// were made by an earlier view; Repair makes them again. 0 means that the table has no
	// such column.
	Version uint8
}

// DerivedTables lists the tables that materialized views fill from evidence. The views repeat
// the conditions; TestViewsAndConditionsAgree compares them.
var DerivedTables = []DerivedTable{
	{Name: "evidence_chain", View: "evidence_chain_mv2", Condition: "session != '' OR session_index IS NOT NULL"},
	{Name: "decisions", View: "decisions_mv2", Condition: "kind = 'decision'", Version: 2},
	{Name: "calls", View: "calls_mv3", Condition: "kind = 'call'", Version: 3},
	{Name: "findings", View: "findings_mv2", Condition: "kind = 'finding'", Version: 2},
	{Name: "approvals", View: "approvals_mv2", Condition: "kind = 'approval'", Version: 2},
	{Name: "changes", View: "changes_mv", Condition: "kind = 'control' AND NOT (endsWith(subject, '.cursor') OR endsWith(subject, '.tick'))", Version: 2},
	{Name: "redactions", View: "redactions_mv", Condition: "redacted OR kind = 'unparseable'", Version: 2},
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
