package schemas

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// AAEPChecks makes the single-event checks of AAEP that its schemas do not. It expects an event
// that AAEP has validated and repeats nothing that AAEP reports; AAEP reports values of the
// wrong type. Replies and subscription messages pass. The identifiers are AAEP-C-…
func AAEPChecks(v strictjson.Value) []Violation {
	t := ""
	if v.Get("type").Kind() == strictjson.KindString {
		t = v.Get("type").Text()
	}
	if isAAEPMessage(t) {
		return nil
	}
	e := newEvent(v)
	e.kind = NormalAAEPType(t)
	if schema := coreSchema(e.kind); schema != "" {
		e.fields = Default().entries[schema].fields
	}
	return runRules(aaepRules, e)
}

var aaepRules = []rule{
	{"AAEP-C-006", "undeclared_vocabulary", LevelError,
		"the prefix of the type must be declared by a context beside the core one (3.9, 7.4)", foreignTypeWithoutContext},
	{"AAEP-C-009", "fraction_digits", LevelError,
		"must have 3 or 6 fraction digits (3.2.5)", func(e *event, report func(...string)) {
			if n := fractionDigits(e.text("timestamp")); n > 0 && n != 3 && n != 6 {
				report("timestamp")
			}
		}},
	{"AAEP-C-009", "fraction_missing", LevelWarning,
		"should have 3 fraction digits (3.2.5)", func(e *event, report func(...string)) {
			if fractionDigits(e.text("timestamp")) == 0 {
				report("timestamp")
			}
		}},
	{"AAEP-C-016", "unpublished_version", LevelError,
		"must be a published AAEP version: 1.0.x or 0.1.0-draft (3.4.4)", func(e *event, report func(...string)) {
			if v := e.text("aaep_version"); v != coreVersion && wellFormedVersion.MatchString(v) && !knownVersion.MatchString(v) && !newerMinor.MatchString(v) {
				report("aaep_version")
			}
		}},
	{"AAEP-C-016", "newer_version", LevelWarning,
		"is newer than AAEP 1.0, which is what this program knows (3.4.4, 12.6.1)", func(e *event, report func(...string)) {
			if isNewer(e) {
				report("aaep_version")
			}
		}},
	{"AAEP-C-018", "reserved_prefix", LevelError,
		"an extension must not use a reserved prefix: aaep, xsd, rdf, rdfs, or one that starts with @ (7.3.2)", reservedPrefixes},
	{"AAEP-C-018", "undeclared_prefix", LevelError,
		"the prefix of an extension must be declared by a context beside the core one (3.4.3)", undeclaredPrefixes},
	{"AAEP-C-019", "reserved_field", LevelError,
		"the name is reserved by AAEP or JSON-LD (3.5)", func(e *event, report func(...string)) {
			visitKeys(e, reservedKey, report)
		}},
	{"AAEP-C-019", "unknown_field", LevelError,
		"is no field of this event; a custom field belongs under extensions (3.5, 7.2)", func(e *event, report func(...string)) {
			visitKeys(e, unknownKey, report)
		}},
	{"AAEP-C-019", "tolerated_field", LevelWarning,
		"is no field of this event that the schemas know, though chapter 11 or a newer version uses it (11.5.1, 11.7, 12.6.1)", func(e *event, report func(...string)) {
			visitKeys(e, toleratedKey, report)
		}},
	{"AAEP-C-031", "urgency_absent", LevelError,
		"missing property urgency: this event must say critical, and absent means normal (4.1.3, 4.4)", func(e *event, report func(...string)) {
			if e.lacks("urgency") && slices.Contains(criticalTypes, e.kind) {
				report()
			}
		}},
	{"AAEP-C-032", "irreversible_default", LevelError,
		`must be "reject": the action is irreversible by its reversibility, and its risk is not low (6.4.1)`, irreversibleDefault},
	{"AAEP-C-034", "choices_absent", LevelError,
		"missing property choices: multiple_choice is among the accepted kinds of answer (4.4.2)", func(e *event, report func(...string)) {
			if isClarification(e) && e.lacks("choices") && acceptsChoice(e) {
				report()
			}
		}},
	{"AAEP-C-034", "choice_repeated", LevelError,
		"must differ from the values of the other choices (4.4.2)", repeatedChoices},
	{"AAEP-C-036", "step_beyond_total", LevelError,
		"must not exceed total_steps (4.2.2)", stepBeyondTotal},
}

// criticalTypes are the events that MUST be critical by chapter 4.
var criticalTypes = []string{"aaep:agent.session.errored", "aaep:agent.awaiting.confirmation",
	"aaep:agent.awaiting.clarification", "aaep:agent.handoff.requested"}

