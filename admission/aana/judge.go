package aana

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/admission/call"
	wire "github.com/countersign-dev/countersign/events/aana"
)

// Inputs is what a judgement needs beside the event.
type Inputs struct {
	Now     time.Time // evidence is as old as this says
	Profile call.Profile

	// Approved says that a reviewer has approved the call: evidence of kind approval
	// that Countersign itself vouches for. It confirms a write that the sender claims
	// any authorization for, and answers a recommended ask. It does nothing else.
	Approved bool

	// Digest masks identifiers that look like credentials; nil leaves no trace of
	// them at all.
	Digest func([]byte) string
}

// Result is a judgement: what the envelope says, and what only the record and
// the policies hear.
type Result struct {
	Route       wire.Route // final
	Own         wire.Route // aana_route: the contract's own, before the runtime's
	Recommended wire.Route // what the runtime recommended, after step 0
	Blockers    []string
	Reasons     []string

	Event         EventView
	Authorization *AuthorizationReport
	Evidence      *EvidenceIntegrity
	Errors        []ValidationError // of a malformed event

	unread   bool // the event could not even be normalised: aix is all zero
	category wire.Category
	highRisk bool
	said     []saying
}

// saying is one reason for the record. Route is what the reason alone asks for.
type saying struct {
	route      wire.Route
	code, path string
}

// ValidationError says where an event breaks the contract and what the schema
// asks for there. It never holds a value of the event.
type ValidationError struct {
	Path    string `json:"path"`    // dotted; "event" for the whole of it
	Message string `json:"message"` // the schema's keyword and demand, or a reason code
}

