package ui

import (
	"fmt"
	"io"
	"os"
)

// maxInput bounds input from a file or from standard input.
const maxInput = 256 << 20

// MaxKeptFile bounds a file with a checkpoint or a signed note that an earlier command printed.
const MaxKeptFile = 64 << 10

// ReadInput reads a file, or standard input for "-".
func ReadInput(io_ Stdio, name string) ([]byte, error) {
	r := io_.In
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, UsageError{Err: fmt.Errorf("reading the input: %w", err)}
		}
		defer func() { _ = f.Close() }()
		r = f
	}
	b, err := io.ReadAll(io.LimitReader(r, maxInput+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	if len(b) > maxInput {
		return nil, UsageError{Err: fmt.Errorf("%s is larger than %d MiB", name, maxInput>>20)}
	}
	return b, nil
}

// ReadSmallFile reads a file that a flag names; one larger than most bytes is an error.
func ReadSmallFile(flag, path string, most int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, UsageError{Err: fmt.Errorf("%s: %w", flag, err)}
	}
	if info.Size() > most {
		return nil, UsageError{Err: fmt.Errorf("%s: %s has %d bytes, at most %d are read", flag, path, info.Size(), most)}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, UsageError{Err: fmt.Errorf("%s: %w", flag, err)}
	}
	return b, nil
}
