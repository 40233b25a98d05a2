package schemas

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// AAEPChecks makes the single-event checks of AAEP that its schemas do not. It
// expects an event that AAEP has looked at and repeats nothing that AAEP
// reports; a value of the wrong type is left to AAEP. Replies and subscription
// messages are none of its business. The catalogue of identifiers is AAEP-C-…
func AAEPChecks(tree map[string]any) []Violation {
	r := Default()
	t, _ := tree["type"].(string)
	if r.isAAEPMessage(t) {
		return nil
	}
	e := &event{tree: tree, kind: NormalAAEPType(t)}
	if schema := r.coreSchema(e.kind); schema != "" {
		e.fields = r.entries[schema].fields
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
			if v := e.text("aaep_version"); wellFormedVersion.MatchString(v) && !knownVersion.MatchString(v) && !newerMinor.MatchString(v) {
				report("aaep_version")
			}
		}},
	{"AAEP-C-016", "newer_version", LevelWarning,
		"is newer than AAEP 1.0, which is what this program knows (3.4.4, 12.6.1)", func(e *event, report func(...string)) {
			if newerMinor.MatchString(e.text("aaep_version")) {
				report("aaep_version")
			}
		}},
	{"AAEP-C-018", "reserved_prefix", LevelError,
		"an extension must not use a reserved prefix: aaep, xsd, rdf, rdfs, or one that starts with @ (7.3.2)", reservedPrefixes},
	{"AAEP-C-018", "undeclared_prefix", LevelError,
		"the prefix of an extension must be declared by a context beside the core one (3.4.3)", undeclaredPrefixes},
	{"AAEP-C-019", "reserved_field", LevelError,
		"the name is reserved by AAEP or JSON-LD (3.5)", func(e *event, report func(...string)) {
			eachKey(e, func(key string) {
				if reservedField(key) {
					report(key)
				}
			})
		}},
	{"AAEP-C-019", "unknown_field", LevelError,
		"is no field of this event; a custom field belongs under extensions (3.5, 7.2)", func(e *event, report func(...string)) {
			unknownFields(e, func(key string) {
				if !isTolerated(e, key) {
					report(key)
				}
			})
		}},
	{"AAEP-C-019", "tolerated_field", LevelWarning,
		"is no field of this event that the schemas know, though chapter 11 or a newer version uses it (11.5.1, 11.7, 12.6.1)", func(e *event, report func(...string)) {
			unknownFields(e, func(key string) {
				if isTolerated(e, key) {
					report(key)
				}
			})
		}},
	{"AAEP-C-031", "urgency_absent", LevelError,
		"missing property urgency: this event must say critical, and absent means normal (4.1.3, 4.4)", func(e *event, report func(...string)) {
			if _, there := e.tree["urgency"]; !there && slices.Contains(criticalTypes, e.kind) {
				report()
			}
		}},
	{"AAEP-C-032", "irreversible_default", LevelError,
		`must be "reject": the action is irreversible by its reversibility, and its risk is not low (6.4.1)`, irreversibleDefault},
	{"AAEP-C-034", "choices_absent", LevelError,
		"missing property choices: multiple_choice is among the accepted kinds of answer (4.4.2)", func(e *event, report func(...string)) {
			kinds, _ := e.tree["accepted_response_kinds"].([]any)
			if _, there := e.tree["choices"]; !there && isClarification(e) && slices.Contains(kinds, any("multiple_choice")) {
				report()
			}
		}},
	{"AAEP-C-034", "choice_repeated", LevelError,
		"must differ from the values of the other choices (4.4.2)", repeatedChoices},
	{"AAEP-C-036", "step_beyond_total", LevelError,
		"must not exceed total_steps (4.2.2)", stepBeyondTotal},
}

// criticalTypes are the events that chapter 4 says MUST be critical.
var criticalTypes = []string{"aaep:agent.session.errored", "aaep:agent.awaiting.confirmation",
	"aaep:agent.awaiting.clarification", "aaep:agent.handoff.requested"}

