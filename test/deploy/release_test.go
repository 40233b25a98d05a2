package deploy_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.yaml.in/yaml/v3"
)

// A release has every program but the one that measures.
func TestReleaseHasEveryProgram(t *testing.T) {
	var release struct {
		Builds []struct{ Main, Binary string }
	}
	ok(t, yaml.Unmarshal([]byte(read(t, ".goreleaser.yaml")), &release))
	var released []string
	for _, b := range release.Builds {
		if b.Main != "./cmd/"+b.Binary {
			t.Errorf("%s is built from %s", b.Binary, b.Main)
		}
		released = append(released, b.Binary)
	}
	var programs []string
	entries, err := os.ReadDir(filepath.Join(root, "cmd"))
	ok(t, err)
	for _, e := range entries {
		if e.Name() != "countersign-bench" {
			programs = append(programs, e.Name())
		}
	}
	slices.Sort(released)
	if !slices.Equal(released, programs) {
		t.Errorf("a release has %v, cmd/ has %v", released, programs)
	}
}
