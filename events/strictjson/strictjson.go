// Package strictjson decodes JSON from untrusted producers so that two conforming readers can
// never see different documents in the same bytes, and writes the RFC 8785 canonical form. The
// services and the client use it for requests, events and records.
//
// There is one parser, Read: it makes the list of a document's values, on which Value is the
// cursor. Parse returns the same as Go values. Begin reading with Read and Canonical.
//
// It refuses what encoding/json accepts, each with its own code and the JSON pointer of the
// place: duplicate keys, keys that differ only in case, invalid UTF-8 (lone surrogates
// included), trailing data, integers beyond 2^53, numbers that a float64 cannot hold
// faithfully, documents that are too large or nested too deeply.
package strictjson

import (
	"bytes"
	"fmt"
	"unicode/utf8"

	jsonv1 "encoding/json"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Limits bound what is decoded.
type Limits struct {
	MaxBytes int // of the raw document
	MaxDepth int // of nested objects and arrays; the outermost counts as 1
}

// DefaultLimits are the services' limits for events and requests: 1 MiB and 64 levels.
var DefaultLimits = Limits{MaxBytes: 1 << 20, MaxDepth: 64}

// Parse decodes one JSON document into map[string]any, []any, string,
// encoding/json.Number, bool and nil. The error is always an *Error.
func Parse(raw []byte, lim Limits) (any, error) {
	v, err := Read(raw, lim)
	return v.Tree(), err
}

// ParseObject is Parse for documents that must be a JSON object.
func ParseObject(raw []byte, lim Limits) (map[string]any, error) {
	v, err := ReadObject(raw, lim)
	return v.ObjectTree(), err
}

// Option changes how Unmarshal treats a document.
type Option = json.Options

// RejectUnknown makes Unmarshal refuse members that the Go type does not have.
var RejectUnknown Option = json.RejectUnknownMembers(true)

// Unmarshal fills a Go value from a document, with exact member names. It refuses less than
// Parse: keys that differ only in case are two members, as message headers are in a record of
// evidence. For documents of other parties, call Parse first. The error is always an *Error.
func Unmarshal(raw []byte, into any, opts ...Option) error {
	if err := json.Unmarshal(raw, into, opts...); err != nil {
		return ownError(err, "", 0)
	}
	return nil
}

// CanonicalBytes returns the RFC 8785 form of a JSON text. It refuses what RFC 8785 cannot
// express faithfully (duplicate keys, invalid UTF-8); run Parse first on bytes from outside.
func CanonicalBytes(raw []byte) ([]byte, error) {
	v := jsontext.Value(bytes.Clone(raw))
	if err := v.Canonicalize(); err != nil {
		return nil, fmt.Errorf("canonical form: %w", ownError(err, "", 0))
	}
	return v, nil
}

// Canonical returns the RFC 8785 form of a tree that Parse made, or of any value that marshals
// to JSON.
func Canonical(v any) ([]byte, error) {
	if isPlainTree(v) {
		return FromTree(v).AppendCanonical(make([]byte, 0, 256)), nil
	}
	b, err := jsonv1.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("canonical form: %w", err)
	}
	return CanonicalBytes(b)
}

func invalidUTF8(b []byte) int {
	if utf8.Valid(b) {
		return -1
	}
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return -1
}