var (
	wellFormedVersion = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+(-[A-Za-z0-9.-]+)?$`)
	knownVersion      = regexp.MustCompile(`^(1\.0\.(0|[1-9][0-9]*)|0\.1\.0-draft)$`)
	newerMinor        = regexp.MustCompile(`^1\.[1-9][0-9]*\.[0-9]+(-[A-Za-z0-9.-]+)?$`)
)

// coreContextOnly reports whether @context names the core vocabulary and no
// other. With another one there it depends on that document what is declared,
// and none is ever fetched.
func coreContextOnly(e *event) bool {
	switch c := e.tree["@context"].(type) {
	case string:
		return c == aaepContext
	case []any:
		return len(c) == 1 && c[0] == any(aaepContext)
	default:
		return false
	}
}

// foreignTypeWithoutContext looks at compact types; a full URI declares itself.
func foreignTypeWithoutContext(e *event, report func(...string)) {
	prefix, rest, compact := strings.Cut(e.kind, ":")
	if compact && prefix != "aaep" && !strings.HasPrefix(rest, "//") && prefix != "urn" && typeShape.MatchString(e.kind) && coreContextOnly(e) {
		report("type")
	}
}

// fractionDigits counts the digits of the fraction of a time stamp, -1 when the
// text is none.
func fractionDigits(timestamp string) int {
	if timestamp == "" || !isDateTime(timestamp) {
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
	m, _ := e.tree["extensions"].(map[string]any)
	for _, p := range sortedKeys(m) {
		if reservedPrefix(p) {
			report("extensions", p)
		}
	}
}

func undeclaredPrefixes(e *event, report func(...string)) {
	m, _ := e.tree["extensions"].(map[string]any)
	if len(m) == 0 || !coreContextOnly(e) {
		return
	}
	for _, p := range sortedKeys(m) {
		if !reservedPrefix(p) {
			report("extensions", p)
		}
	}
}

// eachKey visits the top-level keys in order.
func eachKey(e *event, visit func(key string)) {
	for _, key := range sortedKeys(e.tree) {
		visit(key)
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

// unknownFields visits the keys that neither the envelope nor the core type has
// and that are not reserved. The fields of a foreign type are its own affair
// (7.4.1).
func unknownFields(e *event, visit func(key string)) {
	if e.fields == nil {
		return
	}
	eachKey(e, func(key string) {
		if !e.fields[key] && !reservedField(key) {
			visit(key)
		}
	})
}

// languageVariant and rawValue are the names that chapter 11 itself uses
// although chapters 3 and 7 forbid them.
var (
	languageVariant = regexp.MustCompile(`^summary_(terse|normal|detailed)_[A-Za-z]{2,8}([_-][A-Za-z0-9]{1,8})*$`)
	rawValue        = regexp.MustCompile(`^(amount_raw|currency|amount_formatted_[a-z]{2,3}(_[a-z]{2,4})?|fx_rate|fx_rate_source)$`)
)

// isTolerated reports whether an unknown field is only worth a warning. A minor
// version newer than ours may add optional fields, and must not be rejected for
// them (12.6.1).
func isTolerated(e *event, key string) bool {
	return languageVariant.MatchString(key) || rawValue.MatchString(key) || newerMinor.MatchString(e.text("aaep_version"))
}

// irreversibleDefault is the half of AAEP-C-032 that the schema does not have:
// the schema looks at irreversible, the text at reversibility too.
func irreversibleDefault(e *event, report func(...string)) {
	risk := e.text("risk_level")
	if e.kind == "aaep:agent.awaiting.confirmation" && e.tree["irreversible"] != any(true) &&
		e.text("reversibility") == "irreversible" && (risk == "high" || risk == "medium") && e.text("default_decision") == "accept" {
		report("default_decision")
	}
}

func isClarification(e *event) bool { return e.kind == "aaep:agent.awaiting.clarification" }

func repeatedChoices(e *event, report func(...string)) {
	choices, _ := e.tree["choices"].([]any)
	if !isClarification(e) {
		return
	}
	seen := map[string]bool{}
	for i, c := range choices {
		choice, _ := c.(map[string]any)
		value, ok := choice["value"].(string)
		if ok && seen[value] {
			report("choices", strconv.Itoa(i), "value")
		}
		seen[value] = seen[value] || ok
	}
}

func stepBeyondTotal(e *event, report func(...string)) {
	if e.kind != "aaep:agent.progress.updated" {
		return
	}
	progress, _ := e.tree["progress"].(map[string]any)
	step, okStep := numberOf(progress["step"])
	total, okTotal := numberOf(progress["total_steps"])
	if okStep && okTotal && step > total {
		report("progress", "step")
	}
}

func numberOf(v any) (float64, bool) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	f, err := strconv.ParseFloat(string(n), 64)
	return f, err == nil
}
