package main

import (
	"encoding/json"
	"io"
)

// stdio is where a command reads and writes.
type stdio struct {
	in       io.Reader
	out, err io.Writer
}

// compactJSON writes one value a line.
func compactJSON(io stdio, v any) error {
	enc := json.NewEncoder(io.out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

func writeLines[T any](w io.Writer, list []T) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for _, r := range list {
		if err := enc.Encode(r); err != nil {
			return err
		}
	}
	return nil
}
