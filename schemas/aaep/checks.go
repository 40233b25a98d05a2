package aaep

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/schemas"
	"github.com/countersign-dev/countersign/schemas/internal/check"
)

// runChecks makes the single-event checks of AAEP that its schemas do not. It expects an event
// that was validated and repeats nothing that validate reports, which are also values of the
// wrong type. Replies and subscription messages pass. The identifiers are AAEP-C-…
func runChecks(v strictjson.Value) []schemas.Violation {
	t := ""
	if v.Get("type").Kind() == strictjson.KindString {
		t = v.Get("type").Text()
	}
	if isMessage(t) {
		return nil
	}
	e := check.NewEvent(v)
	e.Kind = normalType(t)
	if schema := coreSchema(e.Kind); schema != "" {
		e.Fields = schemas.Default().Fields(schema)
	}
	return check.Run(rules, e)
}

var rules = []check.Rule{
	check.Error("AAEP-C-006", "undeclared_vocabulary",
		"the prefix of the type must be declared by a context beside the core one (3.9, 7.4)", foreignTypeWithoutContext),
	check.Error("AAEP-C-009", "fraction_digits",
		"must have 3 or 6 fraction digits (3.2.5)", func(e *check.Event, report func(...string)) {
			if n := fractionDigits(e.Text("timestamp")); n > 0 && n != 3 && n != 6 {
				report("timestamp")
			}
		}),
	check.Warning("AAEP-C-009", "fraction_missing",
		"should have 3 fraction digits (3.2.5)", func(e *check.Event, report func(...string)) {
			if fractionDigits(e.Text("timestamp")) == 0 {
				report("timestamp")
			}
		}),
	check.Error("AAEP-C-016", "unpublished_version",
		"must be a published AAEP version: 1.0.x or 0.1.0-draft (3.4.4)", func(e *check.Event, report func(...string)) {
			if v := e.Text("aaep_version"); v != coreVersion && wellFormedVersion.MatchString(v) && !knownVersion.MatchString(v) && !newerMinor.MatchString(v) {
				report("aaep_version")
			}
		}),
	check.Warning("AAEP-C-016", "newer_version",
		"is newer than AAEP 1.0, which is what this program knows (3.4.4, 12.6.1)", func(e *check.Event, report func(...string)) {
			if isNewer(e) {
				report("aaep_version")
			}
		}),
	check.Error("AAEP-C-018", "reserved_prefix",
		"an extension must not use a reserved prefix: aaep, xsd, rdf, rdfs, or one that starts with @ (7.3.2)", reservedPrefixes),
	check.Error("AAEP-C-018", "undeclared_prefix",
		"the prefix of an extension must be declared by a context beside the core one (3.4.3)", undeclaredPrefixes),
	check.Error("AAEP-C-019", "reserved_field",
		"the name is reserved by AAEP or JSON-LD (3.5)", func(e *check.Event, report func(...string)) {
			visitKeys(e, reservedKey, report)
		}),
	check.Error("AAEP-C-019", "unknown_field",
		"is no field of this event; a custom field belongs under extensions (3.5, 7.2)", func(e *check.Event, report func(...string)) {
			visitKeys(e, unknownKey, report)
		}),
	check.Warning("AAEP-C-019", "tolerated_field",
		"is no field of this event that the schemas know, though chapter 11 or a newer version uses it (11.5.1, 11.7, 12.6.1)", func(e *check.Event, report func(...string)) {
			visitKeys(e, toleratedKey, report)
		}),
	check.Error("AAEP-C-031", "urgency_absent",
		"missing property urgency: this event must say critical, and absent means normal (4.1.3, 4.4)", func(e *check.Event, report func(...string)) {
			if e.Lacks("urgency") && slices.Contains(criticalTypes, e.Kind) {
				report()
			}
		}),
	check.Error("AAEP-C-032", "irreversible_default",
		`must be "reject": the action is irreversible by its reversibility, and its risk is not low (6.4.1)`, irreversibleDefault),
	check.Error("AAEP-C-034", "choices_absent",
		"missing property choices: multiple_choice is among the accepted kinds of answer (4.4.2)", func(e *check.Event, report func(...string)) {
			if isClarification(e) && e.Lacks("choices") && acceptsChoice(e) {
				report()
			}
		}),
	check.Error("AAEP-C-034", "choice_repeated",
		"must differ from the values of the other choices (4.4.2)", repeatedChoices),
	check.Error("AAEP-C-036", "step_beyond_total",
		"must not exceed total_steps (4.2.2)", stepBeyondTotal),
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

func isNewer(e *check.Event) bool {
	v := e.Text("aaep_version")
	return v != coreVersion && newerMinor.MatchString(v)
}

// coreContextOnly reports whether @context names only the core vocabulary. With another one its
// document determines what is declared, and no document is ever fetched.
func coreContextOnly(e *check.Event) bool {
	context := e.Doc.Get("@context")
	if context.Kind() != strictjson.KindArray {
		return context.IsText(coreContext)
	}
	for item := range context.All() {
		return context.Len() == 1 && item.IsText(coreContext)
	}
	return false
}

// foreignTypeWithoutContext checks compact types; a full URI declares itself.
func foreignTypeWithoutContext(e *check.Event, report func(...string)) {
	prefix, rest, compact := strings.Cut(e.Kind, ":")
	if compact && prefix != "aaep" && !strings.HasPrefix(rest, "//") && prefix != "urn" && typeShape.MatchString(e.Kind) && coreContextOnly(e) {
		report("type")
	}
}

// fractionDigits counts the fraction digits of a time stamp, -1 for a text that is none.
func fractionDigits(timestamp string) int {
	if !schemas.IsDateTime(timestamp) {
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

func reservedPrefixes(e *check.Event, report func(...string)) {
	for _, m := range e.Doc.Get("extensions").AppendSorted(nil) {
		if reservedPrefix(m.Key()) {
			report("extensions", m.Key())
		}
	}
}

func undeclaredPrefixes(e *check.Event, report func(...string)) {
	extensions := e.Doc.Get("extensions")
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
func classOfKey(e *check.Event, m strictjson.Value) keyClass {
	if reservedField(m.Key()) {
		return reservedKey
	}
	if e.Fields == nil {
		return knownKey
	}
	if e.Fields[m.Key()] {
		return knownKey
	}
	if isTolerated(e, m.Key()) {
		return toleratedKey
	}
	return unknownKey
}

// visitKeys reports the top-level keys of a class, in order.
func visitKeys(e *check.Event, class keyClass, report func(...string)) {
	var room [8]string
	keys := room[:0]
	for m := range e.Doc.All() {
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
func isTolerated(e *check.Event, key string) bool {
	return languageVariant.MatchString(key) || rawValue.MatchString(key) || isNewer(e)
}

// irreversibleDefault is the half of AAEP-C-032 that the schema lacks: the schema checks
// irreversible, the text also demands reversibility.
func irreversibleDefault(e *check.Event, report func(...string)) {
	risk := e.Text("risk_level")
	if e.Kind == "aaep:agent.awaiting.confirmation" && e.Doc.Get("irreversible").Kind() != strictjson.KindTrue &&
		e.Text("reversibility") == "irreversible" && (risk == "high" || risk == "medium") && e.Text("default_decision") == "accept" {
		report("default_decision")
	}
}

func isClarification(e *check.Event) bool { return e.Kind == "aaep:agent.awaiting.clarification" }

// acceptsChoice reports whether multiple_choice is among the accepted kinds of answer.
func acceptsChoice(e *check.Event) bool {
	for kind := range e.Doc.Get("accepted_response_kinds").All() {
		if kind.IsText("multiple_choice") {
			return true
		}
	}
	return false
}

func repeatedChoices(e *check.Event, report func(...string)) {
	choices := e.Doc.Get("choices")
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

func stepBeyondTotal(e *check.Event, report func(...string)) {
	if e.Kind != "aaep:agent.progress.updated" {
		return
	}
	progress := e.Doc.Get("progress")
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
