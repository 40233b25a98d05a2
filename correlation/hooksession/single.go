package hooksession

import (
	"encoding/json"
	"regexp"
	"unicode/utf8"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/schemas"
)

// Lengths above which a text is no longer cut to a record's length (SPEC 3).
const (
	maxReasoning = 64 << 10
	maxResponse  = 16 << 10
)

var (
	sha256Text   = regexp.MustCompile(`^sha256:[A-Fa-f0-9]{64}$`)
	trustWords   = words("trusted", "modified", "untrusted", "disabled", "unknown", "not_supported")
	trustSources = words("", "runtime", "publisher", "bus", "local_config", "registry", "operator")
)

func words(list ...string) map[string]bool {
	m := map[string]bool{}
	for _, w := range list {
		m[w] = true
	}
	return m
}

func (x *Event) fails(check, what string) {
	x.local = append(x.local, finding{check: check, what: what})
}
func (x *Event) hint(check, what string) { x.local = append(x.local, finding{check, what, true}) }
func (x *Event) failsIf(is bool, check, what string) {
	if is {
		x.fails(check, what)
	}
}

// check makes the checks of one event that no envelope schema makes.
func (x *Event) check(e *agenthook.Event) {
	if _, bus := e.Annotations["bus"]; bus || e.Annotations["collector"] != nil {
		x.hint("AH-C-014", "")
	}
	switch e.EventType {
	case agenthook.PostLLMCall:
		x.llm(e.Metadata)
	case agenthook.AgentHandoff:
		x.uncorrelated("a handoff")
	case agenthook.PreToolUse:
		if x.retries {
			x.uncorrelated("a retry")
		}
		if x.phase == agenthook.PhasePreCommit && x.Call == "" {
			x.hint("AH-C-087", "it claims pre_commit and has no id")
		}
	}
	x.secrets(e)
	if !e.HasMetadata() {
		return
	}
	x.cleartext(e)
	x.bulky(e)
	x.authorises(e)
	x.governance(e)
	x.approvals(e)
	x.trust(e)
}

// authorises: a verdict on an event that does not claim to come before what it
// announces authorises nothing (SPEC 4).
func (x *Event) authorises(e *agenthook.Event) {
	switch {
	case x.verdict == "" || !agenthook.IsPre(e.EventType) || x.phase == agenthook.PhasePreCommit:
	case x.phase == "":
		x.hint("AH-C-013", "it carries a verdict and says nothing of its phase")
	default:
		x.fails("AH-C-013", "it carries a verdict and claims another phase")
	}
}

func (x *Event) uncorrelated(what string) {
	if x.correlation == "" {
		x.hint("AH-C-060", what)
	}
}

func (x *Event) llm(m map[string]any) {
	reasoning, response := text(m, "reasoning_content"), text(m, "response_content")
	x.failsIf(len(reasoning) > maxReasoning, "AH-C-017", "the reasoning")
	x.failsIf(len(response) > maxResponse, "AH-C-017", "the response")
	for _, key := range []string{"model", "provider", "tokens_input", "tokens_output", "response_content"} {
		if _, there := m[key]; !there {
			x.hint("AH-C-058", key+" is missing")
			break
		}
	}
	in, okIn := number(m["tokens_input"])
	out, okOut := number(m["tokens_output"])
	total, okTotal := number(m["total_tokens"])
	x.failsIf(okIn && okOut && okTotal && in+out != total, "AH-C-058", "the tokens do not add up")
	if chars, ok := number(m["reasoning_chars"]); ok {
		x.failsIf(chars < int64(utf8.RuneCountInString(reasoning)), "AH-C-059", "")
	}
}

func number(v any) (int64, bool) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	i, err := n.Int64()
	return i, err == nil
}

// governance makes the checks of the action-governance blocks (AHP-013).
func (x *Event) governance(e *agenthook.Event) {
	if x.governed {
		x.local = append(x.local, profile(e)...)
	}
	identity, hasIdentity := e.ToolIdentity()
	translation, hasTranslation := e.ProviderTranslation()
	if hasIdentity && hasTranslation {
		x.failsIf(identity.Source != translation.ProviderSurface, "AH-C-035", "")
	}
	// The provider's name of a tool is what its events call it (AHP-011).
	alias := hasIdentity && identity.ProviderName != "" && identity.ProviderName != e.ToolName && identity.CanonicalName == e.ToolName
	x.failsIf(alias, "AH-C-018", "")
	x.schemaHashes(e)
	if r, ok := e.Retry(); ok {
		x.failsIf(r.Attempt != nil && *r.Attempt > 1 && r.PreviousToolCallID == "", "AH-C-040", "")
	}
	x.failsIf(x.failed && x.verdict == "allow", "AH-C-037", "allowed")
	x.executionBlock(e)
	switch e.EventType {
	case agenthook.ToolCallValidated:
		x.failsIf(x.verdict != "" && x.phase != agenthook.PhasePreCommit, "AH-C-044", "a gate is not pre_commit")
	case agenthook.ToolCallRedacted, agenthook.ToolCallRetried:
		x.failsIf(x.verdict == "" && x.phase != agenthook.PhaseObservational, "AH-C-044", "an observation is not observational")
	}
}

