package deploy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/storage/engine"
	"github.com/countersign-dev/countersign/storage/questions"
)

// TestQuestionsInDocs: the page has a command for every question, in their order and with its text.
func TestQuestionsInDocs(t *testing.T) {
	const page = "docs/auditing.md"
	var asked []string
	for _, b := range blocks(t, page) {
		for line := range strings.Lines(b.text) {
			if command, about, is := strings.Cut(strings.TrimSpace(line), " # "); is && strings.HasPrefix(command, "countersign audit ask ") {
				asked = append(asked, strings.Fields(command)[3]+": "+about)
			}
		}
	}
	var want []string
	for i, q := range questions.All() {
		want = append(want, fmt.Sprintf("%s: %d. %s", q.Name, i+1, q.Asks))
	}
	if !slices.Equal(asked, want) {
		t.Errorf("%s asks\n%s\nand the questions are\n%s", page, strings.Join(asked, "\n"), strings.Join(want, "\n"))
	}
}

// TestTablesInDocs: the page's table of tables is that of a migrated database.
func TestTablesInDocs(t *testing.T) {
	const page = "docs/auditing.md"
	named := map[string]bool{}
	for _, row := range rows(t, page, "| table | one row for | ordered by |") {
		for _, name := range codes(row[0]) {
			named[name] = true
		}
	}
	for _, name := range engine.TenantReaderTables() {
		if !named[name] {
			t.Errorf("%s does not name %s", page, name)
		}
		delete(named, name)
	}
	for name := range named {
		t.Errorf("%s names %s, which no auditor can read", page, name)
	}
}
