//go:build unix && !linux

package storage

import (
	"fmt"
	"os"
	"syscall"
)

// execWithoutPrivileges becomes another program.
func execWithoutPrivileges(path string, args []string) error {
	err := syscall.Exec(path, append([]string{path}, args...), os.Environ())
	return fmt.Errorf("running %s: %w", path, err)
}
