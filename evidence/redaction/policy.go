// Package redaction reads a tenant's redaction policy: what becomes of what the
// detectors find in the evidence copy of an event, and which fields are taken
// out besides (docs/redaction.md).
//
// A policy can loosen what is done with personal data. It cannot release
// credentials, what a protocol says must never be stored, or what a producer
// declared: rules that ask for it do not compile, and rules that would reach
// such a finding by its place do not apply to it.
//
// The package is pure: text in, policy out.
package redaction

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/evidence/internal/redact"
)

// BuiltinID names the policy of tenants that have none of their own: all
// findings are masked, nothing else is taken out.
const BuiltinID = "builtin"

// Policy is one compiled policy. It does not change and may be shared.
type Policy struct {
	name  string
	id    string
	rules []policyRule
}

// policyRule is one row of a policy; the first that matches a finding decides.
type policyRule struct {
	name      string
	id        string // "<policy>/<rule>"
	detectors map[string]bool
	paths     [][]string // segments; "*" is any one of them
	fields    []string   // paths as they were written
	headers   map[string]bool
	protocols map[string]bool
	values    []string // lower case; * at an end is any text
	treatment redact.Treatment
}

var builtinPolicy = &Policy{name: BuiltinID, id: BuiltinID}

// Builtin is the policy of tenants that have none of their own.
func Builtin() *Policy { return builtinPolicy }

// Name is what the policy calls itself.
func (p *Policy) Name() string { return p.name }

// ID names this very text: "<name>@<16 hexadecimal digits of its SHA-256>", or
// BuiltinID. Records carry it.
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

// Config is the engine's view of the policy for one event or header. It is for
// package evidence.
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

// RemovesFields reports whether the policy takes out fields or headers for their name.
func (p *Policy) RemovesFields() bool {
	return slices.ContainsFunc(p.rules, func(r policyRule) bool { return len(r.detectors) == 0 && r.treatment.Action != redact.Allow })
}

// treatmentFor finds the first rule that speaks of a finding.
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

// pointerSegments splits a JSON pointer; what was executed counts as the tool's input.
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

// isBelow reports whether a place is what the pattern names, or inside of it.
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

// matchesPattern compares a value with a pattern in lower case.
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