var (
	wellFormedVersion = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+(-[A-Za-z0-9.-]+)?$`)
	knownVersion      = regexp.MustCompile(`^(1\.0\.(0|[1-9][0-9]*)|0\.1\.0-draft)$`)
	newerMinor        = regexp.MustCompile(`^1\.[1-9][0-9]*\.[0-9]+(-[A-Za-z0-9.-]+)?$`)
)

// coreVersion is the version that nearly every event names.
const coreVersion = "1.0.0"

func isNewer(e *event) bool {
	v := e.text("aaep_version")
	return v != coreVersion && newerMinor.MatchString(v)
}

// coreContextOnly reports whether @context names only the core vocabulary. With another one its
// document determines what is declared, and no document is ever fetched.
func coreContextOnly(e *event) bool {
	context := e.doc.Get("@context")
	if context.Kind() != strictjson.KindArray {
		return context.IsText(aaepContext)
	}
	for item := range context.All() {
		return context.Len() == 1 && item.IsText(aaepContext)
	}
	return false
}

// foreignTypeWithoutContext checks compact types; a full URI declares itself.
func foreignTypeWithoutContext(e *event, report func(...string)) {
	prefix, rest, compact := strings.Cut(e.kind, ":")
	if compact && prefix != "aaep" && !strings.HasPrefix(rest, "//") && prefix != "urn" && typeShape.MatchString(e.kind) && coreContextOnly(e) {
		report("type")
	}
}

// fractionDigits counts the fraction digits of a time stamp, -1 for a text that is none.
func fractionDigits(timestamp string) int {
	if timestamp == "" || !plainTime(timestamp) && !isDateTime(timestamp) {
		return -1
	}
	if timestamp[19] != '.' {
		return 0
	}
	return strings.IndexFunc(timestamp[20:], func(r rune) bool { return r < '0' || r > '9' })
}

var reservedExtensions = []string{"aaep", "xsd", "rdf", "rdfs"}

func reservedPrefix(p string) bool {
	return strings.HasPrefix(p, "@") || slices.Contains(reservedExtensions, p)
}

func reservedPrefixes(e *event, report func(...string)) {
	for _, m := range e.doc.Get("extensions").AppendSorted(nil) {
		if reservedPrefix(m.Key()) {
			report("extensions", m.Key())
		}
	}
}

func undeclaredPrefixes(e *event, report func(...string)) {
	extensions := e.doc.Get("extensions")
	if !extensions.Exists() || !coreContextOnly(e) {
		return
	}
	for _, m := range extensions.AppendSorted(nil) {
		if !reservedPrefix(m.Key()) {
			report("extensions", m.Key())
		}
	}
}

func reservedField(key string) bool {
	switch key {
	case "aaep_version", "@context":
		return false
	case "@id", "@graph", "@base", "@vocab":
		return true
	}
	return strings.HasPrefix(key, "aaep_")
}

// keyClass says how the rules take a top-level key.
type keyClass int

const (
	knownKey keyClass = iota
	reservedKey
	unknownKey
	toleratedKey
)

// classOfKey classifies a top-level member. The fields of a foreign type are not checked (7.4.1).
func classOfKey(e *event, m strictjson.Value) keyClass {
	if reservedField(m.Key()) {
		return reservedKey
	}
	if e.fields == nil {
		return knownKey
	}
	if _, known := e.fields.Of(m); known {
		return knownKey
	}
	if isTolerated(e, m.Key()) {
		return toleratedKey
	}
	return unknownKey
}

// visitKeys reports the top-level keys of a class, in order.
func visitKeys(e *event, class keyClass, report func(...string)) {
	var room [8]string
	keys := room[:0]
	for m := range e.doc.All() {
		if classOfKey(e, m) == class {
			keys = append(keys, m.Key())
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		report(key)
	}
}

// languageVariant and rawValue are the names that chapter 11 itself uses
// although chapters 3 and 7 forbid them.
var (
	languageVariant = regexp.MustCompile(`^summary_(terse|normal|detailed)_[A-Za-z]{2,8}([_-][A-Za-z0-9]{1,8})*$`)
	rawValue        = regexp.MustCompile(`^(amount_raw|currency|amount_formatted_[a-z]{2,3}(_[a-z]{2,4})?|fx_rate|fx_rate_source)$`)
)

// isTolerated reports whether an unknown field is only a warning. A newer minor version may add
// optional fields, and must not be rejected for them (12.6.1).
func isTolerated(e *event, key string) bool {
	return languageVariant.MatchString(key) || rawValue.MatchString(key) || isNewer(e)
}

// irreversibleDefault is the half of AAEP-C-032 that the schema lacks: the schema checks
// irreversible, the text also demands reversibility.
func irreversibleDefault(e *event, report func(...string)) {
	risk := e.text("risk_level")
	if e.kind == "aaep:agent.awaiting.confirmation" && e.doc.Get("irreversible").Kind() != strictjson.KindTrue &&
		e.text("reversibility") == "irreversible" && (risk == "high" || risk == "medium") && e.text("default_decision") == "accept" {
		report("default_decision")
	}
}

func isClarification(e *event) bool { return e.kind == "aaep:agent.awaiting.clarification" }

// acceptsChoice reports whether multiple_choice is among the accepted kinds of answer.
func acceptsChoice(e *event) bool {
	for kind := range e.doc.Get("accepted_response_kinds").All() {
		if kind.IsText("multiple_choice") {
			return true
		}
	}
	return false
}

func repeatedChoices(e *event, report func(...string)) {
	choices := e.doc.Get("choices")
	if !isClarification(e) || choices.Kind() != strictjson.KindArray {
		return
	}
	seen := map[string]bool{}
	i := 0
	for choice := range choices.All() {
		if value := choice.Get("value"); value.Kind() == strictjson.KindString {
			if seen[value.Text()] {
				report("choices", strconv.Itoa(i), "value")
			}
			seen[value.Text()] = true
		}
		i++
	}
}

func stepBeyondTotal(e *event, report func(...string)) {
	if e.kind != "aaep:agent.progress.updated" {
		return
	}
	progress := e.doc.Get("progress")
	step, okStep := numberOf(progress.Get("step"))
	total, okTotal := numberOf(progress.Get("total_steps"))
	if okStep && okTotal && step > total {
		report("progress", "step")
	}
}

func numberOf(v strictjson.Value) (float64, bool) {
	if v.Kind() != strictjson.KindNumber {
		return 0, false
	}
	f, err := strconv.ParseFloat(v.Text(), 64)
	return f, err == nil
}
