package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/countersign-dev/countersign/internal/atomicfile"
)

// versionFile names, in a data directory, the engine that ran on it last: version and kind.
const versionFile = "engine.version"

// release is the part of a version that says what an engine can read: year and number.
type release [2]int

var releasePattern = regexp.MustCompile(`(\d+)\.(\d+)`)

// parseRelease finds the first version in a text.
func parseRelease(text string) (r release, found bool) {
	m := releasePattern.FindStringSubmatch(text)
	if m == nil {
		return r, false
	}
	r[0], _ = strconv.Atoi(m[1])
	r[1], _ = strconv.Atoi(m[2])
	return r, true
}

func (r release) String() string { return fmt.Sprintf("%d.%d", r[0], r[1]) }

func (r release) olderThan(other release) bool {
	return r[0] < other[0] || r[0] == other[0] && r[1] < other[1]
}

// writtenBy is the release of the engine that ran on a data directory last; zero for a new one and
// for one that does not say.
func writtenBy(dir string) (r release, err error) {
	path := filepath.Join(dir, versionFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, fmt.Errorf("reading which engine wrote the data: %w", err)
	}
	r, found := parseRelease(string(b))
	if !found {
		return r, fmt.Errorf("%s does not name the version of an engine", path)
	}
	return r, nil
}

// markVersion keeps in the data directory which engine runs on it.
func (e *Engine) markVersion() error {
	if err := atomicfile.Write(filepath.Join(e.dataDir, versionFile), fmt.Appendf(nil, "%s %s\n", e.version, e.kind), 0o600); err != nil {
		return fmt.Errorf("keeping which engine wrote the data: %w", err)
	}
	return nil
}
