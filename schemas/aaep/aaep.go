// Package aaep judges the messages of AAEP 1.0.0 by its schemas, which package schemas compiles,
// and by what only its text demands.
package aaep

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/schemas"
	"github.com/countersign-dev/countersign/schemas/internal/check"
)

// AAEP's names for itself (AAEP 1.0.0, 3.2.1 and 3.2.2).
const (
	coreContext  = "https://aaep-protocol.org/context/v1"
	corePrefix   = "aaep:"
	coreTypesURI = "https://aaep-protocol.org/types/"
	// coreStart is the prefix of the local name of every core event.
	coreStart = "agent."

	folder   = "aaep/"
	envelope = "aaep/envelope"
)

// typeShape is prefix:local or a URI; both begin like a scheme.
var typeShape = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_+.-]*:[^\s\x00-\x1f]+$`)

// normalType returns the compact form of an AAEP type: the full URI of a core type means
// the same type (3.2.2). Any other text is returned unchanged.
func normalType(t string) string {
	if local, ok := strings.CutPrefix(t, coreTypesURI); ok && local != "" {
		return corePrefix + local
	}
	return t
}

// Strict judges a message by its schema and by the checks of single events. A reply or
// subscription message is validated by its schema alone.
func Strict(v strictjson.Value) []schemas.Violation {
	return schemas.Merge(validate(v), runChecks(v))
}

// validate validates a message by the schema of its type: the twelve core events (compact or
// full URI), the two replies, the three subscription messages with a schema; an event of a
// foreign vocabulary by the envelope alone. A type in the closed aaep: namespace that is none
// of the twelve is a violation, and so is a type without a vocabulary. The producer manifest
// (5.10) is a document and no event; it must not be validated here.
func validate(v strictjson.Value) []schemas.Violation {
	if v.Get("type").Kind() != strictjson.KindString {
		return tagEvent(schemas.Default().Validate(envelope, v), nil)
	}
	t := v.Get("type").Text()
	normal := normalType(t)
	schema := coreSchema(normal)
	switch {
	case schema != "":
		if normal != t {
			v = v.WithText(normal, "type")
		}
		return tagEvent(schemas.Default().Validate(schema, v), nil)
	case strings.HasPrefix(normal, corePrefix):
		return tagEvent(schemas.Default().Validate(envelope, v), &unknownCoreType)
	case isMessage(t):
		return check.Tag(schemas.Default().Validate(folder+t, v), func(schemas.Violation) string { return "AAEP-C-024" })
	case !typeShape.MatchString(t):
		return tagEvent(schemas.Default().Validate(envelope, v), &noVocabulary)
	default:
		return tagEvent(schemas.Default().Validate(envelope, v), nil)
	}
}

var unknownCoreType = schemas.Violation{Path: "/type", Keyword: "closed_namespace", Check: "AAEP-C-005", Level: schemas.LevelError,
	Message: "must be one of the twelve core events: the aaep: namespace is closed"}

var noVocabulary = schemas.Violation{Path: "/type", Keyword: "type_shape", Check: "AAEP-C-004", Level: schemas.LevelError,
	Message: "must be prefix:local or an absolute URI"}

// coreSchema returns the name of the schema of a core event by its compact type, "" for every
// other type.
func coreSchema(t string) string { return coreSchemas()[t] }

// coreSchemas are the names of the schemas of core events, by compact type.
var coreSchemas = sync.OnceValue(func() map[string]string {
	names := map[string]string{}
	for _, name := range schemas.Default().Names() {
		if local, ok := strings.CutPrefix(name, folder); ok && strings.HasPrefix(local, coreStart) {
			names[corePrefix+local] = name
		}
	}
	return names
})

// isMessage reports whether t is a message without an envelope and with a schema, such as
// "confirmation.reply" or "subscription.request".
func isMessage(t string) bool {
	return (strings.HasSuffix(t, ".reply") || strings.HasPrefix(t, "subscription.")) && schemas.Default().Has(folder+t)
}

// tagEvent sets the rules of an event's violations and adds one more violation unless it is nil.
func tagEvent(vs []schemas.Violation, more *schemas.Violation) []schemas.Violation {
	vs = check.Tag(vs, eventRule)
	if more != nil {
		vs = schemas.Merge(vs, []schemas.Violation{*more})
	}
	return vs
}

// rulesOfKeys maps top-level keys to the rules that the schema enforces there.
var rulesOfKeys = map[string]string{
	"@context": "AAEP-C-003", "type": "AAEP-C-004", "event_id": "AAEP-C-007", "session_id": "AAEP-C-008",
	"timestamp": "AAEP-C-009", "producer": "AAEP-C-010", "verbosity": "AAEP-C-012", "urgency": "AAEP-C-012",
	"localization_hints": "AAEP-C-013", "sequence_number": "AAEP-C-015", "aaep_version": "AAEP-C-016",
	"correlation_id": "AAEP-C-017", "extensions": "AAEP-C-018",
}

// requiredKeys are the envelope keys that every event has (AAEP-C-002).
var requiredKeys = []string{"@context", "type", "event_id", "session_id", "timestamp", "producer"}

func eventRule(v schemas.Violation) string {
	switch {
	case v.Path == "" && slices.Contains(requiredKeys, v.MissingProperty()):
		return "AAEP-C-002"
	case v.Path == "/urgency" && v.Keyword == "const":
		return "AAEP-C-031"
	case v.Path == "/default_decision" && v.Keyword == "const":
		return "AAEP-C-032"
	}
	if c, ok := rulesOfKeys[check.TopKey(v.Path)]; ok {
		return c
	}
	return "AAEP-C-030"
}
