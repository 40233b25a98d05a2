// Package recorded reads the lines of a recording: events, or records as `countersign session
// --json` prints them.
package recorded

import (
	"bytes"
	"encoding/json"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// Line is one line of a recording.
type Line struct {
	// Event is an event, or {"decision": {…}}; nil if the line is neither.
	Event json.RawMessage
	// Publisher is the authenticated sender of the event; "" if the recording does not have it.
	Publisher string
}

// step is a line of `countersign session --json`. Its kind and shard tell it from an event.
type step struct {
	Kind      string          `json:"kind"`
	Shard     string          `json:"shard"`
	Publisher string          `json:"publisher"`
	Protocol  string          `json:"protocol"`
	Body      json.RawMessage `json:"body"`
}

// Kinds of steps that are lines of a recording. A request copy is not one; its decision is.
const (
	stepEvent    = "event"
	stepDecision = "decision"
)

// Read reads a line of a recording.
func Read(protocol string, raw json.RawMessage) Line {
	var s step
	if !bytes.Contains(raw, []byte(`"shard"`)) || strictjson.Unmarshal(raw, &s) != nil || s.Kind == "" || s.Shard == "" {
		return Line{Event: raw}
	}
	switch {
	case len(s.Body) == 0:
	case s.Kind == stepEvent && s.Protocol == protocol:
		return Line{unboxed(s.Body), s.Publisher}
	case s.Kind == stepDecision:
		return Line{Event: append(append([]byte(`{"decision":`), s.Body...), '}')}
	}
	return Line{}
}

// unboxed returns the data of a structured CloudEvent, and any other event unchanged.
func unboxed(body json.RawMessage) json.RawMessage {
	var ce struct {
		Version string          `json:"specversion"`
		Data    json.RawMessage `json:"data"`
	}
	if strictjson.Unmarshal(body, &ce) != nil || ce.Version == "" || len(ce.Data) == 0 {
		return body
	}
	return ce.Data
}
