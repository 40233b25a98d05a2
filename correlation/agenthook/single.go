package agenthook

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/schemas"
)

// Lengths beyond which a text was not cut to a record's length (SPEC 3).
const (
	maxReasoning = 64 << 10
	maxResponse  = 16 << 10
)

var (
	sha256Pattern = regexp.MustCompile(`^sha256:[A-Fa-f0-9]{64}$`)
	trustStatuses = wordSet("trusted", "modified", "untrusted", "disabled", "unknown", "not_supported")
	trustSources  = wordSet("", "runtime", "publisher", "bus", "local_config", "registry", "operator")
)

func wordSet(list ...string) map[string]bool {
	m := map[string]bool{}
	for _, w := range list {
		m[w] = true
	}
	return m
}

func (x *Event) addFinding(check, what string) {
	x.eventFindings = append(x.eventFindings, eventFinding{check: check, text: what})
}
func (x *Event) addHint(check, what string) {
	x.eventFindings = append(x.eventFindings, eventFinding{check, what, true})
}
func (x *Event) addFindingIf(is bool, check, what string) {
	if is {
		x.addFinding(check, what)
	}
}

// checkEvent makes the checks of single events that the envelope's schema does not make.
func (x *Event) checkEvent(e *agenthook.Event) {
	x.checkEnvelope(e)
	if e.HasMetadata() {
		x.checkBlocks(e)
	}
}

// checkEnvelope makes the checks that every event gets.
func (x *Event) checkEnvelope(e *agenthook.Event) {
	collector := e.Annotations.Get("collector")
	if e.Annotations.Get("bus").Exists() || collector.Exists() && collector.Kind() != strictjson.KindNull {
		x.addHint("AH-C-014", "")
	}
	switch e.EventType {
	case agenthook.PostLLMCall:
		x.checkModelCall(e.Metadata)
	case agenthook.AgentHandoff:
		x.checkCorrelated("a handoff")
	case agenthook.PreToolUse:
		if x.isRetry {
			x.checkCorrelated("a retry")
		}
		if x.phase == agenthook.PhasePreCommit && x.CallID == "" {
			x.addHint("AH-C-087", "it claims pre_commit and has no id")
		}
	}
	x.checkSecrets(e)
}

// checkBlocks makes the checks of the blocks in an event's metadata.
func (x *Event) checkBlocks(e *agenthook.Event) {
	x.checkRedacted(e)
	x.checkSize(e)
	x.checkVerdictPhase(e)
	x.checkGovernance(e)
	x.checkApproval(e)
	x.checkTrust(e)
}

// checkVerdictPhase reports a verdict on an event that does not claim to come before the
// execution: such a verdict authorises nothing (SPEC 4).
func (x *Event) checkVerdictPhase(e *agenthook.Event) {
	switch {
	case x.verdict == "" || !agenthook.IsPre(e.EventType) || x.phase == agenthook.PhasePreCommit:
	case x.phase == "":
		x.addHint("AH-C-013", "it carries a verdict and says nothing of its phase")
	default:
		x.addFinding("AH-C-013", "it carries a verdict and claims another phase")
	}
}

func (x *Event) checkCorrelated(what string) {
	if x.correlation == "" {
		x.addHint("AH-C-060", what)
	}
}

func (x *Event) checkModelCall(m strictjson.Value) {
	reasoning, response := m.MemberText("reasoning_content"), m.MemberText("response_content")
	x.addFindingIf(len(reasoning) > maxReasoning, "AH-C-017", "the reasoning")
	x.addFindingIf(len(response) > maxResponse, "AH-C-017", "the response")
	for _, key := range []string{"model", "provider", "tokens_input", "tokens_output", "response_content", "total_tokens"} {
		if !m.Get(key).Exists() {
			x.addHint("AH-C-058", key+" is missing")
			break
		}
	}
	in, okIn := intMember(m.Get("tokens_input"))
	out, okOut := intMember(m.Get("tokens_output"))
	total, okTotal := intMember(m.Get("total_tokens"))
	x.addFindingIf(okIn && okOut && okTotal && in+out != total, "AH-C-058", "the tokens do not add up")
	if chars, ok := intMember(m.Get("reasoning_chars")); ok {
		x.addFindingIf(chars < int64(utf8.RuneCountInString(reasoning)), "AH-C-059", "")
	}
}

// intMember is the integer that a member is.
func intMember(v strictjson.Value) (int64, bool) {
	if v.Kind() != strictjson.KindNumber {
		return 0, false
	}
	i, err := strconv.ParseInt(v.Text(), 10, 64)
	return i, err == nil
}

