// Package ui is the user interface that all commands share: the command line (Program) and exit
// codes, reading input, and output for display (Printer) and as JSON. It does not connect to a
// system; that is package system.
package ui

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/mattn/go-isatty"
)

// Stdio holds the standard streams of a command.
type Stdio struct {
	In       io.Reader
	Out, Err io.Writer
}

// WriteJSON writes one value as a line.
func WriteJSON(io Stdio, v any) error {
	enc := json.NewEncoder(io.Out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// WriteJSONLines writes a list, one value per line.
func WriteJSONLines[T any](w io.Writer, list []T) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for _, r := range list {
		if err := enc.Encode(r); err != nil {
			return err
		}
	}
	return nil
}

// Confirmed asks on a terminal. Elsewhere the command itself is the confirmation.
func Confirmed(io Stdio, question string) bool {
	in, isFile := io.In.(*os.File)
	if !isFile || !isatty.IsTerminal(in.Fd()) {
		return true
	}
	fmt.Fprintf(io.Err, "%s [y/N] ", question)
	line, err := bufio.NewReader(in).ReadString('\n')
	answer := strings.ToLower(strings.TrimSpace(line))
	return err == nil && (answer == "y" || answer == "yes")
}

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
