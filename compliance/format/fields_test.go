package format

import (
	"strings"
	"testing"
)

// The tables of sources name fields that the schemas have.
func TestFieldsAreTheSchemas(t *testing.T) {
	schemas := map[string]string{}
	for _, name := range Names() {
		if len(Fields(name)) == 0 {
			t.Errorf("%s: nothing says where its fields come from", name)
		}
		b, _ := Schema(name)
		schemas[name] = string(b)
	}
	for _, family := range [][]string{{AANADecisionEvents, AANAAuditRecords}, {AIOCRun, AIOCGovernance}, {OCSF}} {
		text := ""
		for _, name := range family {
			text += schemas[name]
		}
		for _, f := range Fields(family[0]) {
			for _, name := range f.Names {
				if last := name[strings.LastIndexByte(name, '.')+1:]; !strings.Contains(text, `"`+last+`"`) {
					t.Errorf("no schema of %v has %s", family, name)
				}
			}
		}
	}
}

// Every verdict, state and severity has a grade of its own, not that of unknown values.
func TestGradesAreComplete(t *testing.T) {
	if n := len(verdictGrades) + len(stateGrades) + len(findingGrades) + 1; len(Grades()) != n {
		t.Errorf("%d grades, the tables have %d", len(Grades()), n)
	}
}
