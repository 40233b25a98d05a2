package otlp

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// Context is a place in a trace.
type Context struct {
	Trace [16]byte
	Span  [8]byte
	Flags byte
}

// Bytes of a W3C traceparent: version-trace-span-flags.
const (
	traceparentLen = 55
	traceAt        = 3
	spanAt         = 36
	flagsAt        = 53
)

// ParseTraceparent reads a W3C traceparent. One of a later version is read as
// far as version 00 goes, as the specification wants.
func ParseTraceparent(s string) (x Context, ok bool) {
	if len(s) < traceparentLen || s[2] != '-' || s[traceAt+32] != '-' || s[spanAt+16] != '-' || s[:2] == "ff" {
		return Context{}, false
	}
	if len(s) > traceparentLen && (s[:2] == "00" || s[traceparentLen] != '-') {
		return Context{}, false
	}
	var version, flags [1]byte
	for _, part := range []struct {
		into []byte
		text string
	}{{version[:], s[:2]}, {x.Trace[:], s[traceAt : traceAt+32]}, {x.Span[:], s[spanAt : spanAt+16]}, {flags[:], s[flagsAt:traceparentLen]}} {
		if !lowerHex(part.text) {
			return Context{}, false
		}
		if _, err := hex.Decode(part.into, []byte(part.text)); err != nil {
			return Context{}, false
		}
	}
	x.Flags = flags[0]
	if x.Trace == [16]byte{} || x.Span == [8]byte{} {
		return Context{}, false
	}
	return x, true
}

func lowerHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// callKey is what decisions, calls and findings all say of a call. own names
// those that have no tool_call_id.
type callKey struct{ tenant, source, session, toolCallID, internalID string }

func (c callKey) keyParts() []string {
	if c.toolCallID != "" {
		return []string{"call", c.tenant, c.source, c.session, c.toolCallID}
	}
	return []string{"own", c.tenant, c.internalID}
}

func (c callKey) joinedKey() string {
	sum := hashParts("key", c.keyParts()...)
	return string(sum[:])
}

// derivedContext is the context of a call that came without a trace: a trace of its
// own, in which its decisions, its spans and its findings are.
func derivedContext(c callKey) (x Context) {
	sum := hashParts("trace", c.keyParts()...)
	copy(x.Trace[:], sum[:])
	x.Trace[15] |= 1 // never zero
	x.Flags = 1      // recorded: this is all there is of it
	return x
}

// spanOf is the span of a call.
func spanOf(callID string) (id [8]byte) {
	sum := hashParts("span", callID)
	copy(id[:], sum[:])
	id[7] |= 1
	return id
}

// hashParts is the SHA-256 of texts that cannot be shifted into each other.
func hashParts(what string, parts ...string) (sum [sha256.Size]byte) {
	h := sha256.New()
	for _, p := range append([]string{"countersign/otel/v1", what}, parts...) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		h.Write([]byte(p))
	}
	h.Sum(sum[:0])
	return sum
}
