package schema

import "slices"

// DerivedTable is a table that a materialized view fills from evidence.
type DerivedTable struct {
	Name string
	// View is the materialized view that fills the table.
	View string
	// Condition is the condition of the view: it selects the rows of evidence with a row here.
	Condition string
	// Version is the number that the view writes into the column form. A release that changes the
	// query raises it: rows with another number were made by an earlier query, and Repair makes
	// them again. 0 means that the table has no such column.
	Version uint8
	// Expires says that rows of the table are deleted together with the texts that they are made
	// from. evidence_chain holds no names except those that evidence keeps.
	Expires bool
}

// DerivedTables lists the tables that are filled from evidence. Their views repeat the
// conditions; TestViewsAndConditionsAgree compares them.
var DerivedTables = []DerivedTable{
	{Name: "evidence_chain", View: "evidence_chain_mv", Condition: "session != '' OR session_index IS NOT NULL"},
	{Name: recordFields, View: recordFields + "_mv", Condition: `kind IN ('decision', 'call', 'finding', 'approval', 'unparseable') OR redacted
		OR (kind = 'control' AND NOT (endsWith(subject, '.cursor') OR endsWith(subject, '.tick')))`, Version: 1, Expires: true},
}

// recordFields is the table of the records' typed members.
const recordFields = "record_fields"

// RecordFields is the derived table whose rows are deleted together with the texts that they are
// made from. Control records, which never expire, have rows in it, too.
var RecordFields = DerivedTables[slices.IndexFunc(DerivedTables, func(t DerivedTable) bool { return t.Name == recordFields })]

// recordViews lists the views of RecordFields that auditors read.
var recordViews = []string{"decisions", "calls", "findings", "approvals", "redactions", "changes"}

// auditedNames lists the tables and views that auditors read.
var auditedNames = append([]string{"evidence_chain"}, recordViews...)

// TableNames lists the derived tables.
func TableNames() (names []string) {
	for _, table := range DerivedTables {
		names = append(names, table.Name)
	}
	return names
}
