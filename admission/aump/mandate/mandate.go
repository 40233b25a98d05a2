// Package mandate holds AUMP mandates in force, and Countersign's own records about them:
// revocations, money spent, approvals. The AUMP evaluator reads them through Records; the
// admitter stores them. The package has no clock, store or goroutine. Begin reading with
// Mandate, Records and Account.
package mandate

import (
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/events/aump"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/schemas"
)

// Schema is the name of the schema that mandates must satisfy.
const Schema = "aump/mandate"

// ErrNoID reports a document without a mandate id to store it under.
var ErrNoID = errors.New("mandate: the document has no id of the form aump_mnd_…")

var idForm = regexp.MustCompile(`^aump_mnd_[A-Za-z0-9_-]+$`)

// maxID bounds ids, in bytes: they become keys of stores.
const maxID = 512

// ValidID reports whether a text can be the id of a mandate.
func ValidID(id string) bool { return len(id) <= maxID && idForm.MatchString(id) }

// Mandate is a mandate that is read and hashed, with its signatures checked. It is immutable.
type Mandate struct {
	*aump.Mandate // never nil

	// Hash is the hash that a reference must name, in lower case.
	Hash string

	// Violations are the reasons why the document is no valid mandate; every request under it
	// is then denied. Nil for a valid one.
	Violations []schemas.Violation

	// Signatures is the state of the signatures, "" if there are some and no keys to check
	// them.
	Signatures aump.SignatureState
}

// Compile reads a mandate once, so that decisions under it are cheap. keys are those that may
// sign mandates; when they change, a mandate must be compiled anew.
//
// The error is a *strictjson.Error or ErrNoID: the document cannot be kept. A document with any
// other defect is kept with its Violations, so that requests under it are refused for the
// defect and not as unknown.
func Compile(raw []byte, keys aump.KeySet) (*Mandate, error) {
	doc, err := aump.DecodeMandate(raw, strictjson.DefaultLimits)
	if doc == nil {
		return nil, err
	}
	if !ValidID(doc.ID) {
		return nil, ErrNoID
	}
	m := &Mandate{Mandate: doc, Violations: ValidateDocument(doc, err)}
	if m.Hash, err = aump.MandateHash(doc.Tree()); err != nil {
		return nil, err
	}
	switch {
	case len(m.Mandate.Signatures) == 0:
		m.Signatures = aump.SignatureNone
	case len(keys) > 0:
		m.Signatures = keys.Verify(doc)
	}
	return m, nil
}

// ValidateDocument returns the reasons why a document that DecodeMandate read, with the error
// it returned, is no valid mandate of a known version.
func ValidateDocument(doc *aump.Mandate, err error) []schemas.Violation {
	vs := schemas.Default().Validate(Schema, doc.Doc)
	if len(vs) > 0 {
		return vs
	}
	var field *aump.FieldError
	if errors.As(err, &field) {
		vs = append(vs, newViolation(field.Path, "type", "must be "+field.Want))
	}
	if doc.Version != aump.Version {
		vs = append(vs, newViolation("/aump/version", "unknown_version", "must be "+aump.Version+", the only version this program knows"))
	}
	// The schema's format accepts leap seconds, which time.Time cannot hold.
	for path, unreadable := range map[string]bool{"/issued_at": doc.IssuedAt.IsZero(), "/expires_at": doc.ExpiresAt.IsZero()} {
		if unreadable {
			vs = append(vs, newViolation(path, "format", "must be an RFC 3339 time that exists"))
		}
	}
	slices.SortFunc(vs, func(a, b schemas.Violation) int { return strings.Compare(a.Path, b.Path) })
	return vs
}

func newViolation(path, keyword, message string) schemas.Violation {
	return schemas.Violation{Path: path, Keyword: keyword, Message: message, Level: schemas.LevelError}
}
