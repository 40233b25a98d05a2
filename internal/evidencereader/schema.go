package evidencereader

import (
	"context"
	"fmt"

	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/storage"
)

// SchemaProblems reports the tables, views and columns that are not what the
// migrations make, and row policies that hide rows. policies is false when the user
// may not ask for those.
func (l Reader) SchemaProblems(ctx context.Context) (list []evidence.Finding, policies bool, err error) {
	differing, policies, err := l.DB.SchemaDifferences(ctx)
	if err != nil {
		return nil, false, fmt.Errorf("comparing the schema: %w", err)
	}
	for _, d := range differing {
		list = append(list, evidence.Finding{Code: evidence.CodeSchema, Field: schemaField(d), Detail: d.Detail})
	}
	return list, policies, nil
}

func schemaField(d storage.SchemaDifference) string {
	switch {
	case d.Column != "":
		return "table " + d.Table + ", column " + d.Column
	case d.Table == "":
		return "all tables"
	}
	return "table " + d.Table
}
