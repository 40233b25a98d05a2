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

// contentMembers are the members of metadata with the contents of a call or a model call.
// Redaction treats them; the checks of the metadata do not.
var contentMembers = map[string]bool{"tool_input_executed": true, "reasoning_content": true, "response_content": true, "response_text": true}

// trustBlocks are the blocks of AH-C-131.
var trustBlocks = map[string]bool{"hook_trust": true, "runtime_contract": true}

// checkSecrets reports credentials of known forms where none belongs, and statements of the
// event that they contradict.
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

// checkEmbeddedSecret reports a governed call with a secret instead of a reference to one
// (AHP-013). If the event denies the secret, checkSecretDenied reports that instead.
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

// maxGovernedBytes is the size of an event from which the contents of a governed call count as
// large. AHP-013 names no size; this is the largest that AgentHook recommends for anything
// (SPEC 3).
const maxGovernedBytes = 64 << 10

// checkSize reports a governed event of that size.
func (x *Event) checkSize(e *agenthook.Event) {
	x.addFindingIf(x.governed && len(e.Raw) > maxGovernedBytes, "AH-C-045", "the event is over 64 KiB")
}

// checkSecretDenied reports an event with a secret that says that it has none, or that nothing
// had to be redacted.
func (x *Event) checkSecretDenied(e *agenthook.Event, where string) (is bool) {
	if r := e.Risk; r != nil && r.ContainsSecret != nil && !*r.ContainsSecret {
		x.addFinding("AH-C-039", where)
		is = true
	}
	if r := e.Redaction; r != nil && r.Applied != nil && !*r.Applied {
		x.addFinding("AH-C-038", "nothing was redacted, and there is "+where)
		is = true
	}
	return is
}

// checkRedacted reports a value that is listed as redacted and readable. It is a hint, because
// there is no agreed way to mask values.
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

const maxFields = 64 // of one redaction block

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

// looksRedacted reports whether a value looks masked.
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
