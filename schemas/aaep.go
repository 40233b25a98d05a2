package schemas

import (
	"regexp"
	"strings"
	"sync"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// AAEP's names for itself (AAEP 1.0.0, 3.2.1 and 3.2.2).
const (
	aaepContext  = "https://aaep-protocol.org/context/v1"
	aaepPrefix   = "aaep:"
	aaepTypesURI = "https://aaep-protocol.org/types/"
	// aaepCoreStart is the prefix of the local name of every core event.
	aaepCoreStart = "agent."

	aaepFolder   = "aaep/"
	aaepEnvelope = "aaep/envelope"
)

// typeShape is prefix:local or a URI; both begin like a scheme.
var typeShape = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_+.-]*:[^\s\x00-\x1f]+$`)

// NormalAAEPType returns the compact form of an AAEP type: the full URI of a core type means
// the same type (3.2.2). Any other text is returned unchanged.
func NormalAAEPType(t string) string {
	if local, ok := strings.CutPrefix(t, aaepTypesURI); ok && local != "" {
		return aaepPrefix + local
	}
	return t
}

// AAEP validates an AAEP message by the schema of its type: the twelve core events (compact or
// full URI), the two replies, the three subscription messages with a schema; an event of a
// foreign vocabulary by the envelope alone. A type in the closed aaep: namespace that is none
// of the twelve is a violation, and so is a type without a vocabulary. The producer manifest
// (5.10) is a document and no event; it must not be validated here.
func AAEP(v strictjson.Value) []Violation {
	if v.Get("type").Kind() != strictjson.KindString {
		return tagAAEP(Default().Validate(aaepEnvelope, v), nil)
	}
	t := v.Get("type").Text()
	normal := NormalAAEPType(t)
	schema := coreSchema(normal)
	switch {
	case schema != "":
		if normal != t {
			v = v.WithText(normal, "type")
		}
		return tagAAEP(Default().Validate(schema, v), nil)
	case strings.HasPrefix(normal, aaepPrefix):
		return tagAAEP(Default().Validate(aaepEnvelope, v), &unknownCoreType)
	case isAAEPMessage(t):
		return tagRules(Default().Validate(aaepFolder+t, v), func(Violation) string { return "AAEP-C-024" })
	case !typeShape.MatchString(t):
		return tagAAEP(Default().Validate(aaepEnvelope, v), &noVocabulary)
	default:
		return tagAAEP(Default().Validate(aaepEnvelope, v), nil)
	}
}

// StrictAAEP is AAEP and AAEPChecks together. A reply or subscription message is validated by
// its schema alone.
func StrictAAEP(v strictjson.Value) []Violation {
	return mergeViolations(AAEP(v), AAEPChecks(v))
}

var unknownCoreType = Violation{Path: "/type", Keyword: "closed_namespace", Check: "AAEP-C-005", Level: LevelError,
	Message: "must be one of the twelve core events: the aaep: namespace is closed"}

var noVocabulary = Violation{Path: "/type", Keyword: "type_shape", Check: "AAEP-C-004", Level: LevelError,
	Message: "must be prefix:local or an absolute URI"}

// coreSchema returns the name of the schema of a core event by its compact type, "" for every
// other type.
func coreSchema(t string) string { return coreSchemas()[t] }

// coreSchemas are the names of the schemas of core events, by compact type.
var coreSchemas = sync.OnceValue(func() map[string]string {
	schemas := map[string]string{}
	for _, name := range Default().names {
		if local, ok := strings.CutPrefix(name, aaepFolder); ok && strings.HasPrefix(local, aaepCoreStart) {
			schemas[aaepPrefix+local] = name
		}
	}
	return schemas
})

// isAAEPMessage reports whether t is a message without an envelope and with a schema, such as
// "confirmation.reply" or "subscription.request".
func isAAEPMessage(t string) bool {
	return (strings.HasSuffix(t, ".reply") || strings.HasPrefix(t, "subscription.")) && Default().hasSchema(aaepFolder+t)
}

// tagRules sets the rule of each violation.
func tagRules(vs []Violation, check func(Violation) string) []Violation {
	for i := range vs {
		vs[i].Check = check(vs[i])
	}
	return vs
}

// tagAAEP sets the rules of an event's violations and adds one more violation unless it is nil.
func tagAAEP(vs []Violation, more *Violation) []Violation {
	vs = tagRules(vs, aaepCheck)
	if more != nil {
		vs = mergeViolations(vs, []Violation{*more})
	}
	return vs
}

// aaepChecks maps top-level keys to the rules that the schema enforces there.
var aaepChecks = map[string]string{
	"@context": "AAEP-C-003", "type": "AAEP-C-004", "event_id": "AAEP-C-007", "session_id": "AAEP-C-008",
	"timestamp": "AAEP-C-009", "producer": "AAEP-C-010", "verbosity": "AAEP-C-012", "urgency": "AAEP-C-012",
	"localization_hints": "AAEP-C-013", "sequence_number": "AAEP-C-015", "aaep_version": "AAEP-C-016",
	"correlation_id": "AAEP-C-017", "extensions": "AAEP-C-018",
}

// aaepRequired are the messages about absent envelope keys (AAEP-C-002).
var aaepRequired = messagesFor("@context", "type", "event_id", "session_id", "timestamp", "producer")

func messagesFor(names ...string) map[string]bool {
	m := map[string]bool{}
	for _, n := range names {
		m[missingProperty(n)] = true
	}
	return m
}

func aaepCheck(v Violation) string {
	switch {
	case v.Path == "" && v.Keyword == "required" && aaepRequired[v.Message]:
		return "AAEP-C-002"
	case v.Path == "/urgency" && v.Keyword == "const":
		return "AAEP-C-031"
	case v.Path == "/default_decision" && v.Keyword == "const":
		return "AAEP-C-032"
	}
	if c, ok := aaepChecks[topKey(v.Path)]; ok {
		return c
	}
	return "AAEP-C-030"
}

// topKey is the first key of a path.
func topKey(path string) string {
	key, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return key
}
