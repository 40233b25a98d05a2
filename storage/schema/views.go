package schema

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/countersign-dev/countersign/storage/conn"
)

// viewStatement matches the statements of the migrations that make views.
var viewStatement = regexp.MustCompile(`(?s)CREATE (?:MATERIALIZED )?VIEW IF NOT EXISTS (\w+) (?:TO \w+|SQL SECURITY INVOKER) AS\n(.*?);\n`)

// viewQueries maps each view to its query in the migrations. The queries on the server are
// not used, because a user that may alter tables may alter those too.
var viewQueries = sync.OnceValues(func() (map[string]string, error) {
	queries := map[string]string{}
	files, err := fs.Glob(migrations, "migrations/*.sql")
	for _, name := range files {
		text, err := migrations.ReadFile(name)
		if err != nil {
			return nil, err
		}
		for _, m := range viewStatement.FindAllSubmatch(text, -1) {
			queries[string(m[1])] = string(m[2])
		}
	}
	return queries, err
})

// definition returns the query that gives the rows of a derived table or a record view, with
// evidence as its only table, and the columns that it fills.
func definition(name string) (query string, columns []string, err error) {
	queries, err := viewQueries()
	if err != nil {
		return "", nil, err
	}
	query = queries[name]
	if i := slices.IndexFunc(DerivedTables, func(t DerivedTable) bool { return t.Name == name }); i >= 0 {
		query = queries[DerivedTables[i].View]
	}
	if columns, err = queryColumns(query); err != nil {
		return "", nil, fmt.Errorf("the query of table %s: %w", name, err)
	}
	return strings.Replace(query, "FROM "+recordFields+"\n", "FROM ("+queries[recordFields+"_mv"]+"\n) AS "+recordFields+"\n", 1), columns, nil
}

// ViewDefinition returns the query that gives the rows of a derived table, and the columns that
// the table has on the server.
func ViewDefinition(ctx context.Context, p *conn.Pool, table DerivedTable) (query string, columns []string, err error) {
	queries, err := viewQueries()
	if err == nil {
		err = p.QueryRow(ctx, `SELECT groupArray(name) FROM (SELECT name FROM system.columns
			WHERE database = currentDatabase() AND table = {table:String} ORDER BY position)`, conn.Param("table", table.Name)).Scan(&columns)
	}
	return queries[table.View], columns, err
}

// columnName matches the name of a column in the outermost SELECT of a view's query.
var columnName = regexp.MustCompile("(?:\\bAS )?`?([\\w.]+)`?$")

// queryColumns lists the columns that a view's query gives.
func queryColumns(query string) (names []string, err error) {
	const begin = "SELECT"
	if !strings.HasPrefix(query, begin) {
		return nil, errors.New("no query that begins with SELECT")
	}
	depth, text, item := 0, strings.TrimPrefix(query, begin), ""
	add := func() error {
		m := columnName.FindStringSubmatch(strings.TrimSpace(item))
		if m == nil {
			return fmt.Errorf("no name in %.80q", item)
		}
		names, item = append(names, m[1]), ""
		return nil
	}
	for i, c := range text {
		switch {
		case c == '(':
			depth++
		case c == ')':
			depth--
		case depth == 0 && c == ',':
			if err := add(); err != nil {
				return nil, err
			}
			continue
		case depth == 0 && strings.HasPrefix(text[i:], "\nFROM"):
			return names, add()
		}
		item += string(c)
	}
	return nil, errors.New("no FROM")
}
