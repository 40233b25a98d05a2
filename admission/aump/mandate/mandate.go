// Package mandate holds AUMP mandates as they are in force, and what
// Countersign's own records say about them: revocations, money spent,
// approvals. All of that is input of a decision; nothing here has a clock, a
// store or a goroutine of its own.
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

// ErrNoID says that a document has no mandate id to keep it under.
var ErrNoID = errors.New("mandate: the document has no id of the form aump_mnd_…")

var idForm = regexp.MustCompile(`^aump_mnd_[A-Za-z0-9_-]+$`)

// maxID bounds ids, in bytes: they become keys of stores.
const maxID = 512

// ValidID reports whether a text can be the id of a mandate.
func ValidID(id string) bool { return len(id) <= maxID && idForm.MatchString(id) }

// Mandate is a mandate ready to be decided under: read, hashed, its signatures
// looked at. It is immutable.
type Mandate struct {
	*aump.Mandate // never nil

	// Hash is the one that a reference must name, in lower case.
	Hash string

	// Violations is why the document is no valid mandate; every request under it is
	// then denied. Nil for a valid one.
	Violations []schemas.Violation

	// Signatures is what the signatures are worth, and "" where there are some and
	// no keys were known to check them with.
	Signatures aump.SignatureState
}

// Compile reads a mandate once, so that deciding under it costs little. keys are
// those that may sign mandates; a mandate must be compiled anew when they change.
//
// The error is a *strictjson.Error or ErrNoID: there is then nothing to keep. A
// document that is wrong in any other way is kept with its Problems, so that
// requests under it are refused for what it is and not for not being there.
func Compile(raw []byte, keys aump.KeySet) (*Mandate, error) {
	doc, err := aump.DecodeMandate(raw, strictjson.DefaultLimits)
	if doc == nil {
		return nil, err
	}
	if !ValidID(doc.ID) {
		return nil, ErrNoID
	}
	m := &Mandate{Mandate: doc, Violations: ValidateDocument(doc, err)}
	if m.Hash, err = aump.MandateHash(doc.Tree); err != nil {
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

// ValidateDocument says why a document that DecodeMandate read, with the error it gave,
// is no valid mandate of a version that this program knows.
func ValidateDocument(doc *aump.Mandate, err error) []schemas.Violation {
	vs := schemas.Default().Validate(Schema, doc.Tree)
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
	// The format of the schema lets leap seconds pass, which no clock here has.
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
