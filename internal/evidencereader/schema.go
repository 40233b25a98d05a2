package evidencereader

import (
	"context"
	"fmt"

	"github.com/countersign-dev/countersign/evidence/verify"
	"github.com/countersign-dev/countersign/storage/schema"
)

// SchemaFindings reports tables, views and columns that differ from the migrations, and row
// policies that hide rows. policies is false if the user may not read the row policies.
func (rd Reader) SchemaFindings(ctx context.Context) (list []verify.Finding, policies bool, err error) {
	differing, policies, err := schema.Differences(ctx, rd.DB.Pool())
	if err != nil {
		return nil, false, fmt.Errorf("comparing the schema: %w", err)
	}
	for _, d := range differing {
		list = append(list, verify.Finding{Code: verify.CodeSchema, Field: schemaField(d), Detail: d.Detail})
	}
	return list, policies, nil
}

func schemaField(d schema.Difference) string {
	switch {
	case d.Column != "":
		return "table " + d.Table + ", column " + d.Column
	case d.Table == "":
		return "all tables"
	}
	return "table " + d.Table
}
