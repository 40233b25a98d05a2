package format

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The tables of sources name fields that the schemas have.
func TestFieldsAreTheSchemas(t *testing.T) {
	for _, name := range Names() {
		if len(Fields(name)) == 0 {
			t.Errorf("%s: nothing says where its fields come from", name)
		}
	}
	for of, family := range map[string]string{AANADecisionEvents: "aana", AIOCRun: "aioc", OCSF: "ocsf"} {
		files, err := filepath.Glob(filepath.Join("schemas", family+"-*.json"))
		if err != nil || len(files) == 0 {
			t.Fatalf("schemas of %s: %v", family, err)
		}
		text := ""
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			text += string(b)
		}
		for _, f := range Fields(of) {
			for _, name := range f.Names {
				if last := name[strings.LastIndexByte(name, '.')+1:]; !strings.Contains(text, `"`+last+`"`) {
					t.Errorf("no schema of %s has %s", family, name)
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
