package aana

import (
	"slices"
	"strconv"
	"strings"
	"time"

	wire "github.com/countersign-dev/countersign/events/aana"
)

// EvidenceSafetyVersion names the rules of evidence_integrity.
const EvidenceSafetyVersion = "0.1"

// Limits of age and time.
const (
	// MaxAge is the maximum age of evidence.
	MaxAge = 168 * time.Hour
	// MaxSkew is how far a sender's clock may be ahead of this program's.
	MaxSkew = 5 * time.Minute
)

// maxIssues bounds the issues that a result lists; its codes are complete.
const maxIssues = 128

// Issue is one defect of the evidence. Message never quotes the evidence.
type Issue struct {
	Level   string `json:"level"` // error or warning
	Code    string `json:"code"`
	Path    string `json:"path"` // $.evidence_refs[0].freshness.status
	Message string `json:"message"`
}

// EvidenceIntegrity is the report on the evidence. Identifiers in it that look
// like credentials are masked; each is named once, in order of first occurrence.
type EvidenceIntegrity struct {
	Version       string   `json:"evidence_safety_version"`
	Checked       int      `json:"checked_ref_count"`
	Used          []string `json:"used_source_ids"`
	Missing       []string `json:"missing_evidence_source_ids"`
	Contradictory []string `json:"contradictory_evidence_source_ids"`
	Citations     []string `json:"citation_source_ids"`
	Provenance    []string `json:"provenance_source_ids"`
	Issues        []Issue  `json:"issues"`
	ErrorCodes    []string `json:"error_codes"`
	WarningCodes  []string `json:"warning_codes"`
	HasErrors     bool     `json:"has_errors"`
	HasWarnings   bool     `json:"has_warnings"`

	first map[string]string // the JSON pointer of each code's first issue
}

// publishable reports whether the evidence may appear in public logs.
func (r *EvidenceIntegrity) publishable() bool {
	if r == nil {
		return false
	}
	return ArePublishable(slices.Concat(r.ErrorCodes, r.WarningCodes))
}

// inspection checks the evidence of one event.
type inspection struct {
	*profile
	category wire.Category
	now      time.Time
	mask     func(id, fallback string) string
	report   *EvidenceIntegrity
}

// inspectEvidence is the first half of step 4: it checks every reference and decides nothing.
func (p *profile) inspectEvidence(refs []wire.EvidenceRef, c wire.Category, now time.Time, mask func(id, fallback string) string) *EvidenceIntegrity {
	r := &EvidenceIntegrity{
		Version: EvidenceSafetyVersion, Checked: len(refs), Used: []string{}, Missing: []string{}, Contradictory: []string{}, Citations: []string{},
		Provenance: []string{}, Issues: []Issue{}, ErrorCodes: []string{}, WarningCodes: []string{}, first: map[string]string{},
	}
	in := inspection{p, c, now, mask, r}
	if len(refs) == 0 && needsEvidence[c] {
		in.addIssue("error", CodeNoRefs, -1, "")
	}
	for i, ref := range refs {
		in.checkTrust(i, ref)
		in.checkLeaks(i, ref)
		in.checkFreshness(i, ref)
		in.checkContent(i, ref)
	}
	r.HasErrors, r.HasWarnings = len(r.ErrorCodes) > 0, len(r.WarningCodes) > 0
	return r
}

// addIssue adds an issue at a dotted member of reference i; -1 is none.
func (in inspection) addIssue(level, code string, i int, member string) {
	path, pointer := "$.evidence_refs", "/evidence_refs"
	if i >= 0 {
		path, pointer = path+"["+strconv.Itoa(i)+"]", pointer+"/"+strconv.Itoa(i)
	}
	if member != "" {
		path, pointer = path+"."+member, pointer+"/"+strings.ReplaceAll(member, ".", "/")
	}
	codes := &in.report.ErrorCodes
	if level == "warning" {
		codes = &in.report.WarningCodes
	}
	appendUnique(codes, code)
	if _, there := in.report.first[code]; !there {
		in.report.first[code] = pointer
	}
	if len(in.report.Issues) < maxIssues {
		in.report.Issues = append(in.report.Issues, Issue{level, code, path, issueTexts[code]})
	}
}

// addWarning adds an issue that counts only for private reads and writes.
func (in inspection) addWarning(code string, i int, member string) {
	if warnsWeakEvidence[in.category] {
		in.addIssue("warning", code, i, member)
	}
}

// appendUnique appends s unless the list has it.
func appendUnique(list *[]string, s string) {
	if !slices.Contains(*list, s) {
		*list = append(*list, s)
	}
}

