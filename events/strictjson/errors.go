package strictjson

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Code is the reason why a document was refused. Codes are stable: they appear in reason codes,
// findings and evidence.
type Code string

// The codes.
const (
	TooLarge        Code = "too_large"        // the document is larger than it may be
	TooDeep         Code = "too_deep"         // the document is nested deeper than it may be
	NotJSON         Code = "not_json"         // the document is not JSON
	NotObject       Code = "not_object"       // the JSON value is not an object
	InvalidUTF8     Code = "invalid_utf8"     // the bytes are not UTF-8, or an escape is half of a surrogate pair
	DuplicateKey    Code = "duplicate_key"    // an object has a key twice
	CaseCollision   Code = "case_collision"   // two keys of an object differ in case only
	TrailingData    Code = "trailing_data"    // something follows the JSON value
	UnsafeInteger   Code = "unsafe_integer"   // an integer that doubles do not hold exactly
	ImpreciseNumber Code = "imprecise_number" // a number that doubles do not hold, or round

	// Of Unmarshal only.
	WrongType  Code = "wrong_type"  // a member has another type than the record
	UnknownKey Code = "unknown_key" // a member that the record does not have
)

// Error reports why a document was refused and where. It never quotes a value.
type Error struct {
	Code   Code
	Path   string // JSON pointer (RFC 6901), "" for the whole document
	Offset int64  // byte offset at or before the defect
	Detail string
}

func (e *Error) Error() string {
	at := e.Path
	if at == "" {
		at = "the document"
	}
	return fmt.Sprintf("%s at %s (byte %d): %s", e.Code, at, e.Offset, e.Detail)
}

// Below returns the error with a key or an index before its path, for a reader that has
// descended to the value at fault.
func (e *Error) Below(token string) *Error {
	below := *e
	below.Path = "/" + EscapePointer(token) + e.Path
	return &below
}

// ownError converts an error of the JSON package, which may quote the input, to an *Error,
// which does not. ptr and offset are for errors without a place.
func ownError(err error, ptr jsontext.Pointer, offset int64) error {
	var own *Error
	if errors.As(err, &own) {
		return own
	}
	e := &Error{Code: NotJSON, Path: string(ptr), Offset: offset, Detail: "not valid JSON"}
	var syn *jsontext.SyntacticError
	if errors.As(err, &syn) {
		e.Path, e.Offset = string(syn.JSONPointer), syn.ByteOffset
		switch {
		case errors.Is(err, jsontext.ErrDuplicateName):
			e.Code, e.Detail = DuplicateKey, "the object has this key twice"
		case syn.Err != nil && strings.Contains(syn.Err.Error(), "surrogate"):
			e.Code, e.Detail = InvalidUTF8, "a \\u escape is half of a surrogate pair"
		}
	}
	var sem *json.SemanticError
	if errors.As(err, &sem) {
		e.Code, e.Path, e.Offset = WrongType, string(sem.JSONPointer), sem.ByteOffset
		e.Detail = "the value does not fit the record"
		if sem.GoType != nil {
			e.Detail = "the value is no " + sem.GoType.String()
		}
		if errors.Is(err, json.ErrUnknownName) {
			e.Code, e.Detail = UnknownKey, "the record has no such key"
		}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		e.Detail = "the document ends too early"
	}
	return e
}