// checkGovernance makes the checks of the action-governance blocks (AHP-013).
func (x *Event) checkGovernance(e *agenthook.Event) {
	if x.governed {
		x.eventFindings = append(x.eventFindings, profileFindings(e)...)
	}
	identity := e.ToolIdentity
	if identity != nil && e.ProviderTranslation != nil {
		x.addFindingIf(identity.Source != e.ProviderTranslation.ProviderSurface, "AH-C-035", "")
	}
	// The provider's name of a tool is the name in its events (AHP-011).
	alias := identity != nil && identity.ProviderName != "" && identity.ProviderName != e.ToolName && identity.CanonicalName == e.ToolName
	x.addFindingIf(alias, "AH-C-018", "")
	if hashes := e.SchemaHashes(); slices.ContainsFunc(hashes, func(h string) bool { return h != hashes[0] }) {
		x.addFinding("AH-C-036", toolsText(e))
	}
	if r := e.Retry; r != nil {
		x.addFindingIf(r.Attempt != nil && *r.Attempt > 1 && r.PreviousToolCallID == "", "AH-C-040", "")
	}
	x.addFindingIf(x.validation == validationFailed && x.verdict == "allow", "AH-C-037", "allowed")
	x.checkExecutionBlock(e)
	switch e.EventType {
	case agenthook.ToolCallValidated:
		x.addFindingIf(x.verdict != "" && x.phase != agenthook.PhasePreCommit, "AH-C-044", "a gate is not pre_commit")
	case agenthook.ToolCallRedacted, agenthook.ToolCallRetried:
		x.addFindingIf(x.verdict == "" && x.phase != agenthook.PhaseObservational, "AH-C-044", "an observation is not observational")
	}
}

// plainName matches a tool's name that may appear in a text: short, and with no characters
// that could be taken for more than a name.
var plainName = regexp.MustCompile(`^[A-Za-z0-9_.:/-]{1,160}$`)

// toolsText names the tools that an event is about: those in its changed_tools (the gate in
// front of MCP servers), else its own. Names that are not plain are only counted.
func toolsText(e *agenthook.Event) string {
	const most = 5
	names := []string{e.ToolName}
	if list := e.Metadata.Get("changed_tools"); list.Kind() == strictjson.KindArray && list.Len() > 0 {
		names = nil
		for entry := range list.All() {
			names = append(names, entry.MemberText("tool_name"))
		}
	}
	total := max(len(names), int(countMember(e.Metadata.Get("changed_tools_total"))))
	names = slices.DeleteFunc(names, func(name string) bool { return !plainName.MatchString(name) })
	names = names[:min(len(names), most)]
	if len(names) == 0 {
		return ""
	}
	text := strings.Join(names, ", ")
	if total > len(names) {
		text += fmt.Sprintf(" and %d more", total-len(names))
	}
	return text
}

// countMember is a count, 0 if it is none.
func countMember(v strictjson.Value) int64 {
	const most = 1 << 20
	n, _ := intMember(v)
	return min(max(n, 0), most)
}

func (x *Event) checkExecutionBlock(e *agenthook.Event) {
	b := x.execution
	if b == nil {
		return
	}
	began, ended := fact.ParseInstant(b.StartedAt), fact.ParseInstant(b.CompletedAt)
	x.addFindingIf(!began.IsZero() && !ended.IsZero() && ended.Before(began), "AH-C-041", "it ends before it begins")
	if outer, ok := intMember(e.Metadata.Get("duration_ms")); ok && b.DurationMS != nil {
		x.addFindingIf(outer != *b.DurationMS, "AH-C-041", "it gives two durations")
	}
	if lasted := e.DurationMS(); lasted != nil && !began.IsZero() && !ended.Before(began) {
		x.addFindingIf(exceedsSpan(*lasted, ended.Sub(began).Milliseconds()), "AH-C-041", "its duration is longer than the time between its start and its end")
	}
	x.addFindingIf(b.ResultHash != "" && !sha256Pattern.MatchString(b.ResultHash), "AH-C-041", "its hash is none")
}

// exceedsSpan reports whether a duration in milliseconds is longer than its span, by more than
// a second and a quarter: clocks may show whole seconds. A shorter duration is permitted,
// because an execution may pause.
func exceedsSpan(duration, span int64) bool {
	return duration-span > 1000 && duration-span > duration/4
}

func (x *Event) checkApproval(e *agenthook.Event) {
	block := objectMember(e.Metadata, "approval")
	if !block.Exists() {
		return
	}
	if wrong := schemas.Default().Validate("agenthook/approval", block); len(wrong) > 0 {
		x.VoidApproval = true
		x.addFinding("AH-C-100", catalogue.CodeAtPath(wrong[0].Keyword, "/metadata/approval"+wrong[0].Path))
	}
	if x.approval.ApprovalURL != "" {
		x.addHint("AH-C-107", "")
	}
	if who := x.approval.ReviewerRef; who != "" {
		self := who == e.AgentID || who == e.Metadata.MemberText("user_id") || who == e.Metadata.MemberText("instance_id")
		x.addFindingIf(self, "AH-C-110", "")
	}
}

// checkTrust makes the checks of attestations, hooks and contracts (SPEC 6, 9).
func (x *Event) checkTrust(e *agenthook.Event) {
	if x.attestation != nil {
		block := e.Metadata.Get("runtime_attestation")
		if wrong := schemas.Default().Validate("agenthook/runtime-attestation", block); len(wrong) > 0 {
			x.addFinding("AH-C-120", catalogue.CodeAtPath(wrong[0].Keyword, "/metadata/runtime_attestation"+wrong[0].Path))
		}
		x.addFindingIf(x.attestation.authenticity == "signed" && !x.attestation.signed, "AH-C-123", "")
	}
	for _, h := range x.hooks {
		x.addFindingIf(!h.isComplete(), "AH-C-128", "")
		x.addFindingIf(h.fingerprint != "" && !sha256Pattern.MatchString(h.fingerprint), "AH-C-133", "of a hook")
	}
	hash := e.Metadata.Get("runtime_contract").MemberText("contract_hash")
	x.addFindingIf(hash != "" && !sha256Pattern.MatchString(hash), "AH-C-133", "of a contract")
}
