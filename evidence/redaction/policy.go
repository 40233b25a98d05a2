// Package redaction parses a tenant's redaction policy: how the findings of detectors are treated
// in the evidence copy of an event, and which further fields are redacted (docs/redaction.md).
// The auditor parses policies with Parse; package build applies them through Policy.Config.
//
// A policy can loosen how personal data is treated. It cannot release credentials, what a protocol
// excludes from storage, or what a producer declared: Parse rejects a rule that asks for it by
// detector, and a rule that would reach such a finding by its place does not apply to it.
//
// The package is pure: text in, policy out. The detectors are in evidence/internal/redact. Begin
// with Parse and Policy.Config.
package redaction

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/evidence/internal/redact"
)

// BuiltinID is the id of the policy of tenants without a policy: all findings are masked, and
// nothing else is redacted.
const BuiltinID = "builtin"

// Policy is one compiled policy. It is immutable and may be shared.
type Policy struct {
	name  string
	id    string
	rules []policyRule
}

// policyRule is one rule of a policy. The first rule that matches a finding decides.
type policyRule struct {
	name      string
	id        string // "<policy>/<rule>"
	detectors map[string]bool
	paths     [][]string // segments; "*" matches any one segment
	fields    []string   // the paths as written
	headers   map[string]bool
	protocols map[string]bool
	values    []string // in lower case; * at an end matches any text
	treatment redact.Treatment
}

var builtinPolicy = &Policy{name: BuiltinID, id: BuiltinID}

// Builtin is the policy of tenants without a policy.
func Builtin() *Policy { return builtinPolicy }

// Name is the name that the policy states.
func (p *Policy) Name() string { return p.name }

// ID identifies the text of the policy: "<name>@<16 hexadecimal digits of its SHA-256>", or
// BuiltinID. Records contain it.
func (p *Policy) ID() string { return p.id }

func idOf(name string, text []byte) string {
	sum := sha256.Sum256(text)
	return name + "@" + hex.EncodeToString(sum[:8])
}

// Scope says what is being redacted.
type Scope struct {
	Protocol string
	Header   string // name of a header; "" for the body
	InData   bool   // the event is the member data of a structured CloudEvent
}

// Config returns the redaction of one event or header under the policy. It is for package build.
func (p *Policy) Config(s Scope) redact.Config {
	c := redact.Config{Protocol: s.Protocol, Treat: func(detector, path, value string) redact.Treatment {
		return p.treatmentFor(s, detector, path, value)
	}}
	for i := range p.rules {
		r := &p.rules[i]
		if len(r.detectors) > 0 || r.treatment.Action == redact.Allow || !r.inProtocol(s.Protocol) {
			continue
		}
		if s.Header != "" {
			c.ForcedAll = c.ForcedAll || r.headers[strings.ToLower(s.Header)]
			continue
		}
		for _, f := range r.fields {
			if s.InData {
				f = redact.PathBelow("data", f)
			}
			c.Forced = append(c.Forced, f)
		}
	}
	return c
}

// RemovesFields reports whether the policy redacts fields or headers by their name.
func (p *Policy) RemovesFields() bool {
	return slices.ContainsFunc(p.rules, func(r policyRule) bool { return len(r.detectors) == 0 && r.treatment.Action != redact.Allow })
}

// treatmentFor returns the treatment of the first rule that matches a finding.
func (p *Policy) treatmentFor(s Scope, detector, path, value string) redact.Treatment {
	for i := range p.rules {
		if r := &p.rules[i]; r.matches(s, detector, path, value) {
			t := r.treatment
			t.Rule = r.id
			return t
		}
	}
	return redact.Treatment{Rule: p.id}
}

func (r *policyRule) matches(s Scope, detector, path, value string) bool {
	loosens := r.treatment.Action == redact.Allow || r.treatment.Action == redact.Truncate || r.treatment.KeepLast > 0
	switch {
	case loosens && !redact.Releasable(detector),
		len(r.detectors) > 0 && !r.detectors[detector],
		!r.inProtocol(s.Protocol),
		len(r.values) > 0 && !slices.ContainsFunc(r.values, func(v string) bool { return matchesPattern(v, value) }):
		return false
	case s.Header != "":
		return r.headers[strings.ToLower(s.Header)] || len(r.headers)+len(r.paths) == 0
	case len(r.paths) == 0:
		return len(r.headers) == 0
	}
	at := pointerSegments(path, s.InData)
	return slices.ContainsFunc(r.paths, func(p []string) bool { return isBelow(at, p) })
}

func (r *policyRule) inProtocol(protocol string) bool {
	return len(r.protocols) == 0 || r.protocols[protocol]
}

// pointerSegments splits a JSON pointer. It treats metadata.tool_input_executed as tool_input.
func pointerSegments(pointer string, inData bool) []string {
	if inData {
		pointer = strings.TrimPrefix(pointer, "/data")
	}
	if pointer == "" {
		return nil
	}
	at := redact.PathSegments(pointer)
	if len(at) > 1 && at[0] == "metadata" && at[1] == "tool_input_executed" {
		at = append([]string{"tool_input"}, at[2:]...)
	}
	return at
}

// isBelow reports whether a place matches the pattern or is inside a match.
func isBelow(at, pattern []string) bool {
	if len(at) < len(pattern) {
		return false
	}
	for i, p := range pattern {
		if p != "*" && p != at[i] {
			return false
		}
	}
	return true
}

// matchesPattern compares a value, ignoring case, with a pattern in lower case.
func matchesPattern(pattern, value string) bool {
	value = strings.ToLower(value)
	head, open := strings.CutSuffix(pattern, "*")
	tail, closed := strings.CutPrefix(head, "*")
	switch {
	case open && closed && len(pattern) > 1:
		return strings.Contains(value, tail)
	case open:
		return strings.HasPrefix(value, head)
	case closed:
		return strings.HasSuffix(value, tail)
	}
	return value == pattern
}
