// Package catalogue says what an entry of the catalogue of checks is, and what a finding of one is.
// The entries are in the folders of their protocols; package correlation/checks lists them all.
package catalogue

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/events"
)

// Level says how much the specification insists.
type Level string

// The levels. Derived checks are ours: no specification states them, but what
// it states makes no sense without them.
const (
	Must    Level = "MUST"
	Should  Level = "SHOULD"
	Derived Level = "derived"
)

// Scope says how much must be seen to decide a check.
type Scope string

// The scopes.
const (
	ScopeEvent      Scope = "event"      // one message
	ScopeSession    Scope = "session"    // several messages, of one session unless the inputs say more
	ScopeEndpoint   Scope = "endpoint"   // how an endpoint of Countersign's own behaves
	ScopeDeployment Scope = "deployment" // how the system is set up
)

// Status says whether the log decides a check.
type Status string

// The statuses.
const (
	Implemented Status = "implemented"
	Undecidable Status = "undecidable"
)

// Check is one entry. Texts are sentences that hold no value of any event.
type Check struct {
	ID       string          `json:"id"`
	Protocol string          `json:"protocol"` // its token
	Level    Level           `json:"level"`
	Severity events.Severity `json:"severity"` // of its findings, unless a case is graded otherwise; findings of info are hints
	Scope    Scope           `json:"scope"`
	Inputs   string          `json:"inputs"` // what it is decided from
	Ref      string          `json:"ref"`    // document and section, or proposal: "AAEP 3.2.1", "AgentHook SPEC 6, AHP-004"
	// Explanation says in one sentence what is wrong when it is broken.
	Explanation string `json:"explanation"`
	Remedy      string `json:"remedy"`
	Status      Status `json:"status"`
	// Reason says why the log does not decide the check; empty if it does.
	Reason string `json:"reason,omitempty"`
}

// Finding is one violation of a check.
type Finding struct {
	Check    string
	Case     string          // tells kinds of violations of one check apart; may be empty
	Text     string          // what exactly, in words, without values; may be empty
	Severity events.Severity // "" means the check's
	Events   []string        // ids of the events that prove it
	Seqs     []uint64        // their places in the log
	Call     string          // tool_call_id that is concerned, if one is
	// Replaces is an earlier finding that this one replaces or retracts: the
	// log has shown since that it was something else.
	Replaces *Finding
	// RetractsOnly says that nothing takes the place of the earlier finding: this one
	// is no violation.
	RetractsOnly bool
	// Unsaid says that the finding is not on the log, because its check was switched off. The
	// part that emits findings sets it.
	Unsaid bool
}

// CodeAtPath puts a code and a JSON pointer into words: bounded, and without anything
// that a terminal could take for a command.
func CodeAtPath(code, path string) string {
	if path == "" {
		return code
	}
	const longest = 160
	if len(path) > longest { // half a name could hide a credential from redaction
		path = path[:strings.LastIndexByte(path[:longest+1], '/')+1] + "…"
	}
	return code + " at " + strings.Trim(strconv.QuoteToGraphic(path), `"`)
}

// Specification is the document that the checks of a protocol are of.
type Specification struct {
	Protocol string
	Prefix   string // of identifiers
	Name     string // cited for what is in none of its sections
	Sections string // cited for a section
}

// Check makes an entry that is implemented, by its number.
func (sp Specification) Check(n, ref string, l Level, s events.Severity, scope Scope, inputs, explanation, remedy string) Check {
	return Check{ID: sp.Prefix + n, Protocol: sp.Protocol, Level: l, Severity: s, Scope: scope, Inputs: inputs,
		Ref: citeReferences(sp.Name, sp.Sections, ref), Explanation: explanation, Remedy: remedy, Status: Implemented}
}

// Undecidable makes an entry that the log does not decide.
func (sp Specification) Undecidable(n, ref string, l Level, scope Scope, inputs, explanation, reason string) Check {
	c := sp.Check(n, ref, l, events.SeverityInfo, scope, inputs, explanation, "")
	c.Status, c.Reason = Undecidable, reason
	return c
}

// citeReferences names the documents of references: sections, which have a digit or stand in
// an appendix, are of the specification, and of what has no number (CONFORMANCE, a
// reason code) the protocol is said. Proposals, RFCs and our own documents have
// names of their own.
func citeReferences(protocol, specification, refs string) string {
	var cited []string
	inSpec := false
	for _, ref := range strings.Split(refs, ", ") {
		was := inSpec
		inSpec = sectionPattern.MatchString(ref)
		switch {
		case inSpec && !was:
			ref = specification + " " + ref
		case !inSpec && !namedDocument.MatchString(ref):
			ref = protocol + " " + ref
		}
		cited = append(cited, ref)
	}
	return strings.Join(cited, ", ")
}

var (
	sectionPattern = regexp.MustCompile(`^([0-9]|[A-Z](\.|$))`)
	namedDocument  = regexp.MustCompile(`^(AHP-|RFC |docs/)`)
)

// Remedies that several protocols share.
const (
	FixEnvelope = "Have the publisher validate its events before it sends them; the bytes are in the log."
	FixIDs      = "Make the publisher give every event, session, call and token an id of its own."
	FixOrder    = "Make the publisher emit a session's events in one order: started first, one terminal event last, numbers and clock rising."
	FixTools    = "Make the publisher close every invocation once, under the same tool and id, before it ends the session."
	FixSecret   = "Revoke the credential, and have the publisher redact before it publishes; the bytes are in the log."
)
