//go:build unix && !linux

package engine

import (
	"fmt"
	"os"
	"syscall"
)

// execWithoutPrivileges replaces this process by another program.
func execWithoutPrivileges(path string, args []string) error {
	err := syscall.Exec(path, append([]string{path}, args...), os.Environ())
	return fmt.Errorf("running %s: %w", path, err)
}
