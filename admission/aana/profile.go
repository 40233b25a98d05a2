package aana

import (
	"strings"

	"github.com/countersign-dev/countersign/admission/call"
	wire "github.com/countersign-dev/countersign/events/aana"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/schemas"
	aanaschema "github.com/countersign-dev/countersign/schemas/aana"
)

// profile holds all differences between the two profiles as data.
type profile struct {
	evaluator  string
	unreadable string // the hard blocker of bytes that are no event

	read     func(call.Request) (*wire.Event, error)
	validate func(*wire.Event) []schemas.Violation

	foldText        func(string) string // text normalisation for comparisons
	supportRules    []supportRule       // step 1
	liftsState      bool                // step 1: evidence raises a declared none
	coercesRoute    bool                // step 0 after the schema; the SDK runs it before
	isIdentityBound func(*wire.Event) bool
	isRiskyName     func(string) bool
	evidenceText    func(wire.EvidenceRef) []string // text that is scanned for leaks
	strictTimes     bool                            // future times and a reference's own age limit count
	scansArguments  bool                            // arguments are scanned
	alignsGate      bool                            // route and gate are made to agree
	declaredView    bool                            // evidence_integrity in the result is for the declared category
}

var hardenedProfile = &profile{
	evaluator: Name, unreadable: CodeSchemaFailed,
	read: func(r call.Request) (*wire.Event, error) { return wire.Decode(r.Body, r.Limits) },
	validate: func(e *wire.Event) []schemas.Violation {
		return aanaschema.ValidateEvent(e.Doc)
	},
	foldText: foldNFKC, supportRules: hardenedSupports, coercesRoute: true,
	isIdentityBound: identityByWords, isRiskyName: riskyByWords, evidenceText: wholeText,
	strictTimes: true, scansArguments: true, alignsGate: true,
}

var referenceProfile = &profile{
	evaluator: NameReference, unreadable: CodeNormalizationFailed,
	read: readSDK,
	validate: func(e *wire.Event) []schemas.Violation {
		return aanaschema.ValidateContract(e.Doc)
	},
	foldText: foldPlain, supportRules: referenceSupports, liftsState: true,
	isIdentityBound: identityByText, isRiskyName: riskyBySubstring, evidenceText: scannedText, declaredView: true,
}

// profileFor returns the hardened profile for every name but the reference's.
func profileFor(name call.Profile) *profile {
	if name == call.ProfileReferenceSDK {
		return referenceProfile
	}
	return hardenedProfile
}

// readSDK reads an event as the reference's SDK does. With an error that wraps
// wire.ErrNotNormal the event holds what could be read.
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
	return wire.Read(liftState(tree), sent)
}

// stateLifts is the reference's way around the contract's conditions: where they forbid an
// accept, the state that the evidence supports replaces the declared one.
var stateLifts = map[wire.Category]struct {
	needs  wire.State
	reason string
}{
	wire.PrivateRead: {wire.Authenticated, reasonLiftedRead},
	wire.Write:       {wire.Validated, reasonLiftedWrite},
}

// liftState returns tree, or a copy with the state that the evidence supports. A state outside
// the vocabulary counts as none, except for the words that the reference treats as stronger:
// those are left for the schema to refuse.
func liftState(tree map[string]any) map[string]any {
	e, _ := wire.Read(tree, tree)
	lift, may := stateLifts[e.Category]
	if !may || e.Recommended != wire.Accept || e.Authorized.Strength() >= lift.needs.Strength() || strongWords[stateWord(e.Authorized)] {
		return tree
	}
	strongest, _ := strongestSupport(referenceSupports, foldPlain, e.Evidence)
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

// stateWord is a state in the spelling that the reference looks up.
func stateWord(s wire.State) string {
	return stateSpelling.Replace(foldPlain(strings.TrimSpace(string(s))))
}

var stateSpelling = strings.NewReplacer("-", "_", " ", "_")

var strongWords = wordSet("authenticated", "logged_in", "login", "session", "verified_identity", "validated", "verified", "eligible",
	"policy_validated", "ownership_validated", "confirmed", "approved", "confirmation", "explicit_confirmation", "user_confirmed")
