package storable

import (
	"maps"
	"strings"
)

// KeepRule says how much of a member a retention class keeps.
type KeepRule uint8

// The rules.
const (
	KeepIdentifier  KeepRule = iota + 1 // an identifier, a time, a number, or a word that the protocol defines
	KeepIdentifiers                     // a list of identifiers
	KeepGuardList                       // a list of identifiers that names what must not be stored: if it cannot be kept, no member is
	KeepSummary                         // a short text that the protocol defines as a summary: kept under summary_only
)

// MemberRule is the rule for one member of an event and for the members in it.
type MemberRule struct {
	Rule    KeepRule
	Members map[string]*MemberRule
}

// envelopeMembers are the members that a class keeps beside data in a structured CloudEvent
// (CloudEvents 1.0, section 3; traceparent is of the extension for tracing).
var envelopeMembers = Members(map[KeepRule]string{KeepIdentifier: "specversion id source type time datacontenttype traceparent"})

// KeepInData is Keep for structured CloudEvents; nil if Keep is.
func (r *Row) KeepInData() *MemberRule {
	if r.Keep == nil {
		return nil
	}
	all := maps.Clone(envelopeMembers.Members)
	all["data"] = r.Keep
	return &MemberRule{Members: all}
}

// Members makes a table from dotted names. It holds what identifies an event and says what
// happened, but no content. Plain hashes of arguments, payloads and prompts are not in it, because a
// short value can be guessed and tested against its hash.
func Members(names map[KeepRule]string) *MemberRule {
	root := &MemberRule{Members: map[string]*MemberRule{}}
	for keep, list := range names {
		for name := range strings.FieldsSeq(list) {
			root.addPath(strings.Split(name, "."), keep)
		}
	}
	return root
}

func (m *MemberRule) addPath(path []string, keep KeepRule) {
	next := m.Members[path[0]]
	if next == nil {
		next = &MemberRule{Members: map[string]*MemberRule{}}
		m.Members[path[0]] = next
	}
	if len(path) == 1 {
		next.Rule = keep
		return
	}
	next.addPath(path[1:], keep)
}
