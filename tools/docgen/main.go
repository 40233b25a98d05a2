// Docgen writes the reference pages of docs/reference. Run it by make docs.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/countersign-dev/countersign/tools/docgen/reference"
)

func main() {
	if err := write("."); err != nil {
		fmt.Fprintln(os.Stderr, "docgen:", err)
		os.Exit(1)
	}
}

// write makes all pages of the repository at root.
func write(root string) error {
	pages, err := reference.Pages(root)
	if err != nil {
		return err
	}
	dir := filepath.Join(root, reference.Dir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, text := range pages {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
