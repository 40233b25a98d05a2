package aana

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/admission/call"
	wire "github.com/countersign-dev/countersign/events/aana"
)

// Inputs are the inputs of judge in addition to the event.
type Inputs struct {
	Now     time.Time // reference time for the age of evidence
	Profile call.Profile

	// Approved reports that a reviewer has approved the call: evidence of kind approval that
	// Countersign itself provides. It confirms a write for which the sender claims any
	// authorization, and answers a recommended ask. It has no other effect.
	Approved bool

	// Digest masks identifiers that look like credentials; with nil they are dropped.
	Digest func([]byte) string
}

// Result is the result of judge: the content of the envelope, and what only the record and the
// policies get.
type Result struct {
	Route       wire.Route // final
	AANARoute   wire.Route // aana_route: by the contract, before the runtime's recommendation
	Recommended wire.Route // the runtime's recommendation, after step 0
	Blockers    []string
	Reasons     []string

	Event         EventView
	Authorization *AuthorizationReport
	Evidence      *EvidenceIntegrity
	Errors        []ValidationError // of a malformed event

	notNormalised bool // the event could not even be normalised: aix is all zero
	category      wire.Category
	highRisk      bool
	recorded      []recordedReason
}

// recordedReason is one reason for the record. route is the route that the reason alone
// demands.
type recordedReason struct {
	route      wire.Route
	code, path string
}

// ValidationError states where an event violates the schema and what the schema demands there.
// It never holds a value of the event.
type ValidationError struct {
	Path    string `json:"path"`    // dotted; "event" for the whole of it
	Message string `json:"message"` // the schema's keyword and demand, or a reason code
}

// judge decides on a valid event. It is a pure function of its arguments; the event must come
// from Decode or Read without an error and satisfy the schema of its profile.
func judge(e *wire.Event, in Inputs) Result {
	p := profileFor(in.Profile)
	j := &judgement{profile: p, event: e, now: in.Now, mask: newMasker(in.Digest)}
	j.Event = viewOf(e, j.mask)
	j.Blockers, j.Reasons = []string{}, []string{}
	j.AANARoute, j.Recommended = wire.Accept, e.Recommended
	j.approved = in.Approved
	j.applyAuthorization()
	j.applyCategory()
	j.applyMatrix()
	j.applyEvidence()
	j.checkArguments()
	j.finishRoute()
	return j.Result
}

type judgement struct {
	Result
	*profile
	event    *wire.Event
	approved bool
	now      time.Time
	mask     func(id, fallback string) string
}

// addBlocker adds a hard blocker, once, and makes the route at least as strict as r.
func (j *judgement) addBlocker(r wire.Route, code, path string) {
	j.AANARoute = wire.Stricter(j.AANARoute, r)
	if slices.Contains(j.Blockers, code) {
		return
	}
	j.Blockers = append(j.Blockers, code)
	j.recorded = append(j.recorded, recordedReason{r, code, path})
}

// addReason adds a reason that does not change the route.
func (j *judgement) addReason(code, path string) {
	j.Reasons = append(j.Reasons, code)
	j.recorded = append(j.recorded, recordedReason{wire.Accept, code, path})
}

// applyAuthorization is steps 0 and 1: it corrects an accept that the contract forbids, and
// limits the declared authorization to what the evidence supports.
func (j *judgement) applyAuthorization() {
	sent, _ := j.event.Sent["authorization_state"].(string)
	if lift := stateLifts[j.event.Category]; j.liftsState && sent != string(j.event.Authorized) {
		j.addReason(lift.reason, "/authorization_state")
	}
	if j.coercesRoute {
		j.Recommended = wire.Coerce(j.event.Category, j.event.Authorized, j.event.Recommended)
		if j.Recommended != j.event.Recommended {
			j.recorded = append(j.recorded, recordedReason{j.Recommended, reasonCoerced, "/recommended_route"})
		}
	}
	if j.approved && j.Recommended == wire.Ask {
		j.Recommended = wire.Accept
	}
	r := j.checkAuthorization(j.event)
	if j.approved && j.event.Category == wire.Write && j.event.Authorized != wire.None {
		r = r.withApproval()
	}
	j.Authorization = &r
	if r.Downgraded {
		j.addReason(reasonDowngraded, "/authorization_state")
		j.addBlocker(wire.Accept, CodeUnsupported, "/authorization_state")
	}
}

// applyCategory is step 2.
func (j *judgement) applyCategory() {
	corrected := false
	if j.category, corrected = j.profile.classifyCategory(j.event); corrected {
		j.addReason(reasonReclassified, "/tool_category")
		j.addBlocker(wire.Accept, CodeMisclassified, "/tool_category")
	}
	j.highRisk = j.isHighRisk(j.event)
}