func (x *Event) schemaHashes(e *agenthook.Event) {
	seen := ""
	for _, h := range hashesOf(e) {
		if h != "" && seen != "" && h != seen {
			x.fails("AH-C-036", "")
			return
		}
		seen = first(seen, h)
	}
}

func hashesOf(e *agenthook.Event) [3]string {
	var h [3]string
	if b, ok := e.ToolIdentity(); ok {
		h[0] = b.SchemaHash
	}
	if b, ok := e.ProviderTranslation(); ok {
		h[1] = b.SchemaHash
	}
	if b, ok := e.Validation(); ok {
		h[2] = b.SchemaHash
	}
	return h
}

func (x *Event) executionBlock(e *agenthook.Event) {
	b := x.execution
	if b == nil {
		return
	}
	began, ended := instant(b.StartedAt), instant(b.CompletedAt)
	x.failsIf(!began.IsZero() && !ended.IsZero() && ended.Before(began), "AH-C-041", "it ends before it begins")
	if outer, ok := number(e.Metadata["duration_ms"]); ok && b.DurationMS != nil {
		x.failsIf(outer != *b.DurationMS, "AH-C-041", "it gives two durations")
	}
	if lasted := e.DurationMS(); lasted != nil && !began.IsZero() && !ended.Before(began) {
		x.failsIf(exceeds(*lasted, ended.Sub(began).Milliseconds()), "AH-C-041", "its duration is longer than the time between its start and its end")
	}
	x.failsIf(b.ResultHash != "" && !sha256Text.MatchString(b.ResultHash), "AH-C-041", "its hash is none")
}

// exceeds tells whether a duration in milliseconds is longer than the span that holds
// it, by more than a second and a quarter: clocks may show whole seconds. A shorter
// duration is none of the span's business, since an execution may pause.
func exceeds(duration, span int64) bool {
	return duration-span > 1000 && duration-span > duration/4
}

func (x *Event) approvals(e *agenthook.Event) {
	block, there := e.Metadata["approval"].(map[string]any)
	if !there {
		return
	}
	if wrong := schemas.Default().Validate("agenthook/approval", block); len(wrong) > 0 {
		x.VoidApproval = true
		x.fails("AH-C-100", catalogue.At(wrong[0].Keyword, "/metadata/approval"+wrong[0].Path))
	}
	if x.approval.ApprovalURL != "" {
		x.hint("AH-C-107", "")
	}
	if who := x.approval.ReviewerRef; who != "" {
		self := who == e.AgentID || who == text(e.Metadata, "user_id") || who == text(e.Metadata, "instance_id")
		x.failsIf(self, "AH-C-110", "")
	}
}

// trust makes the checks of attestations, hooks and contracts (SPEC 6, 9).
func (x *Event) trust(e *agenthook.Event) {
	if x.attest != nil {
		block := e.Metadata["runtime_attestation"]
		if wrong := schemas.Default().Validate("agenthook/runtime-attestation", block); len(wrong) > 0 {
			x.fails("AH-C-120", catalogue.At(wrong[0].Keyword, "/metadata/runtime_attestation"+wrong[0].Path))
		}
		x.failsIf(x.attest.authenticity == "signed" && !x.attest.signed, "AH-C-123", "")
	}
	for _, h := range x.hooks {
		x.failsIf(!h.complete(), "AH-C-128", "")
		x.failsIf(h.fingerprint != "" && !sha256Text.MatchString(h.fingerprint), "AH-C-133", "of a hook")
	}
	if c, ok := e.Metadata["runtime_contract"].(map[string]any); ok {
		hash := text(c, "contract_hash")
		x.failsIf(hash != "" && !sha256Text.MatchString(hash), "AH-C-133", "of a contract")
	}
}
