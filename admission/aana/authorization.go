package aana

import (
	"regexp"
	"slices"
	"strings"

	wire "github.com/countersign-dev/countersign/events/aana"
)

// AuthorizationReport is what step 1 found.
type AuthorizationReport struct {
	Declared   wire.State   `json:"declared_state"`
	Supported  wire.State   `json:"evidence_supported_state"`
	Effective  wire.State   `json:"effective_state"`
	Support    []wire.State `json:"support"` // each state once, the weakest first
	Downgraded bool         `json:"downgraded"`
}

// supportRule says what makes a reference support a state: all of its conditions
// that are set must hold.
type supportRule struct {
	state    wire.State
	kind     string
	trust    []string       // one of them
	phrases  []string       // one of them in the text, as a part of it
	words    *regexp.Regexp // in the summary
	deniedBy []denial       // none of them in the summary
}

// referenceSupports are the reference's triggers. Its text is the identifier and
// the summary.
var referenceSupports = []supportRule{
	{state: wire.UserClaimed, kind: wire.KindUserMessage},
	{state: wire.UserClaimed, trust: []string{wire.TrustUserClaimed}},
	{state: wire.UserClaimed, phrases: []string{"user claimed"}},
	{state: wire.Authenticated, kind: wire.KindAuthEvent},
	{state: wire.Authenticated, phrases: []string{"authenticated"}},
	{state: wire.Validated, kind: wire.KindToolResult, phrases: []string{"validated", "ownership", "eligible", "policy validation", "verified target"}},
	{state: wire.Validated, kind: wire.KindPolicy, phrases: []string{"validated", "allowed", "eligible"}},
	{state: wire.Confirmed, kind: wire.KindApproval},
	{state: wire.Confirmed, phrases: []string{"confirmed", "explicitly confirm", "user-confirmed"}},
}

var trustedTiers = []string{wire.TrustVerified, wire.TrustRuntime}

// hardenedSupports ask for evidence of the right kind that somebody vouches for.
var hardenedSupports = []supportRule{
	{state: wire.UserClaimed, kind: wire.KindUserMessage},
	{state: wire.UserClaimed, trust: []string{wire.TrustUserClaimed}},
	{state: wire.Authenticated, kind: wire.KindAuthEvent, trust: trustedTiers, deniedBy: denials["authentication"]},
	{state: wire.Validated, kind: wire.KindToolResult, trust: trustedTiers, deniedBy: denials["validation"],
		words: regexp.MustCompile(`\b(validated|ownership|eligible|policy validation|verified target)\b`)},
	{state: wire.Confirmed, kind: wire.KindApproval, trust: trustedTiers, deniedBy: denials["confirmation"]},
}

// denial is a way to say the opposite of what evidence usually says. The pattern
// is slow beside the test that comes before it: every text with a match has one
// of the marks in it.
type denial struct {
	marks   []string
	pattern *regexp.Regexp
}

func (d denial) matches(summary string) bool {
	return containsAny(summary, d.marks) && d.pattern.MatchString(summary)
}

// denials are the summaries that take support away, by what they deny. They can
// do nothing else.
var denials = map[string][]denial{
	"authentication": denialPatterns(`authenticat|identif|logged in|signed in|verif`, `authentication|identification|login|log-in|sign-in`),
	"validation":     denialPatterns(`validat|eligib|owned|owner|owns|verif|match`, `validation|eligibility|ownership|verification`),
	"confirmation":   denialPatterns(`confirm|approv|consent|agree|authoris|authoriz|signed off|sign off`, `confirmation|approval|consent|sign-off`),
}

// Words of denials.
var (
	negations = []string{"no", "never", "without", "yet to", "n't", "n’t"} // "no" is in not, nor, nobody and cannot
	failures  = []string{"pending", "missing", "absent", "failed", "denied", "declined", "rejected", "refused", "withdrawn", "withdrew", "revoked", "expired",
		"cancelled", "outstanding", "required", "needed", "awaiting", "awaits", "lacks", "lacking", "needs", "requires", "disagreed"}
)

