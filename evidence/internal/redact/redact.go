// Package redact finds secrets in text and in decoded JSON, and takes them out
// of the evidence copy of an event. It is deterministic and linear in its
// input: the same bytes give the same findings on every machine, and no input
// is more than a small factor slower than clean text of the same length.
//
// There are three kinds of findings: a value whose key says that it is a
// credential, a part of a text that has the shape of a secret (table.go), and a
// field that the producer itself declared to be redacted.
package redact

import (
	"slices"
	"strings"
)

// Detectors that are not rows of the tables.
const (
	DeclaredField   = "declared_field"        // metadata.redaction.fields names it
	CredentialField = "credential_field"      // its key says that it is a credential
	Assignment      = "credential_assignment" // password=… in a text
	HighEntropy     = "high_entropy_value"    // key=<random> in a text or a field
	EncodedData     = "encoded_data"          // base64 data with a secret in it
	InvalidUTF8     = "invalid_utf8"          // a header value that no JSON string can hold
	TooMany         = "too_many"              // more findings than are told apart
	Withheld        = "withheld"              // the whole body: redaction itself failed
	ReplyToken      = "aaep_reply_token"      // rpl_… in a text
	PEM             = "private_key"           // -----BEGIN … PRIVATE KEY-----
	URLPassword     = "url_password"          // scheme://user:password@host
	BasicAuth       = "basic_auth"            // Basic <base64 of user:password>
	maxSpans        = 32                      // findings in one text before it is redacted as a whole
	maxFields       = 256                     // declared fields that are looked at
	maxVisits       = 1 << 18                 // steps taken to find declared fields
	minText         = 5                       // no detector finds anything in less
	placeholderHead = "[redacted:"            // see Placeholder
	maxValueWindow  = 4096                    // how far a quoted value may reach
	maxPEMWindow    = 64 << 10                // how far a PEM block may reach
	maxIdent        = 64                      // how much of an identifier is looked at
)

// MaxHits is how many redactions one record may carry; with more, the body is
// withheld as a whole.
const MaxHits = 512

// Placeholder is what stands in the evidence where a detector found something.
func Placeholder(detector string) string { return placeholderHead + detector + "]" }

// IsPlaceholder reports whether s is exactly a placeholder.
func IsPlaceholder(s string) bool {
	name, ok := strings.CutPrefix(s, placeholderHead)
	if !ok || len(name) < 2 || len(name) > 41 || name[len(name)-1] != ']' {
		return false
	}
	for _, c := range []byte(name[:len(name)-1]) {
		if classOf[c]&(lower|digit) == 0 && c != '_' {
			return false
		}
	}
	return true
}

// Span is a part of a text, in bytes, and the detector that found it.
type Span struct {
	Start, End int
	Detector   string
}

// Text redacts one text. The spans are in order, do not overlap, and lie in s;
// out is s with each replaced by its placeholder. Without a finding out is s.
func Text(s string) (out string, spans []Span) {
	spans = Scan(s)
	if len(spans) == 0 {
		return s, nil
	}
	var b strings.Builder
	at := 0
	for _, sp := range spans {
		b.WriteString(s[at:sp.Start])
		b.WriteString(Placeholder(sp.Detector))
		at = sp.End
	}
	b.WriteString(s[at:])
	return b.String(), spans
}

// Detectors lists the name of every detector, for documentation and checks.
func Detectors() []string {
	list := []string{DeclaredField, CredentialField, Assignment, HighEntropy, EncodedData, InvalidUTF8, TooMany, Withheld}
	for _, r := range rules {
		if !slices.Contains(list, r.detector) {
			list = append(list, r.detector)
		}
	}
	return list
}
