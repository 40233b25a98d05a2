package main

import (
	"fmt"
	"io"
	"os"
)

// maxInput bounds what is read from a file or from standard input.
const maxInput = 256 << 20

// maxKeptFile bounds a file that somebody kept of the evidence: a checkpoint, a note.
const maxKeptFile = 64 << 10

// readInput reads a file, or standard input for "-".
func readInput(io_ stdio, name string) ([]byte, error) {
	r := io_.in
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, usageError{Err: fmt.Errorf("reading the input: %w", err)}
		}
		defer func() { _ = f.Close() }()
		r = f
	}
	b, err := io.ReadAll(io.LimitReader(r, maxInput+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	if len(b) > maxInput {
		return nil, usageError{Err: fmt.Errorf("%s is larger than %d MiB", name, maxInput>>20)}
	}
	return b, nil
}

// readSmall reads a file that a flag names, none larger than it may be.
func readSmall(flag, path string, most int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, usageError{Err: fmt.Errorf("%s: %w", flag, err)}
	}
	if info.Size() > most {
		return nil, usageError{Err: fmt.Errorf("%s: %s has %d bytes, at most %d are read", flag, path, info.Size(), most)}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, usageError{Err: fmt.Errorf("%s: %w", flag, err)}
	}
	return b, nil
}
