// Package aioc reads the events of the kind aioc for followers.
package aioc

import (
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aioc"
	"github.com/countersign-dev/countersign/events/subject"
)

// Read returns a trace event of aioc as the admitter wrote it. A publisher may publish anything on the same
// subject, but ingest drops a signature, so that only a service's message has one. A trace event has the
// arguments of its call as a keyed digest only.
func Read(p subject.Parsed, m events.LogMessage) (raw []byte, ok bool) {
	if m.HeaderValue(events.HeaderSignature) == "" {
		return nil, false
	}
	e, err := aioc.DecodePolicyEvaluated(m.Body)
	return m.Body, err == nil && e.Type == p.Type
}
