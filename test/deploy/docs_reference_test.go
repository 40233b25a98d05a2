package deploy_test

import (
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/countersign-dev/countersign/tools/docgen/reference"
)

// TestReferencePages: docs/reference holds what the code gives, and nothing else.
func TestReferencePages(t *testing.T) {
	pages, err := reference.Pages(root)
	ok(t, err)
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		have, err := os.ReadFile(path(reference.Dir, name))
		if err != nil || string(have) != pages[name] {
			t.Errorf("%s/%s is not what the code gives (%v): run make docs", reference.Dir, name, err)
		}
	}
	for _, file := range files(t, reference.Dir, "") {
		if _, made := pages[file[len(reference.Dir)+1:]]; !made {
			t.Errorf("%s is not generated: remove it, or have tools/docgen make it", file)
		}
	}
}
