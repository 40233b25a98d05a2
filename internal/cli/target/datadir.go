package target

import (
	"os"
	"path/filepath"
)

// DefaultDataDir is the default data directory of `countersign up`; "" without a home directory.
func DefaultDataDir() string {
	if base := os.Getenv("XDG_DATA_HOME"); base != "" {
		return filepath.Join(base, "countersign")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".local", "share", "countersign")
}
