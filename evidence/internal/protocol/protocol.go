// Package protocol is the table of protocols at the stage of evidence: what generic code that
// stores their messages must know of each. Such code asks the row of a protocol and never its
// name (docs/adr/0023). Begin reading with Row; the table is Rows.
package protocol

import (
	"bytes"
	"maps"
	"strings"
)

// Row is what generic code knows of a protocol. The zero value of a member means "no".
type Row struct {
	// Keep is the table of the members that every retention class except none keeps. If it is
	// nil, no member is kept.
	Keep *MemberRule

	// KeepHeaders are the headers, in lower case, that keep their values under every class, in
	// messages of every protocol: a request of one may name a document of another.
	KeepHeaders map[string]bool

	// NeverStore lists the keys with values that the specification excludes from an audit trail.
	// Keys are compared exactly, at any depth. Strings, numbers, arrays and objects are redacted;
	// booleans and null carry nothing and stay.
	NeverStore map[string]Rule

	// Inspect reads an event and makes rules for keys that NeverStore does not list.
	Inspect func(event any) ExtraRules

	// AccountIDs says that ids of private accounts are redacted in texts and headers.
	AccountIDs bool
}

// ExtraRules returns the rule for a key; path is the path of the value.
type ExtraRules func(key string, path []byte) (Rule, bool)

// Detectors of rules.
const (
	NeverStore = "never_store"     // what AANA and aioc exclude from storage; an object keeps the names of its members
	Protected  = "protected_field" // AUMP: private notes, protected fields, disclosed contents, parts of a mandate
)

// Rule says how the value of one key is redacted.
type Rule struct {
	Detector string
	Names    bool   // an object keeps the names of its members
	Within   string // applies only below a member of this name
}

// AppliesAt reports whether the rule applies to a value at a path.
func (r Rule) AppliesAt(path []byte) bool {
	return r.Within == "" || bytes.Contains(path, []byte("/"+r.Within+"/"))
}

// Of finds the row of a protocol. A protocol that is not in the table has an empty row.
func Of(token string) *Row {
	if row := Rows[token]; row != nil {
		return row
	}
	return &unknown
}

var unknown Row

// OneParse reports whether one walk over the text is enough to find everything that the row
// excludes from storage. Otherwise the event must be read as a whole first.
func (r *Row) OneParse() bool { return r.Inspect == nil && !r.AccountIDs }

// KeepsHeader reports whether a header, in lower case, is in KeepHeaders of any row.
func KeepsHeader(name string) bool {
	for _, row := range Rows {
		if row.KeepHeaders[name] {
			return true
		}
	}
	return false
}

// neverStored makes rules: for the names in whole the whole value is redacted, for those in
// values the values of an object.
func neverStored(detector, whole, values string) map[string]Rule {
	t := map[string]Rule{}
	for name := range strings.FieldsSeq(whole) {
		t[name] = Rule{Detector: detector}
	}
	for name := range strings.FieldsSeq(values) {
		t[name] = Rule{Detector: detector, Names: true}
	}
	return t
}

func mergeRules(a, b map[string]Rule) map[string]Rule {
	maps.Copy(a, b)
	return a
}

func setOf(names string) map[string]bool {
	out := map[string]bool{}
	for name := range strings.FieldsSeq(names) {
		out[name] = true
	}
	return out
}
