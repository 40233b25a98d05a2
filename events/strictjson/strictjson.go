// Package strictjson decodes JSON from untrusted producers so that two honest
// readers can never see two different documents in the same bytes, and gives
// the RFC 8785 canonical form.
//
// What encoding/json lets pass is refused here, each with its own code and the
// JSON pointer of the place: duplicate keys, keys that differ only in case,
// invalid UTF-8 (lone surrogates included), trailing data, integers beyond
// 2^53, numbers that a float64 cannot hold faithfully, documents that are too
// large or nested too deeply.
package strictjson

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	jsonv1 "encoding/json"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Limits bound what is decoded at all.
type Limits struct {
	MaxBytes int // of the raw document
	MaxDepth int // of nested objects and arrays; the outermost counts as 1
}

// DefaultLimits are what the services use for events and requests: 1 MiB and 64
// levels.
var DefaultLimits = Limits{MaxBytes: 1 << 20, MaxDepth: 64}

// Parse decodes one JSON document into map[string]any, []any, string,
// encoding/json.Number, bool and nil. The error is always an *Error.
func Parse(raw []byte, lim Limits) (any, error) {
	if lim.MaxBytes > 0 && len(raw) > lim.MaxBytes {
		return nil, &Error{Code: TooLarge, Offset: int64(lim.MaxBytes),
			Detail: fmt.Sprintf("%d bytes, at most %d are read", len(raw), lim.MaxBytes)}
	}
	if i := invalidUTF8(raw); i >= 0 {
		return nil, &Error{Code: InvalidUTF8, Offset: int64(i), Detail: "the bytes are not UTF-8"}
	}
	// Out of a bytes.Buffer the decoder reads without copying; it does not write
	// into it.
	p := parser{dec: jsontext.NewDecoder(bytes.NewBuffer(raw)), lim: lim}
	v, err := p.parseValue()
	if err != nil {
		return nil, p.wrapError(err)
	}
	if _, err := p.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, &Error{Code: TrailingData, Offset: p.dec.InputOffset(), Detail: "something follows the JSON value"}
	}
	return v, nil
}

// ParseObject is Parse for documents that must be a JSON object.
func ParseObject(raw []byte, lim Limits) (map[string]any, error) {
	v, err := Parse(raw, lim)
	if err != nil {
		return nil, err
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, &Error{Code: NotObject, Detail: "the JSON value is not an object"}
	}
	return m, nil
}

// Option changes how Unmarshal treats a document.
type Option = json.Options

// RejectUnknown makes Unmarshal refuse members that the Go type does not have.
var RejectUnknown Option = json.RejectUnknownMembers(true)

// Unmarshal fills a Go value from a document, matching names to the letter.
// Call it only on bytes that Parse accepted. The error is always an *Error.
func Unmarshal(raw []byte, into any, opts ...Option) error {
	if err := json.Unmarshal(raw, into, opts...); err != nil {
		return ownError(err, "", 0)
	}
	return nil
}

// CanonicalBytes gives the RFC 8785 form of a JSON text. It refuses what RFC
// 8785 cannot express faithfully (duplicate keys, invalid UTF-8); run Parse
// first on bytes from outside.
func CanonicalBytes(raw []byte) ([]byte, error) {
	v := jsontext.Value(bytes.Clone(raw))
	if err := v.Canonicalize(); err != nil {
		return nil, fmt.Errorf("canonical form: %w", ownError(err, "", 0))
	}
	return v, nil
}

// Canonical gives the RFC 8785 form of a tree that Parse made, or of any value
// that marshals to JSON.
func Canonical(v any) ([]byte, error) {
	if b, ok := appendTree(make([]byte, 0, 256), v); ok {
		return b, nil
	}
	return canonicalAny(v)
}

func canonicalAny(v any) ([]byte, error) {
	b, err := jsonv1.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("canonical form: %w", err)
	}
	return CanonicalBytes(b)
}

type parser struct {
	dec *jsontext.Decoder
	lim Limits
}

func (p *parser) fail(code Code, detail string) error {
	return &Error{Code: code, Path: string(p.dec.StackPointer()), Offset: p.dec.InputOffset(), Detail: detail}
}

// wrapError turns the decoder's errors into ours.
func (p *parser) wrapError(err error) error {
	return ownError(err, p.dec.StackPointer(), p.dec.InputOffset())
}

func (p *parser) parseValue() (any, error) {
	tok, err := p.dec.ReadToken()
	if err != nil {
		return nil, err
	}
	switch tok.Kind() {
	case '{', '[':
		if p.lim.MaxDepth > 0 && p.dec.StackDepth() > p.lim.MaxDepth {
			return nil, p.fail(TooDeep, fmt.Sprintf("nested deeper than %d levels", p.lim.MaxDepth))
		}
		if tok.Kind() == '{' {
			return p.parseObject()
		}
		return p.parseArray()
	case '"':
		return tok.String(), nil
	case '0':
		return p.parseNumber(tok.String())
	case 't', 'f':
		return tok.Bool(), nil
	default:
		return nil, nil
	}
}

func (p *parser) parseObject() (any, error) {
	m := map[string]any{}
	var folded map[string]struct{} // nil while every key is its own folded form
	for p.dec.PeekKind() != '}' {
		tok, err := p.dec.ReadToken()
		if err != nil {
			return nil, err
		}
		key := tok.String()
		f := foldCase(key)
		if folded == nil && f != key {
			folded = make(map[string]struct{}, len(m)+1)
			for k := range m {
				folded[k] = struct{}{}
			}
		}
		if folded != nil {
			if _, there := folded[f]; there {
				return nil, p.fail(CaseCollision, "the object has this key twice, in different case")
			}
			folded[f] = struct{}{}
		}
		if m[key], err = p.parseValue(); err != nil {
			return nil, err
		}
	}
	_, err := p.dec.ReadToken()
	return m, err
}

func (p *parser) parseArray() (any, error) {
	list := []any{}
	for p.dec.PeekKind() != ']' {
		v, err := p.parseValue()
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	_, err := p.dec.ReadToken()
	return list, err
}

func (p *parser) parseNumber(lit string) (any, error) {
	if code, detail := checkNumber(lit); code != "" {
		return nil, p.fail(code, detail)
	}
	return jsonv1.Number(lit), nil
}

// foldCase maps a key to what every key that differs from it only in case maps to.
func foldCase(s string) string {
	ascii := true
	for i := 0; i < len(s); i++ {
		if s[i] >= utf8.RuneSelf {
			ascii = false
			break
		}
	}
	if ascii {
		// U+017F and U+212A fold to the ASCII letters s and k, so the other
		// branch must end in lower case too.
		return strings.ToLower(s)
	}
	return strings.Map(func(r rune) rune {
		least := r
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			least = min(least, f)
		}
		return unicode.ToLower(least)
	}, s)
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
