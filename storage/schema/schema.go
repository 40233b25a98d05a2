package schema

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/countersign-dev/countersign/storage/conn"
)

// schemaText is the schema that Migrate makes, one item a line. TestSchemaIsWhatMigrationsMake
// writes it.
//
//go:embed schema.txt
var schemaText string

// Difference is one difference between the database and the schema that Migrate makes.
// Column is empty if it is about the whole table or view.
type Difference struct{ Table, Column, Detail string }

// versionTable is the table in which the migrations record which of them were made. No query
// depends on it. Builds before the first release used other migrations and other names.
const versionTable = "schema_versions"

// codeAccessDenied is ClickHouse's ACCESS_DENIED.
const codeAccessDenied = 497

// schemaPlace is the table or column that a line of the schema describes.
type schemaPlace struct{ table, column string }

// Differences compares the tables, views and columns of the database with those that
// Migrate makes, and the queries of the views, and lists the row policies that hide their rows from this user. It ignores
// everything else in the database. A compromised server can lie about its schema: the result
// shows changes, but proves nothing. policies is false if the user may not read row policies.
func Differences(ctx context.Context, p *conn.Pool) (list []Difference, policies bool, err error) {
	have, err := readSchema(ctx, p)
	if err != nil {
		return nil, false, err
	}
	want := parseSchema(schemaText)
	ours := map[string]bool{}
	for at := range want {
		ours[at.table] = true
	}
	maps.DeleteFunc(have, func(at schemaPlace, _ string) bool { return !ours[at.table] })
	list = diffSchema(want, have)
	changed, err := changedViews(ctx, p, have)
	if err != nil {
		return nil, false, err
	}
	list = append(list, changed...)
	hidden, policies, err := rowPolicies(ctx, p, ours)
	return append(list, hidden...), policies, err
}

func diffSchema(want, have map[schemaPlace]string) (list []Difference) {
	for at, is := range want {
		found, there := have[at]
		_, table := have[schemaPlace{table: at.table}]
		switch {
		case !there && at.column != "" && !table: // reported for the table
		case !there:
			list = append(list, Difference{at.table, at.column, "it is missing"})
		case found != is:
			list = append(list, Difference{at.table, at.column, fmt.Sprintf("it is %q, and should be %q", found, is)})
		}
	}
	for at, is := range have {
		if _, known := want[at]; !known {
			list = append(list, Difference{at.table, at.column, fmt.Sprintf("it is %q, and should not be there", is)})
		}
	}
	slices.SortFunc(list, func(a, b Difference) int {
		return strings.Compare(a.Table+"\t"+a.Column, b.Table+"\t"+b.Column)
	})
	return list
}

// readSchema reads the engine of each table and view, and type, default kind and default
// expression of each column.
func readSchema(ctx context.Context, p *conn.Pool) (map[schemaPlace]string, error) {
	have := map[schemaPlace]string{}
	err := p.EachRow(ctx, `SELECT name, '', engine FROM system.tables WHERE database = currentDatabase() AND name != '`+versionTable+`'
		UNION ALL
		SELECT table, name, trim(BOTH ' ' FROM concat(type, ' ', default_kind, ' ', default_expression)) FROM system.columns
		WHERE database = currentDatabase() AND table != '`+versionTable+`'`,
		func(r driver.Rows) error {
			var at schemaPlace
			var is string
			err := r.Scan(&at.table, &at.column, &is)
			have[at] = strings.Join(strings.Fields(is), " ")
			return err
		})
	return have, err
}

// fromTable matches the table of a view's query.
var fromTable = regexp.MustCompile(`FROM (evidence|record_fields)\b`)

// changedViews lists the views whose query is not that of the migrations, and plain views that do not
// run with the rights of the user who reads them. The server formats both queries, so that its version
// does not matter.
func changedViews(ctx context.Context, p *conn.Pool, have map[schemaPlace]string) (list []Difference, err error) {
	queries, err := viewQueries()
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(queries)) {
		if !strings.HasSuffix(have[schemaPlace{table: name}], "View") {
			continue // reported as missing, or as a table
		}
		want := fromTable.ReplaceAllString(queries[name], "FROM "+p.Database()+".$1")
		var same bool
		err = p.QueryRow(ctx, `SELECT formatQuerySingleLine(as_select) = formatQuerySingleLine({query:String}) AND (engine = 'MaterializedView' OR position(create_table_query, ' SQL SECURITY INVOKER AS SELECT ') > 0)
			FROM system.tables WHERE database = currentDatabase() AND name = {name:String}`, conn.Param("query", want), conn.Param("name", name)).Scan(&same)
		if err != nil {
			return nil, err
		}
		if !same {
			list = append(list, Difference{Table: name, Detail: "the query of the view is another than that of the migrations"})
		}
	}
	return list, nil
}

// rowPolicies lists the row policies that apply to this user.
func rowPolicies(ctx context.Context, p *conn.Pool, ours map[string]bool) (list []Difference, allowed bool, err error) {
	err = p.EachRow(ctx, `SELECT table, short_name FROM system.row_policies
		WHERE database IN ('', currentDatabase()) AND (apply_to_all AND NOT has(apply_to_except, currentUser()) OR has(apply_to_list, currentUser()))
		ORDER BY table, short_name`,
		func(r driver.Rows) error {
			var table, name string
			err := r.Scan(&table, &name)
			if ours[table] || table == "" { // a policy without a table applies to every table
				list = append(list, Difference{Table: table, Detail: fmt.Sprintf("the row policy %.80q hides rows of it", name)})
			}
			return err
		})
	if ex := (*clickhouse.Exception)(nil); errors.As(err, &ex) && ex.Code == codeAccessDenied {
		return nil, false, nil
	}
	return list, err == nil, err
}

// parseSchema reads schemaText: table, column and definition, separated by tabs.
func parseSchema(text string) map[schemaPlace]string {
	want := map[schemaPlace]string{}
	for line := range strings.Lines(text) {
		if part := strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", 3); len(part) == 3 {
			want[schemaPlace{part[0], part[1]}] = part[2]
		}
	}
	return want
}

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
