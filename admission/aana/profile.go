package aana

import (
	"strings"

	"github.com/countersign-dev/countersign/admission/call"
	wire "github.com/countersign-dev/countersign/events/aana"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/schemas"
)

// profile is everything in which the two profiles differ, as data.
type profile struct {
	evaluator  string
	unreadable string // the hard blocker of bytes that are no event at all

	read    func(call.Request) (*wire.Event, error)
	invalid func(*wire.Event) []schemas.Violation

	fold         func(string) string // how text is made comparable
	supports     []support           // step 1
	upgrades     bool                // step 1: evidence raises a declared none
	coerces      bool                // step 0, after the schema; the SDK does it before
	identity     func(*wire.Event) bool
	riskyName    func(string) bool
	evidenceText func(wire.EvidenceRef) []string // what is scanned for leaks
	strictTimes  bool                            // the future and an own limit of age count
	arguments    bool                            // the arguments are scanned
	agrees       bool                            // route and gate are made to agree
	declaredView bool                            // evidence_integrity in the result is for the declared category
}

var hardened = &profile{
	evaluator: Name, unreadable: CodeSchemaFailed,
	read: func(r call.Request) (*wire.Event, error) { return wire.Decode(r.Body, r.Limits) },
	invalid: func(e *wire.Event) []schemas.Violation {
		return schemas.Default().AANA(e.Tree)
	},
	fold: foldNFKC, supports: hardenedSupports, coerces: true,
	identity: identityByWords, riskyName: riskyByWords, evidenceText: wholeText,
	strictTimes: true, arguments: true, agrees: true,
}

var reference = &profile{
	evaluator: NameReference, unreadable: CodeNormalizationFailed,
	read: readSDK,
	invalid: func(e *wire.Event) []schemas.Violation {
		return schemas.Default().AANAContract(e.Tree)
	},
	fold: foldPlain, supports: referenceSupports, upgrades: true,
	identity: identityByText, riskyName: riskyBySubstring, evidenceText: scannedText, declaredView: true,
}

// profileFor is the hardened profile for every name but the reference's.
func profileFor(name call.Profile) *profile {
	if name == call.ProfileReferenceSDK {
		return reference
	}
	return hardened
}

// readSDK reads an event as the reference's SDK does. With an error that wraps
// wire.ErrNotNormal the event is what could be read nonetheless.
func readSDK(r call.Request) (*wire.Event, error) {
	sent, err := strictjson.ParseObject(r.Body, r.Limits)
	if err != nil {
		return nil, err
	}
	tree, err := wire.NormaliseSDK(sent)
	if err != nil {
		e, _ := wire.Read(sent, sent)
		return e, err
	}
	return wire.Read(lifted(tree), sent)
}

// lifts is the reference's way around the contract's conditions: where they
// forbid an accept, the state that the evidence supports takes the place of the
// declared one.
var lifts = map[wire.Category]struct {
	needs  wire.State
	reason string
}{
	wire.PrivateRead: {wire.Authenticated, reasonLiftedRead},
	wire.Write:       {wire.Validated, reasonLiftedWrite},
}

// lifted is tree, or a copy with the state that the evidence supports. A state
// outside the vocabulary counts as none, except for the words that the reference
// takes for stronger ones: those it leaves for the schema to refuse.
func lifted(tree map[string]any) map[string]any {
	e, _ := wire.Read(tree, tree)
	lift, may := lifts[e.Category]
	if !may || e.Recommended != wire.Accept || e.Authorized.Strength() >= lift.needs.Strength() || strongWords[stateWord(e.Authorized)] {
		return tree
	}
	strongest, _ := supported(referenceSupports, foldPlain, e.Evidence)
	if strongest.Strength() < lift.needs.Strength() {
		return tree
	}
	c := make(map[string]any, len(tree))
	for k, v := range tree {
		c[k] = v
	}
	c["authorization_state"] = string(strongest)
	return c
}

// stateWord is a state in the spelling in which the reference looks it up.
func stateWord(s wire.State) string {
	return stateSpelling.Replace(foldPlain(strings.TrimSpace(string(s))))
}

var stateSpelling = strings.NewReplacer("-", "_", " ", "_")

var strongWords = set("authenticated", "logged_in", "login", "session", "verified_identity", "validated", "verified", "eligible",
	"policy_validated", "ownership_validated", "confirmed", "approved", "confirmation", "explicit_confirmation", "user_confirmed")
