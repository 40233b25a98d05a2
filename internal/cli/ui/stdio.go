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