// applyMatrix is step 3: the table.
func (j *judgement) applyMatrix() {
	c := lookupCell(j.category, j.highRisk, j.Authorization.Effective)
	j.AANARoute = wire.Stricter(j.AANARoute, c.route)
	j.addReason(c.reason, "")
	for _, b := range c.blockers {
		j.addBlocker(c.route, b, "")
	}
}

// applyEvidence is step 4. The order of reasons and blockers is the contract's.
func (j *judgement) applyEvidence() {
	refs := j.event.Evidence
	for i, ref := range refs {
		if j.deniesAuthorization(ref) {
			path := "/evidence_refs/" + strconv.Itoa(i)
			j.addReason(reasonMissingAuth, path)
			j.addBlocker(wire.Defer, CodeMissingAuth, path)
			break
		}
	}
	if needsEvidence[j.category] && len(refs) == 0 {
		j.addReason(reasonNoRefs, "/evidence_refs")
		j.addBlocker(wire.Defer, CodeNoRefs, "/evidence_refs")
	}
	report := j.inspectEvidence(refs, j.category, j.now, j.mask)
	j.Evidence = report
	for _, code := range report.ErrorCodes {
		j.addBlocker(errorRoutes[code], code, report.first[code]) // refuse for a code that is not in the table
	}
	if len(report.Contradictory) > 0 {
		j.addReason(reasonContradicts, "/evidence_refs")
		j.addBlocker(wire.Defer, CodeContradictory, "/evidence_refs")
	}
	if len(report.Missing) > 0 {
		j.addReason(reasonMissing, "/evidence_refs")
		j.addBlocker(wire.Defer, CodeMissingInformation, "/evidence_refs")
	}
	for _, code := range report.WarningCodes {
		j.Reasons = append(j.Reasons, "evidence_warning:"+code)
		j.recorded = append(j.recorded, recordedReason{wire.Accept, code, report.first[code]})
	}
	if j.declaredView && j.category != j.event.Category {
		j.Evidence = j.inspectEvidence(refs, j.event.Category, j.now, j.mask)
	}
}

// rawArguments is the member in which runtimes pass on arguments that are not JSON.
const rawArguments = "__raw"

func (j *judgement) checkArguments() {
	if !j.profile.scansArguments {
		return
	}
	if _, raw := j.event.Arguments[rawArguments]; raw {
		j.addBlocker(wire.Refuse, CodeRawArguments, "/proposed_arguments/"+rawArguments)
	}
	if hasSecretArgument(j.event.Arguments) {
		j.addBlocker(wire.Refuse, CodeArgumentSecret, "/proposed_arguments")
	}
}

// finishRoute is step 5.
func (j *judgement) finishRoute() {
	if j.alignsGate && j.AANARoute == wire.Accept && len(j.Blockers) > 0 {
		j.AANARoute = wire.Ask
		j.Reasons = append(j.Reasons, reasonGateFails)
		j.recorded = append(j.recorded, recordedReason{wire.Ask, reasonGateFails, ""})
	}
	j.Route = wire.Stricter(j.AANARoute, j.Recommended)
	if j.Route != j.AANARoute {
		j.Reasons = append(j.Reasons, reasonStricterRoute+":"+string(j.Recommended))
		j.recorded = append(j.recorded, recordedReason{j.Recommended, reasonStricterRoute, "/recommended_route"})
	}
	if j.Recommended == wire.Refuse {
		j.addBlocker(wire.Accept, CodeRuntimeRefusal, "/recommended_route")
	}
	if j.Route == wire.Accept && len(j.Blockers) > 0 {
		// Only the reference leaves the accept; its gate fails, and so the verdict is ask.
		j.recorded = append(j.recorded, recordedReason{wire.Ask, reasonGateFails, ""})
	}
}

// passesGate reports whether the final gate allows the call.
func (r Result) passesGate() bool {
	return r.Route == wire.Accept && len(r.Blockers) == 0 && len(r.Errors) == 0
}

// newMasker masks identifiers that look like credentials or are too long for an identifier.
func newMasker(digest func([]byte) string) func(id, fallback string) string {
	return func(id, fallback string) string {
		low := strings.ToLower(strings.TrimSpace(id))
		switch {
		case low == "":
			return fallback
		case len(id) <= maxIdentifier && !containsAny(low, credentialMarks) && !containsLeak(secretPatterns, id):
			return id
		case digest == nil:
			return fallback
		}
		d := digest([]byte(id))
		form, sum := d[:strings.LastIndexByte(d, ':')+1], d[strings.LastIndexByte(d, ':')+1:]
		if form == "" {
			return fallback // without a key there is no digest
		}
		return fallback + ":" + form + sum[:min(len(sum), 16)]
	}
}

// maxIdentifier is the longest identifier that a result repeats, in bytes.
const maxIdentifier = 256

// credentialMarks are parts of identifiers that look like credentials.
var credentialMarks = []string{"bearer ", "api_key", "token", "secret", "password", "sk_", "sk-or_", "sk-proj_", "hf_", "ghp_", "github_pat"}
