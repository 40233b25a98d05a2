// Package inforce makes and checks the member of a bundle that says which
// policies and mandates decided: each by its digest, with its text where whoever
// reads the bundle may see it.
//
// A text is in the file only if it has the digest that decisions name, and only
// what is the tenant's own business: secrets are taken out of it by the rules that
// records are redacted by, and documents that speak of other tenants stay away.
// What is not there is said to be not there, and why.
package inforce

import (
	"errors"
	"fmt"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// Format is the number of the file's form.
const Format = "countersign/in-force/v1"

// ErrFile says that a text is not a file of this form.
var ErrFile = errors.New("not a list of policies and mandates in force that this program can read")

// File is the member.
type File struct {
	Format   string    `json:"format"`
	Policies []Policy  `json:"policies"` // by revision and digest
	Mandates []Mandate `json:"mandates"` // by id and hash
}

// How much of a text is there.
const (
	TextComplete = "complete" // as it was; it gives the digest
	TextPartial  = "partial"  // something is withheld or redacted, so it does not give the digest
	TextMissing  = "missing"
)

// Use says which decisions of the bundle name something.
type Use struct {
	Decisions int    `json:"decisions"`
	First     uint64 `json:"first,omitempty"` // sequence; 0: none does
	Last      uint64 `json:"last,omitempty"`
}

// Policy is one state of the set of policies.
type Policy struct {
	Revision uint64 `json:"revision"`
	Digest   string `json:"digest"` // of the whole set, as decisions name it
	Use
	// Seq is the log's record of its coming into force, At when that was stored; 0
	// where the log has none.
	Seq uint64      `json:"seq,omitempty"`
	At  events.Time `json:"at,omitzero"`
	// Author and Message are what the person who pushed it says.
	Author  string `json:"author,omitempty"`
	Message string `json:"message,omitempty"`
	// Error says that the set could not be used: everything was denied.
	Error string `json:"error,omitempty"`

	Text      string     `json:"text"`
	Why       string     `json:"why,omitempty"` // of partial and missing
	Withheld  int        `json:"withheld,omitempty"`
	Documents []Document `json:"documents,omitempty"`
}

// Document is one file of policies.
type Document struct {
	Name     string   `json:"name"`
	Text     string   `json:"text"`
	Redacted []string `json:"redacted,omitempty"` // detectors that found something in it
}

// Mandate is one mandate that decisions name.
type Mandate struct {
	ID   string `json:"id"`
	Hash string `json:"hash"`
	Use
	Text     string   `json:"text"`
	Why      string   `json:"why,omitempty"`
	Document string   `json:"document,omitempty"`
	Redacted []string `json:"redacted,omitempty"`
}

// fileLimits bound the file: evidence reads no more of a member of its kind.
var fileLimits = strictjson.Limits{MaxBytes: 64 << 20, MaxDepth: 12}

// Encode gives the member's bytes.
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

// Decode reads it, strictly.
func Decode(b []byte) (f File, err error) {
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
