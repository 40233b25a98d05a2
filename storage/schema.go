package storage

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// schemaText is what Migrate makes, a line each; TestSchemaIsWhatMigrationsMake
// writes it.
//
//go:embed schema.txt
var schemaText string

// SchemaDifference is one thing in which the database is not what Migrate makes.
// Column is empty where it is about the whole table or view.
type SchemaDifference struct{ Table, Column, Detail string }

// versionTable is where the migrations note which of them were made. It is the
// library's, and no answer rests on it.
const versionTable = "goose_db_version"

// codeAccessDenied is ClickHouse's ACCESS_DENIED.
const codeAccessDenied = 497

// schemaPlace is what a line of the schema is about.
type schemaPlace struct{ table, column string }

// SchemaDifferences compares the tables, views and columns that Migrate makes with
// those of the database, and lists the row policies on them that hide rows from this
// user. What else is in the database does not count. The server that is asked may
// lie: this finds what was changed, and proves nothing. policies is false when the
// user may not ask for row policies.
func (db *DB) SchemaDifferences(ctx context.Context) (list []SchemaDifference, policies bool, err error) {
	have, err := db.readSchema(ctx)
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
	hidden, policies, err := db.rowPolicies(ctx, ours)
	return append(list, hidden...), policies, err
}

func diffSchema(want, have map[schemaPlace]string) (list []SchemaDifference) {
	for at, is := range want {
		found, there := have[at]
		_, table := have[schemaPlace{table: at.table}]
		switch {
		case !there && at.column != "" && !table: // said of the table
		case !there:
			list = append(list, SchemaDifference{at.table, at.column, "it is missing"})
		case found != is:
			list = append(list, SchemaDifference{at.table, at.column, fmt.Sprintf("it is %q, and should be %q", found, is)})
		}
	}
	for at, is := range have {
		if _, known := want[at]; !known {
			list = append(list, SchemaDifference{at.table, at.column, fmt.Sprintf("it is %q, and should not be there", is)})
		}
	}
	slices.SortFunc(list, func(a, b SchemaDifference) int {
		return strings.Compare(a.Table+"\t"+a.Column, b.Table+"\t"+b.Column)
	})
	return list
}

// readSchema reads the engine of each table and view, and type, default kind and default
// expression of each column.
func (db *DB) readSchema(ctx context.Context) (map[schemaPlace]string, error) {
	have := map[schemaPlace]string{}
	err := db.eachRow(ctx, `SELECT name, '', engine FROM system.tables WHERE database = currentDatabase() AND name != '`+versionTable+`'
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

// rowPolicies lists those that apply to this user.
func (db *DB) rowPolicies(ctx context.Context, ours map[string]bool) (list []SchemaDifference, allowed bool, err error) {
	err = db.eachRow(ctx, `SELECT table, short_name FROM system.row_policies
		WHERE database IN ('', currentDatabase()) AND (apply_to_all AND NOT has(apply_to_except, currentUser()) OR has(apply_to_list, currentUser()))
		ORDER BY table, short_name`,
		func(r driver.Rows) error {
			var table, name string
			err := r.Scan(&table, &name)
			if ours[table] || table == "" { // none: of every table
				list = append(list, SchemaDifference{Table: table, Detail: fmt.Sprintf("the row policy %.80q hides rows of it", name)})
			}
			return err
		})
	if ex := (*clickhouse.Exception)(nil); errors.As(err, &ex) && ex.Code == codeAccessDenied {
		return nil, false, nil
	}
	return list, err == nil, err
}

// formatSchema and parseSchema write and read schemaText: table, column and what it
// is, with tabs between them.
func formatSchema(have map[schemaPlace]string) string {
	var lines []string
	for at, is := range have {
		lines = append(lines, at.table+"\t"+at.column+"\t"+is+"\n")
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

func parseSchema(text string) map[schemaPlace]string {
	want := map[schemaPlace]string{}
	for line := range strings.Lines(text) {
		if part := strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", 3); len(part) == 3 {
			want[schemaPlace{part[0], part[1]}] = part[2]
		}
	}
	return want
}
