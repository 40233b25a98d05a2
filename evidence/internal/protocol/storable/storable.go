// Package storable has the type of the rows that say what a protocol keeps in evidence and what it never
// stores. The folders evidence/internal/protocol/<name> make them, one file each.
package storable

import (
	"bytes"
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

// OneParse reports whether one walk over the text is enough to find everything that the row
// excludes from storage. Otherwise the event must be read as a whole first.
func (r *Row) OneParse() bool { return r.Inspect == nil && !r.AccountIDs }

// MaxKey is how many bytes of a key, or of the name of a protected field, are read.
const MaxKey = 256

// NeverStored makes rules: for the names in whole the whole value is redacted, for those in
// values the values of an object.
func NeverStored(detector, whole, values string) map[string]Rule {
	t := map[string]Rule{}
	for name := range strings.FieldsSeq(whole) {
		t[name] = Rule{Detector: detector}
	}
	for name := range strings.FieldsSeq(values) {
		t[name] = Rule{Detector: detector, Names: true}
	}
	return t
}

// SetOf makes a set of names.
func SetOf(names string) map[string]bool {
	out := map[string]bool{}
	for name := range strings.FieldsSeq(names) {
		out[name] = true
	}
	return out
}