var issueTexts = map[string]string{
	CodeNoRefs:           "A call with consequences needs evidence.",
	codeWeakTrust:        "Private reads and writes need evidence that the runtime or a verifier vouches for.",
	codeUnsafeRedaction:  "The evidence is marked as sensitive.",
	codeUnknownRedaction: "The reference does not say whether the evidence is redacted.",
	codeSecretLeak:       "The reference looks as if it held a secret.",
	codePIILeak:          "The reference looks as if it held personal data, and it is not marked as redacted.",
	codeStale:            "The evidence is too old.",
	codeInvalidTime:      "The time of the evidence is no ISO 8601 time, or lies in the future.",
	codeUnknownFreshness: "The reference does not say whether the evidence is fresh.",
	codeNoTimestamp:      "The evidence has no time.",
	codeNoProvenance:     "The reference does not say where the evidence comes from.",
}

func (in inspection) checkTrust(i int, ref wire.EvidenceRef) {
	if ref.TrustTier == wire.TrustUnknown || ref.TrustTier == wire.TrustUnverified {
		in.addWarning(codeWeakTrust, i, "trust_tier")
	}
	switch ref.Redaction {
	case wire.RedactionSensitive:
		in.addIssue("error", codeUnsafeRedaction, i, "redaction_status")
	case wire.RedactionUnknown:
		in.addWarning(codeUnknownRedaction, i, "redaction_status")
	}
}

func (in inspection) checkLeaks(i int, ref wire.EvidenceRef) {
	texts := in.evidenceText(ref)
	switch {
	case containsLeak(secretPatterns, texts...):
		in.addIssue("error", codeSecretLeak, i, "")
	case ref.Redaction != wire.RedactionRedacted && containsLeak(personalPatterns, texts...):
		in.addIssue("error", codePIILeak, i, "")
	}
}

func (in inspection) checkFreshness(i int, ref wire.EvidenceRef) {
	switch ref.Freshness.Status {
	case wire.Stale:
		in.addIssue("error", codeStale, i, "freshness.status")
	case wire.FreshnessUnknown:
		in.addWarning(codeUnknownFreshness, i, "freshness.status")
	}
	limit := in.ageLimit(ref.Freshness)
	if age := ref.Freshness.AgeHours; in.strictTimes && age != nil && *age > limit.Hours() {
		in.addIssue("error", codeStale, i, "freshness.age_hours")
	}
	text, member := ref.RetrievedAt, "retrieved_at"
	if text == "" && ref.Freshness.CheckedAt != "" {
		text, member = ref.Freshness.CheckedAt, "freshness.checked_at"
	}
	if text == "" {
		in.addWarning(codeNoTimestamp, i, member)
		return
	}
	switch at, ok := parseTime(text); {
	case !ok, in.strictTimes && at.After(in.now.Add(MaxSkew)):
		in.addIssue("error", codeInvalidTime, i, member)
	case in.now.Sub(at) > limit:
		in.addIssue("error", codeStale, i, member)
	}
}

// ageLimit is the maximum age of a reference: its own limit where that is stricter and the
// profile applies it.
func (in inspection) ageLimit(f wire.Freshness) time.Duration {
	if !in.strictTimes || f.MaxAgeHours == nil || *f.MaxAgeHours >= MaxAge.Hours() {
		return MaxAge
	}
	return time.Duration(max(0, *f.MaxAgeHours) * float64(time.Hour))
}

func (in inspection) checkContent(i int, ref wire.EvidenceRef) {
	id := in.mask(ref.SourceID, fallbackID(i))
	summary := in.foldText(ref.Summary)
	appendUnique(&in.report.Used, id)
	if ref.CitationURL != "" {
		appendUnique(&in.report.Citations, id)
	}
	if ref.CitationURL != "" || ref.RetrievalURL != "" || ref.Provenance != "" {
		appendUnique(&in.report.Provenance, id)
	} else {
		in.addWarning(codeNoProvenance, i, "")
	}
	if containsAny(summary, missingPhrases) {
		appendUnique(&in.report.Missing, id)
	}
	if len(ref.Contradicts) > 0 || containsAny(summary, contradictionPhrases) {
		appendUnique(&in.report.Contradictory, id)
	}
}

// deniesAuthorization reports whether a reference states that the authorization is missing.
func (p *profile) deniesAuthorization(ref wire.EvidenceRef) bool {
	return strings.HasPrefix(ref.SourceID, missingAuthSource) ||
		ref.Kind == wire.KindSystemState && containsAny(p.foldText(ref.Summary), missingAuthPhrases)
}
