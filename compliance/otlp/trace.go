package otlp

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/countersign-dev/countersign/events"
)

// callKey identifies a call by values that decisions, calls and findings have. internalID identifies
// calls without a tool_call_id.
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

// derivedContext is the context of a call without a trace: a trace of its own for its decisions, spans
// and findings.
func derivedContext(c callKey) (x events.TraceContext) {
	sum := hashParts("trace", c.keyParts()...)
	copy(x.Trace[:], sum[:])
	x.Trace[15] |= 1 // never zero
	x.Flags = 1      // recorded
	return x
}

// spanOf is the span id of a call.
func spanOf(callID string) (id [8]byte) {
	sum := hashParts("span", callID)
	copy(id[:], sum[:])
	id[7] |= 1
	return id
}

// hashParts is the SHA-256 of length-prefixed texts.
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
