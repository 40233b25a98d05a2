package agenthook

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/correlation/internal/secrets"
	"github.com/countersign-dev/countersign/events/agenthook"
)

// contentMembers are the members of metadata that hold what a call or a model call was
// about. What stands in them is a matter of redaction, not of the metadata's form.
var contentMembers = map[string]bool{"tool_input_executed": true, "reasoning_content": true, "response_content": true, "response_text": true}

// trustBlocks are those of which AH-C-131 speaks.
var trustBlocks = map[string]bool{"hook_trust": true, "runtime_contract": true}

// checkSecrets looks for credentials of well-known forms where no credential belongs,
// and for what the event says of itself that they contradict.
func (x *Event) checkSecrets(e *agenthook.Event) {
	if !secrets.MayContain(e.Raw) {
		return
	}
	tree := e.Tree()
	meta, _ := tree["metadata"].(map[string]any)
	said := false
	for _, key := range slices.Sorted(maps.Keys(meta)) {
		if contentMembers[key] {
			continue
		}
		below, found := secrets.Find(meta[key])
		if !found {
			continue
		}
		where := catalogue.CodeAtPath("a secret", "/metadata/"+key+below)
		if !said {
			x.addFinding("AH-C-016", where)
		}
		said = true
		if trustBlocks[key] {
			x.addFinding("AH-C-131", where)
		}
	}
	below, found := secrets.Find(tree)
	if found && !x.checkSecretDenied(e, catalogue.CodeAtPath("a secret", below)) {
		x.checkEmbeddedSecret(tree)
	}
}

// checkEmbeddedSecret: a governed call brings a secret along instead of a reference to it,
// and its event does not deny that (AHP-013).
func (x *Event) checkEmbeddedSecret(tree map[string]any) {
	if !x.governed {
		return
	}
	meta, _ := tree["metadata"].(map[string]any)
	for _, in := range []struct {
		path  string
		value any
	}{{"/tool_input", tree["tool_input"]}, {"/metadata/tool_input_executed", meta["tool_input_executed"]}, {"/metadata/execution", meta["execution"]}} {
		if below, found := secrets.Find(in.value); found {
			x.addFinding("AH-C-045", catalogue.CodeAtPath("a secret", in.path+below))
			return
		}
	}
}

// maxGovernedBytes is the size of an event from which what a governed call brings along or
// gives back counts as large. AHP-013 names none; it is the largest that AgentHook
// recommends for anything (SPEC 3).
const maxGovernedBytes = 64 << 10

// checkSize: a governed event is that large.
func (x *Event) checkSize(e *agenthook.Event) {
	x.addFindingIf(x.governed && len(e.Raw) > maxGovernedBytes, "AH-C-045", "the event is over 64 KiB")
}

// checkSecretDenied: the event holds a secret and says that it does not, or that
// nothing had to be redacted.
func (x *Event) checkSecretDenied(e *agenthook.Event, where string) (is bool) {
	if r, ok := e.Risk(); ok && r.ContainsSecret != nil && !*r.ContainsSecret {
		x.addFinding("AH-C-039", where)
		is = true
	}
	if r, ok := e.Redaction(); ok && r.Applied != nil && !*r.Applied {
		x.addFinding("AH-C-038", "nothing was redacted, and there is "+where)
		is = true
	}
	return is
}

// checkRedacted: what an event lists as redacted must not be readable in it. How
// publishers mask values is not agreed on, so it is a hint.
func (x *Event) checkRedacted(e *agenthook.Event) {
	fields := e.RedactedFields()
	if len(fields) == 0 {
		return
	}
	tree := e.Tree()
	for _, field := range fields[:min(len(fields), maxFields)] {
		if v, there := lookupPath(tree, field); there && !looksRedacted(v) {
			x.addHint("AH-C-038", "a field that is listed as redacted seems to be readable")
			return
		}
	}
}

const maxFields = 64 // of a redaction block

// lookupPath follows a path as publishers write it: with dots, slashes or both, with
// or without a beginning.
func lookupPath(tree map[string]any, path string) (v any, there bool) {
	v = tree
	path = strings.NewReplacer("/", ".", "[", ".", "]", "").Replace(strings.TrimLeft(path, "$./"))
	for _, step := range strings.Split(path, ".") {
		switch at := v.(type) {
		case map[string]any:
			if v, there = at[step]; !there {
				return nil, false
			}
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(at) {
				return nil, false
			}
			v = at[i]
		default:
			return nil, false
		}
	}
	return v, true
}

// looksRedacted tells whether a value looks like what is left of a redacted one.
func looksRedacted(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return looksMasked(v)
	case map[string]any:
		return !slices.ContainsFunc(slices.Collect(maps.Values(v)), func(m any) bool { return !looksRedacted(m) })
	case []any:
		return !slices.ContainsFunc(v, func(m any) bool { return !looksRedacted(m) })
	}
	return false
}

var maskWords = []string{"redact", "mask", "remov", "hidden", "omitted", "withheld", "sha256", "hmac", "hash", "token"}

func looksMasked(s string) bool {
	lower := strings.ToLower(s)
	if slices.ContainsFunc(maskWords, func(w string) bool { return strings.Contains(lower, w) }) {
		return true
	}
	return strings.Trim(lower, "*x#•.-_<>[]{}() ") == ""
}
