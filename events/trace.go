package events

import (
	"encoding/hex"
	"strings"
)

// TraceContext is a position in a trace (W3C trace context).
type TraceContext struct {
	Trace [16]byte
	Span  [8]byte
	Flags byte
}

// traceparentLen is the length of a traceparent of version 00: version-trace-span-flags.
const traceparentLen = 55

// ParseTraceparent parses a W3C traceparent. Of a later version it reads the part that version 00
// has, as the specification requires. ok is false for text of another form and for ids that are zero.
func ParseTraceparent(s string) (x TraceContext, ok bool) {
	later := len(s) > traceparentLen
	if len(s) < traceparentLen || later && (s[:2] == "00" || s[traceparentLen] != '-') {
		return TraceContext{}, false
	}
	s = s[:traceparentLen]
	var version, flags [1]byte
	parts := strings.Split(s, "-")
	into := [][]byte{version[:], x.Trace[:], x.Span[:], flags[:]}
	if len(parts) != len(into) || strings.ToLower(s) != s {
		return TraceContext{}, false
	}
	for i, part := range parts {
		if len(part) != 2*len(into[i]) {
			return TraceContext{}, false
		}
		if _, err := hex.Decode(into[i], []byte(part)); err != nil {
			return TraceContext{}, false
		}
	}
	x.Flags = flags[0]
	if version[0] == 0xff || x.Trace == [16]byte{} || x.Span == [8]byte{} {
		return TraceContext{}, false
	}
	return x, true
}

// IsTraceparent reports whether s is a W3C traceparent of version 00.
func IsTraceparent(s string) bool {
	_, ok := ParseTraceparent(s)
	return ok && s[:3] == "00-"
}
