package correlation

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// MaxRecording is how many events a recording may have.
const MaxRecording = 1 << 20

// ErrRecording says that a file is no recording: a JSON array of events, or
// JSON Lines with one event a line.
var ErrRecording = errors.New("not a recording: want a JSON array of events or one event a line")

// ParseRecording splits a recording into its events, each as its bytes. What a
// line of JSON Lines holds is not looked at: a line that is no JSON is an event
// that cannot be read, and a finding. The array form must be a JSON array.
// Empty lines do not count. The results are parts of b.
func ParseRecording(b []byte) ([]json.RawMessage, error) {
	trimmed := bytes.TrimLeft(bytes.TrimPrefix(b, []byte("\xef\xbb\xbf")), " \t\r\n")
	var list []json.RawMessage
	var err error
	switch {
	case len(trimmed) > 0 && trimmed[0] == '[':
		list, err = splitValues(trimmed, true)
	case isOneEventPerLine(trimmed):
		list = splitLines(trimmed)
	default:
		if list, err = splitValues(trimmed, false); err != nil {
			list, err = splitLines(trimmed), nil
		}
	}
	if err == nil && len(list) > MaxRecording {
		err = fmt.Errorf("%w: more than %d events", ErrRecording, MaxRecording)
	}
	return list, err
}

// isOneEventPerLine reports whether every line starts like an event; what does not may
// be events over several lines.
func isOneEventPerLine(b []byte) bool {
	for line := range bytes.Lines(b) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '{' {
			return false
		}
	}
	return true
}

func splitLines(b []byte) []json.RawMessage {
	var list []json.RawMessage
	for line := range bytes.Lines(b) {
		if line = bytes.TrimSpace(line); len(line) > 0 {
			list = append(list, json.RawMessage(line))
		}
	}
	return list
}

// splitValues reads the elements of an array, or a sequence of values. Duplicate
// keys are left for the one who reads the event.
func splitValues(b []byte, array bool) ([]json.RawMessage, error) {
	dec := jsontext.NewDecoder(bytes.NewReader(b), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if array {
		if _, err := dec.ReadToken(); err != nil {
			return nil, ErrRecording
		}
	}
	var list []json.RawMessage
	for !array || dec.PeekKind() != ']' {
		v, err := dec.ReadValue()
		if errors.Is(err, io.EOF) && !array {
			return list, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%w: broken after %d events, near byte %d", ErrRecording, len(list), dec.InputOffset())
		}
		list = append(list, json.RawMessage(bytes.Clone(v)))
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, ErrRecording
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: something follows the array", ErrRecording)
	}
	return list, nil
}
