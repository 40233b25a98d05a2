// Package ui is the user interface that all commands share: the command line (Program) and exit
// codes, reading input, and output for display (Printer) and as JSON. It does not connect to a
// system; that is package system.
package ui

import (
	"encoding/json"
	"io"
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
