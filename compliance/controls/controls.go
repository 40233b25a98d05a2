// Package controls is an index from common control frameworks to the records and checks of
// Countersign. Each entry says what the evidence shows about a control and what it does not show.
// Package report counts records with Counts and shows the result (Support), which a bundle also
// holds as controls.json; the export command prints entries (All, Find). The package never claims
// compliance, because a log is not enough to decide that. Begin with Entry; index.json holds the
// entries.
package controls

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Format is the format of the index and of the member controls.json.
const Format = "countersign/controls/v1"

// Index is the whole index.
type Index struct {
	Format     string      `json:"format"`
	Edition    string      `json:"edition"` // a date and a digest; differs after every change of an entry
	Disclaimer string      `json:"disclaimer"`
	Frameworks []Framework `json:"frameworks"`
	Entries    []Entry     `json:"entries"`
}

// Framework is a law, standard or framework that entries refer to.
type Framework struct {
	ID    string `json:"id"`
	Title string `json:"title"`
	// Covered says which parts of the framework the index covers. It has no entries for the
	// other parts.
	Covered string `json:"covered"`
}

// Coverage says how much of a control evidence of this kind can show.
type Coverage string

// The coverages. There is no "full": a log shows what happened, not whether it was right.
const (
	Direct   Coverage = "direct"   // the records are about the control's own subject
	Partial  Coverage = "partial"  // they show a part of it
	Indirect Coverage = "indirect" // they help an investigation of it
	None     Coverage = "none"     // they show nothing of it
)

// Entry is one control.
type Entry struct {
	ID        string   `json:"id"` // "<framework>:<reference>"
	Framework string   `json:"framework"`
	Reference string   `json:"reference"`
	Title     string   `json:"title"` // in our own words
	Coverage  Coverage `json:"coverage"`
	Shows     []string `json:"shows"` // empty exactly when Coverage is None
	// ShowsOnLog is what control records show beside records of other kinds. They are on the log and in no
	// bundle.
	ShowsOnLog  []string `json:"shows_on_log,omitempty"`
	DoesNotShow []string `json:"does_not_show"` // never empty
	From        From     `json:"from"`
}

// From names the records and checks that an entry relies on.
type From struct {
	Kinds    []string `json:"kinds,omitempty"`    // of evidence records
	Control  []string `json:"control,omitempty"`  // of control records
	Rules    []string `json:"rules,omitempty"`    // of Countersign's own catalogue, as findings name them
	Checks   []string `json:"checks,omitempty"`   // of the protocols' catalogue
	Problems []string `json:"problems,omitempty"` // codes of findings that verification would report
}

//go:embed index.json
var indexJSON []byte

// All returns the index. The caller may change the result.
func All() Index {
	i := parseIndex()
	i.Frameworks = slices.Clone(i.Frameworks)
	i.Entries = slices.Clone(i.Entries)
	return i
}

var parseIndex = sync.OnceValue(func() Index {
	var i Index
	if err := json.Unmarshal(indexJSON, &i); err != nil {
		panic(fmt.Sprintf("the embedded control index: %v", err)) // a test reads the index
	}
	sum := sha256.Sum256(indexJSON)
	i.Edition += "." + hex.EncodeToString(sum[:6])
	return i
})

// Find returns the entry with an id, ignoring case.
func Find(id string) (Entry, bool) {
	for _, e := range parseIndex().Entries {
		if strings.EqualFold(e.ID, id) {
			return e, true
		}
	}
	return Entry{}, false
}
