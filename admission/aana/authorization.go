package aana

import (
	"slices"
	"strings"

	wire "github.com/countersign-dev/countersign/events/aana"
)

// AuthorizationReport is the result of step 1.
type AuthorizationReport struct {
	Declared   wire.State   `json:"declared_state"`
	Supported  wire.State   `json:"evidence_supported_state"`
	Effective  wire.State   `json:"effective_state"`
	Support    []wire.State `json:"support"` // each state once, the weakest first
	Downgraded bool         `json:"downgraded"`
}

// supportRule is a condition under which a reference supports a state: all its fields that are
// set must match.
type supportRule struct {
	state    wire.State
	kind     string
	trust    []string    // one of them
	phrases  []string    // one of them in the text, as a part of it
	words    lazyPattern // in the summary
	deniedBy []denial    // none of them in the summary
}

// referenceSupports are the reference's triggers. It searches the identifier and the summary.
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

// hardenedSupports demand evidence of the right kind and trust tier.
var hardenedSupports = []supportRule{
	{state: wire.UserClaimed, kind: wire.KindUserMessage},
	{state: wire.UserClaimed, trust: []string{wire.TrustUserClaimed}},
	{state: wire.Authenticated, kind: wire.KindAuthEvent, trust: trustedTiers, deniedBy: denials["authentication"]},
	{state: wire.Validated, kind: wire.KindToolResult, trust: trustedTiers, deniedBy: denials["validation"],
		words: pattern(`\b(validated|ownership|eligible|policy validation|verified target)\b`)},
	{state: wire.Confirmed, kind: wire.KindApproval, trust: trustedTiers, deniedBy: denials["confirmation"]},
}

// denial is a way to state the opposite of supporting evidence. The pattern is slow, so the
// marks are tested first: every text that matches the pattern contains one of the marks.
type denial struct {
	marks   []string
	pattern lazyPattern
}

func (d denial) matches(summary string) bool {
	return containsAny(summary, d.marks) && d.pattern().MatchString(summary)
}

// denials are the summaries that withdraw support, by what they deny. They have no other
// effect.
var denials = map[string][]denial{
	"authentication": denialPatterns(`authenticat|identif|logged in|signed in|verif`, `authentication|identification|login|log-in|sign-in`),
	"validation":     denialPatterns(`validat|eligib|owned|owner|owns|verif|match`, `validation|eligibility|ownership|verification`),
	"confirmation":   denialPatterns(`confirm|approv|consent|agree|authoris|authoriz|signed off|sign off`, `confirmation|approval|consent|sign-off`),
}

// Words of denials.
var (
	negations = []string{"no", "never", "without", "yet to", "n't", "n’t"} // "no" is in not, nor, nobody and cannot
	failures  = []string{"pending", "missing", "absent", "failed", "denied", "declined", "rejected", "refused", "withdrawn", "withdrew", "revoked", "expired",
		"cancelled", "canceled", "vetoed", "outstanding", "required", "needed", "awaiting", "awaits", "lacks", "lacking", "needs", "requires", "disagreed"}
	falseValues = []string{"false", "no", "null", "0"} // "no" is in none and not
)

// denialPatterns builds the patterns for a verb's stems and its nouns: "has not yet been
// confirmed", "unconfirmed", "approval is pending", "awaiting approval", "the owner declined", "approved: false", "the user
// said no", "approval not given", and a summary that says no more than "status: rejected".
func denialPatterns(stems, nouns string) []denial {
	const gone = `(pending|missing|absent|failed|denied|declined|rejected|refused|withdrawn|revoked|expired|cancelled|canceled|vetoed|outstanding|required|needed)`
	const lacking = `(awaiting|awaits|pending|missing|lacks|lacking|needs|requires|failed|denied|declined|rejected|refused|withdrawn|withdrew|revoked|expired)`
	const people = `(user|owner|customer|client|approver|reviewer|manager|operator|admin)`
	const opening = `(the|it|this|was|is|has|had|been|request|action|call|status|state|decision|outcome|result|answer|response|verdict|` + people + `)`
	const end = `["']?\s*($|[,;.!})\]])`
	compile := func(parts ...string) lazyPattern { return pattern(strings.Join(parts, "")) }
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
		{failures, compile(`\b`, lacking, `\W+((the|an?|any|explicit|final|user|owner|to)\W+)*(`, stems, `|`, nouns, `)`)},
		{failures, compile(`\b`, people, `\W+((has|have|had|explicitly)\W+)*(declined|denied|rejected|refused|withdrew|revoked|vetoed|disagreed)\b`)},
		{failures, compile(`^\W*(`, opening, `\W+)*`, gone, `(`, end, `|\W+by\b)`)},
		{falseValues, compile(`\b(\w*_|is|has)?(`, stems, `|`, nouns, `)[a-z]*(_by)?["']?(\s+(is|was|are|were)\s+|\s*[:=]\s*)["']?(false|no|none|null|0)\b`, end)},
		{falseValues, compile(`\b(`, nouns, `)\W+((is|was|has|had|been)\W+)*not\W+(yet\W+|been\W+)*(given|granted|obtained|received|recorded|found)\b`)},
		{falseValues, compile(`\b`, people, `\W+said\W+no\b`, end)},
	}
}

func (s supportRule) matches(ref wire.EvidenceRef, text, summary string) bool {
	return (s.kind == "" || s.kind == ref.Kind) && (s.trust == nil || slices.Contains(s.trust, ref.TrustTier)) &&
		(s.phrases == nil || containsAny(text, s.phrases)) && (s.words == nil || s.words().MatchString(summary)) &&
		!slices.ContainsFunc(s.deniedBy, func(d denial) bool { return d.matches(summary) })
}

func containsAny(text string, phrases []string) bool {
	return slices.ContainsFunc(phrases, func(p string) bool { return strings.Contains(text, p) })
}

// strongestSupport returns the strongest state that the evidence supports, and all of them from
// the weakest on.
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

// checkAuthorization is step 1: how far the evidence supports the declared state.
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

// withApproval returns the report with a reviewer's approval as evidence.
func (r AuthorizationReport) withApproval() AuthorizationReport {
	r.Supported, r.Effective, r.Downgraded = wire.Confirmed, wire.Confirmed, false
	if !slices.Contains(r.Support, wire.Confirmed) {
		r.Support = append(slices.Clip(r.Support), wire.Confirmed)
	}
	return r
}
