package build

import (
	"strings"

	"github.com/countersign-dev/countersign/evidence/internal/protocol"
)

// structuralHeaders are the headers, in lower case, that keep their values under every
// class: those of CloudEvents, of tracing and of Countersign. The rows of protocols add theirs.
var structuralHeaders = setOf("content-type nats-msg-id ce-id ce-source ce-type ce-time ce-specversion ce-datacontenttype traceparent ce-traceparent " +
	"countersign-session countersign-tool-call-id countersign-agent countersign-workflow-id countersign-decision-id countersign-decision-seq")

func isStructuralHeader(name string) bool {
	return structuralHeaders[name] || protocol.KeepsHeader(name)
}

func setOf(names string) map[string]bool {
	out := map[string]bool{}
	for name := range strings.FieldsSeq(names) {
		out[name] = true
	}
	return out
}
