// Package ui is what all commands share and a user meets: the command line and exit
// codes, reading input, and printing for people and for programs. It knows no running
// system.
package ui

import (
	"encoding/json"
	"io"
)

// Stdio is where a command reads and writes.
type Stdio struct {
	In       io.Reader
	Out, Err io.Writer
}

// WriteJSON writes one value a line.
func WriteJSON(io Stdio, v any) error {
	enc := json.NewEncoder(io.Out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// WriteJSONLines writes a list, one value a line.
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