// denialPatterns makes the patterns for a verb's stems and its nouns: "has not yet been
// confirmed", "unconfirmed", "approval is pending", "awaiting approval", "the
// owner declined".
func denialPatterns(stems, nouns string) []denial {
	const gone = `(pending|missing|absent|failed|denied|declined|rejected|refused|withdrawn|revoked|expired|cancelled|outstanding|required|needed)`
	const lacking = `(awaiting|awaits|pending|lacks|lacking|needs|requires|failed|denied|declined|rejected|refused|withdrew|revoked)`
	const people = `(user|owner|customer|client|approver|reviewer|manager|operator|admin)`
	compile := func(parts ...string) *regexp.Regexp { return regexp.MustCompile(strings.Join(parts, "")) }
	var opposites []string
	for _, prefix := range []string{"un", "in", "dis", "de"} {
		for _, stem := range strings.Split(stems, "|") {
			opposites = append(opposites, prefix+stem)
		}
	}
	return []denial{
		{negations, compile(`\b(not|never|no|nor|nobody|cannot|without|yet to|\w+n['’]t)\b[^.;:]{0,32}\b(`, stems, `)`)},
		{opposites, compile(`\b(`, strings.Join(opposites, "|"), `)`)},
		{failures, compile(`\b(`, nouns, `)\W+((is|was|are|were|has|have|had|been|still)\W+)*`, gone, `\b`)},
		{failures, compile(`\b`, lacking, `\W+((the|an?|any|explicit|final|user|owner|to)\W+)*(`, stems, `)`)},
		{failures, compile(`\b`, people, `\W+((has|have|had|explicitly)\W+)*(declined|denied|rejected|refused|withdrew|revoked|disagreed)\b`)},
	}
}

func (s supportRule) matches(ref wire.EvidenceRef, text, summary string) bool {
	return (s.kind == "" || s.kind == ref.Kind) && (s.trust == nil || slices.Contains(s.trust, ref.TrustTier)) &&
		(s.phrases == nil || containsAny(text, s.phrases)) && (s.words == nil || s.words.MatchString(summary)) &&
		!slices.ContainsFunc(s.deniedBy, func(d denial) bool { return d.matches(summary) })
}

func containsAny(text string, phrases []string) bool {
	return slices.ContainsFunc(phrases, func(p string) bool { return strings.Contains(text, p) })
}

// strongestSupport gives the strongest state that the evidence supports, and all of
// them from the weakest on.
func strongestSupport(supports []supportRule, fold func(string) string, refs []wire.EvidenceRef) (strongest wire.State, all []wire.State) {
	found := map[wire.State]bool{}
	for _, ref := range refs {
		summary := fold(ref.Summary)
		text := fold(ref.SourceID) + " " + summary
		for _, s := range supports {
			found[s.state] = found[s.state] || s.matches(ref, text, summary)
		}
	}
	strongest, all = wire.None, []wire.State{}
	for _, s := range wire.States() {
		if found[s] {
			strongest, all = s, append(all, s)
		}
	}
	return strongest, all
}

// checkAuthorization is step 1: what of the declared state the evidence carries.
func (p *profile) checkAuthorization(e *wire.Event) AuthorizationReport {
	strongest, all := strongestSupport(p.supportRules, p.foldText, e.Evidence)
	r := AuthorizationReport{Declared: e.Authorized, Supported: strongest, Effective: e.Authorized, Support: all}
	switch {
	case e.Authorized.Strength() >= wire.Authenticated.Strength() && len(e.Evidence) > 0 && strongest.Strength() < e.Authorized.Strength():
		r.Downgraded = true
		if r.Effective = strongest; strongest == wire.None {
			r.Effective = wire.UserClaimed
		}
	case p.liftsState && e.Authorized == wire.None:
		r.Effective = strongest
	}
	return r
}

// withApproval is the report once a reviewer's approval is among the evidence.
func (r AuthorizationReport) withApproval() AuthorizationReport {
	r.Supported, r.Effective, r.Downgraded = wire.Confirmed, wire.Confirmed, false
	if !slices.Contains(r.Support, wire.Confirmed) {
		r.Support = append(slices.Clip(r.Support), wire.Confirmed)
	}
	return r
}