// Judge decides on a valid event. It is a pure function of its arguments; the
// event is one that Decode or Read gave without an error and that satisfies the
// schema of its profile.
func Judge(e *wire.Event, in Inputs) Result {
	p := profileFor(in.Profile)
	j := &judgement{profile: p, event: e, now: in.Now, mask: masker(in.Digest)}
	j.Event = viewOf(e, j.mask)
	j.Blockers, j.Reasons = []string{}, []string{}
	j.Own, j.Recommended = wire.Accept, e.Recommended
	j.approved = in.Approved
	j.declare()
	j.classify()
	j.consult()
	j.evidence()
	j.arguments()
	j.finish()
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

// block adds a hard blocker, once, and leaves a route at least as strict as r.
func (j *judgement) block(r wire.Route, code, path string) {
	j.Own = wire.Stricter(j.Own, r)
	if slices.Contains(j.Blockers, code) {
		return
	}
	j.Blockers = append(j.Blockers, code)
	j.said = append(j.said, saying{r, code, path})
}

// reason adds a reason that asks for nothing by itself.
func (j *judgement) reason(code, path string) {
	j.Reasons = append(j.Reasons, code)
	j.said = append(j.said, saying{wire.Accept, code, path})
}

// declare is steps 0 and 1: the accept that the contract forbids, and what the
// evidence leaves of the declared authorization.
func (j *judgement) declare() {
	sent, _ := j.event.Sent["authorization_state"].(string)
	if lift := lifts[j.event.Category]; j.upgrades && sent != string(j.event.Authorized) {
		j.reason(lift.reason, "/authorization_state")
	}
	if j.coerces {
		j.Recommended = wire.Coerce(j.event.Category, j.event.Authorized, j.event.Recommended)
		if j.Recommended != j.event.Recommended {
			j.said = append(j.said, saying{j.Recommended, reasonCoerced, "/recommended_route"})
		}
	}
	if j.approved && j.Recommended == wire.Ask {
		j.Recommended = wire.Accept
	}
	r := j.authorization(j.event)
	if j.approved && j.event.Category == wire.Write && j.event.Authorized != wire.None {
		r = r.confirmed()
	}
	j.Authorization = &r
	if r.Downgraded {
		j.reason(reasonDowngraded, "/authorization_state")
		j.block(wire.Accept, CodeUnsupported, "/authorization_state")
	}
}

// classify is step 2.
func (j *judgement) classify() {
	corrected := false
	if j.category, corrected = j.profile.classify(j.event); corrected {
		j.reason(reasonReclassified, "/tool_category")
		j.block(wire.Accept, CodeMisclassified, "/tool_category")
	}
	j.highRisk = j.risky(j.event)
}

// consult is step 3: the table.
func (j *judgement) consult() {
	c := lookup(j.category, j.highRisk, j.Authorization.Effective)
	j.Own = wire.Stricter(j.Own, c.route)
	j.reason(c.reason, "")
	for _, b := range c.blockers {
		j.block(c.route, b, "")
	}
}

// evidence is step 4. The order of reasons and blockers is the contract's.
func (j *judgement) evidence() {
	refs := j.event.Evidence
	for i, ref := range refs {
		if j.deniesAuthorization(ref) {
			path := "/evidence_refs/" + strconv.Itoa(i)
			j.reason(reasonMissingAuth, path)
			j.block(wire.Defer, CodeMissingAuth, path)
			break
		}
	}
	if consequential[j.category] && len(refs) == 0 {
		j.reason(reasonNoRefs, "/evidence_refs")
		j.block(wire.Defer, CodeNoRefs, "/evidence_refs")
	}
	report := j.inspect(refs, j.category, j.now, j.mask)
	j.Evidence = report
	for _, code := range report.ErrorCodes {
		j.block(errorRoutes[code], code, report.first[code]) // refuse for a code that is not in the table
	}
	if len(report.Contradictory) > 0 {
		j.reason(reasonContradicts, "/evidence_refs")
		j.block(wire.Defer, CodeContradictory, "/evidence_refs")
	}
	if len(report.Missing) > 0 {
		j.reason(reasonMissing, "/evidence_refs")
		j.block(wire.Defer, CodeMissingInformation, "/evidence_refs")
	}
	for _, code := range report.WarningCodes {
		j.Reasons = append(j.Reasons, "evidence_warning:"+code)
		j.said = append(j.said, saying{wire.Accept, code, report.first[code]})
	}
	if j.declaredView && j.category != j.event.Category {
		j.Evidence = j.inspect(refs, j.event.Category, j.now, j.mask)
	}
}

// rawArguments is the member in which runtimes pass on arguments that are no
// JSON.
const rawArguments = "__raw"

func (j *judgement) arguments() {
	if !j.profile.arguments {
		return
	}
	if _, raw := j.event.Arguments[rawArguments]; raw {
		j.block(wire.Refuse, CodeRawArguments, "/proposed_arguments/"+rawArguments)
	}
	if secretArgument(j.event.Arguments) {
		j.block(wire.Refuse, CodeArgumentSecret, "/proposed_arguments")
	}
}

// finish is step 5.
func (j *judgement) finish() {
	if j.agrees && j.Own == wire.Accept && len(j.Blockers) > 0 {
		j.Own = wire.Ask
		j.Reasons = append(j.Reasons, reasonGateFails)
		j.said = append(j.said, saying{wire.Ask, reasonGateFails, ""})
	}
	j.Route = wire.Stricter(j.Own, j.Recommended)
	if j.Route != j.Own {
		j.Reasons = append(j.Reasons, reasonStricterRoute+":"+string(j.Recommended))
		j.said = append(j.said, saying{j.Recommended, reasonStricterRoute, "/recommended_route"})
	}
	if j.Recommended == wire.Refuse {
		j.block(wire.Accept, CodeRuntimeRefusal, "/recommended_route")
	}
	if j.Route == wire.Accept && len(j.Blockers) > 0 {
		// Only the reference leaves it so; its gate fails, and so does our verdict.
		j.said = append(j.said, saying{wire.Ask, reasonGateFails, ""})
	}
}

// passes reports whether the final gate lets the call through.
func (r Result) passes() bool {
	return r.Route == wire.Accept && len(r.Blockers) == 0 && len(r.Errors) == 0
}

// masker hides identifiers that look like credentials or are longer than
// anybody's identifier.
func masker(digest func([]byte) string) func(id, fallback string) string {
	return func(id, fallback string) string {
		low := strings.ToLower(strings.TrimSpace(id))
		switch {
		case low == "":
			return fallback
		case len(id) <= maxIdentifier && !containsAny(low, credentialMarks) && !leaks(secrets, id):
			return id
		case digest == nil:
			return fallback
		}
		d := digest([]byte(id))
		form, sum := d[:strings.LastIndexByte(d, ':')+1], d[strings.LastIndexByte(d, ':')+1:]
		if form == "" {
			return fallback // there is no key to digest with
		}
		return fallback + ":" + form + sum[:min(len(sum), 16)]
	}
}

// maxIdentifier is the longest identifier that a result repeats, in bytes.
const maxIdentifier = 256

// credentialMarks are parts of identifiers that look like credentials.
var credentialMarks = []string{"bearer ", "api_key", "token", "secret", "password", "sk_", "sk-or_", "sk-proj_", "hf_", "ghp_", "github_pat"}
