package schema

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/storage/conn"
)

// Migrations are the files that Migrate runs.
var Migrations = migrations

// SchemaText is the content of schema.txt.
var SchemaText = schemaText

// ReadText reads the schema of a database in the form of schema.txt.
func ReadText(ctx context.Context, pool *conn.Pool) (string, error) {
	have, err := readSchema(ctx, pool)
	return formatSchema(have), err
}

// DiffText lists what differs between two texts of schema.txt.
func DiffText(want, have string) string {
	return fmt.Sprint(diffSchema(parseSchema(want), parseSchema(have)))
}

// formatSchema writes what parseSchema reads.
func formatSchema(have map[schemaPlace]string) string {
	var lines []string
	for at, is := range have {
		lines = append(lines, at.table+"\t"+at.column+"\t"+is+"\n")
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}
