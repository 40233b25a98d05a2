package main

import (
	"fmt"
	"io"
	"os"
)

// maxInput bounds what is read from a file or from standard input.
const maxInput = 256 << 20

// readInput reads a file, or standard input for "-".
func readInput(io_ stdio, name string) ([]byte, error) {
	r := io_.in
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, usageError{fmt.Errorf("reading the input: %w", err)}
		}
		defer func() { _ = f.Close() }()
		r = f
	}
	b, err := io.ReadAll(io.LimitReader(r, maxInput+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	if len(b) > maxInput {
		return nil, usageError{fmt.Errorf("%s is larger than %d MiB", name, maxInput>>20)}
	}
	return b, nil
}
