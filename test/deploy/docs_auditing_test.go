package deploy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/storage/engine"
	"github.com/countersign-dev/countersign/storage/questions"
)

// TestQuestionsInDocs: the page has every question under its number, with its
// statement to the letter and a command that asks it.
func TestQuestionsInDocs(t *testing.T) {
	const page = "docs/auditing.md"
	text := read(t, page)
	statements, commands := map[string]bool{}, ""
	for _, b := range blocks(t, page) {
		switch b.info {
		case "sql":
			statements[strings.TrimSpace(b.text)] = true
		case "sh":
			commands += b.text
		}
	}
	questions := questions.All()
	for i, q := range questions {
		if !strings.Contains(text, fmt.Sprintf("\n### %d. %s\n", i+1, q.Asks)) {
			t.Errorf("%s has no heading for question %d: %s", page, i+1, q.Asks)
		}
		if !statements[q.SQL] {
			t.Errorf("%s has another statement for question %s, or none", page, q.Name)
		}
		if !strings.Contains(commands, "countersign audit ask "+q.Name+" ") {
			t.Errorf("%s has no command for question %s", page, q.Name)
		}
	}
	if len(statements) != len(questions) {
		t.Errorf("%s has %d statements for %d questions", page, len(statements), len(questions))
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
	for _, name := range engine.AuditorTables() {
		if !named[name] {
			t.Errorf("%s does not name %s", page, name)
		}
		delete(named, name)
	}
	for name := range named {
		t.Errorf("%s names %s, which no auditor can read", page, name)
	}
}
