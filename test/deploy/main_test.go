// Package deploy_test checks the files under deploy and docs against the code that they configure
// and describe, so that neither can drift from it.
package deploy_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/testkit"
	"github.com/countersign-dev/countersign/storage/engine"
)

func TestMain(m *testing.M) {
	engine.RunChildIfAsked() // the ClickHouse test starts the engine from this program
	os.Exit(m.Run())
}

// patience bounds every wait. A passing test never reaches it, even on a busy machine.
const patience = 3 * time.Minute

// root is the path of the repository from this package's folder.
const root = "../.."

func path(parts ...string) string { return filepath.Join(append([]string{root}, parts...)...) }

func read(t testing.TB, parts ...string) string {
	t.Helper()
	b, err := os.ReadFile(path(parts...))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var ok = testkit.OK

// files lists the files of a folder that end in suffix, as paths from the root.
func files(t testing.TB, dir, suffix string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(path(dir))
	ok(t, err)
	for _, e := range entries {
		if !e.IsDir() && strings.HasSuffix(e.Name(), suffix) {
			list = append(list, filepath.Join(dir, e.Name()))
		}
	}
	if len(list) == 0 {
		t.Fatalf("no *%s in %s", suffix, dir)
	}
	return list
}
