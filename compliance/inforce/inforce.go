// Package inforce makes and checks the member of a bundle that lists the mandates and policy sets that
// decided, and the sets that were in force meanwhile: each by its digest, with its text if the
// bundle's reader may see it. Package bundle calls Collect when it writes a bundle, and Refs.Check when it verifies one.
//
// The file holds a text only if the text has the digest that decisions name. Secrets in a text are
// redacted by the rules for records, and documents about other tenants are withheld. If a text is
// missing, the file says why. The package does not read stores: a Source supplies the texts. Begin
// with File and Collect.
package inforce

import (
	"errors"
	"fmt"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// Format is the format of the file.
const Format = "countersign/in-force/v1"

// ErrFile says that a text is not a file of this format.
var ErrFile = errors.New("not a list of policies and mandates in force that this program can read")

// ErrTooMany says that the decisions name more policy sets, or more mandates, than a file may list.
var ErrTooMany = fmt.Errorf("the decisions name more than %d policy sets or mandates; export a shorter range", maxRefs)

// File is the content of the member.
type File struct {
	Format   string    `json:"format"`   // countersign/in-force/v1
	Policies []Policy  `json:"policies"` // by revision and digest
	Mandates []Mandate `json:"mandates"` // by id and hash
}

// How much of a text is in the file.
const (
	TextComplete = "complete" // it gives the digest, which covers all that decides, and no comment or file name
	TextPartial  = "partial"  // partly withheld or redacted, so it does not give the digest
	TextMissing  = "missing"
)

// Use says which decisions of the bundle name a policy set or a mandate. Its members are also those of Policy and Mandate.
type Use struct {
	Decisions int    `json:"decisions"`       // how many
	First     uint64 `json:"first,omitempty"` // the sequence of the first
	Last      uint64 `json:"last,omitempty"`  // the sequence of the last
}

// Policy is one state of the set of policies.
type Policy struct {
	Revision uint64 `json:"revision"` // as decisions name it
	Digest   string `json:"digest"`   // of the whole set, as decisions name it; it covers what the compiler makes, so only Countersign can compare it
	Use
	Seq     uint64      `json:"seq,omitempty"`     // the sequence of the log's record of its coming into force
	At      events.Time `json:"at,omitzero"`       // when that was stored
	Author  string      `json:"author,omitempty"`  // who pushed it, as that person said
	Message string      `json:"message,omitempty"` // likewise
	Error   string      `json:"error,omitempty"`   // of a set without a digest: why it could not be used (everything was denied), in words of the log only if no document is withheld

	Text      string     `json:"text"`                // complete, partial (documents of other tenants withheld, or secrets redacted) or missing
	Why       string     `json:"why,omitempty"`       // if the text is partial or missing
	Withheld  int        `json:"withheld,omitempty"`  // how many documents are
	Documents []Document `json:"documents,omitempty"` // the policy files
}

// Document is one policy file.
type Document struct {
	Name     string   `json:"name"`               // of the file
	Text     string   `json:"text"`               // its YAML
	Redacted []string `json:"redacted,omitempty"` // detectors with a finding in it
}

// Mandate is one mandate that decisions name.
type Mandate struct {
	ID   string `json:"id"`   // as decisions name it
	Hash string `json:"hash"` // AUMP's: SHA-256 of the complete document
	Use
	Text     string   `json:"text"`               // complete, partial or missing
	Why      string   `json:"why,omitempty"`      // if the text is partial or missing
	Document string   `json:"document,omitempty"` // the mandate in RFC 8785 form, without its top-level signatures, which the hash does not cover
	Redacted []string `json:"redacted,omitempty"` // detectors with a finding in it
}

// fileLimits bound the file; a verifier reads no more of such a member.
var fileLimits = strictjson.Limits{MaxBytes: 64 << 20, MaxDepth: 12}

// Encode encodes the member.
func (f File) Encode() ([]byte, error) {
	f.Format = Format
	if f.Policies == nil {
		f.Policies = []Policy{}
	}
	if f.Mandates == nil {
		f.Mandates = []Mandate{}
	}
	return events.Encode(f)
}

// decode decodes the member strictly.
func decode(b []byte) (f File, err error) {
	if _, err := strictjson.ParseObject(b, fileLimits); err != nil {
		return f, fmt.Errorf("%w: %w", ErrFile, err)
	}
	if err := strictjson.Unmarshal(b, &f, strictjson.RejectUnknown); err != nil {
		return f, fmt.Errorf("%w: a member is unknown or has the wrong type", ErrFile)
	}
	if f.Format != Format {
		return f, fmt.Errorf("%w: format %.60q", ErrFile, f.Format)
	}
	return f, nil
}
