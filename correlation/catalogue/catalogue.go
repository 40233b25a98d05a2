// Package catalogue lists every check that AAEP 1.0.0, AgentHook 0.2 and the
// evidence events of AUMP 0.1 give rise to, those that no log can decide included, each under a stable
// identifier. It is data: what decides the checks is in package correlation and
// the packages beside this one.
package catalogue

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
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
	Protocol string          `json:"protocol"` // aaep, agenthook or aump
	Level    Level           `json:"level"`
	Severity events.Severity `json:"severity"` // of its findings, unless a case is graded lower; findings of info are hints
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
}

// All gives the catalogue in order of the identifiers, AAEP first and AUMP last. The caller
// may change the result.
func All() []Check {
	return slices.Concat(aaepEvents, aaepSessions, aaepConfirmations, aaepTransport,
		agentHookEvents, agentHookSessions, agentHookTrust, agentHookDeployments, aumpEvidence)
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

// grades of findings, short for the tables.
const (
	info     = events.SeverityInfo
	low      = events.SeverityLow
	medium   = events.SeverityMedium
	high     = events.SeverityHigh
	critical = events.SeverityCritical
)

// aaepCheck and hook make entries that are implemented, by their number.
func aaepCheck(n, ref string, l Level, s events.Severity, scope Scope, inputs, explanation, remedy string) Check {
	return Check{ID: "AAEP-C-" + n, Protocol: subject.ProtoAAEP, Level: l, Severity: s, Scope: scope, Inputs: inputs,
		Ref: citeReferences("AAEP", "AAEP", ref), Explanation: explanation, Remedy: remedy, Status: Implemented}
}

func agentHookCheck(n, ref string, l Level, s events.Severity, scope Scope, inputs, explanation, remedy string) Check {
	return Check{ID: "AH-C-" + n, Protocol: subject.ProtoAgentHook, Level: l, Severity: s, Scope: scope, Inputs: inputs,
		Ref: citeReferences("AgentHook", "AgentHook SPEC", ref), Explanation: explanation, Remedy: remedy, Status: Implemented}
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

// aaepUndecidable and hookNot make entries that the log does not decide.
func aaepUndecidable(n, ref string, l Level, scope Scope, inputs, explanation, reason string) Check {
	c := aaepCheck(n, ref, l, info, scope, inputs, explanation, "")
	c.Status, c.Reason = Undecidable, reason
	return c
}

func agentHookUndecidable(n, ref string, l Level, scope Scope, inputs, explanation, reason string) Check {
	c := agentHookCheck(n, ref, l, info, scope, inputs, explanation, "")
	c.Status, c.Reason = Undecidable, reason
	return c
}

// Remedies that many entries share.
const (
	fixEnvelope   = "Have the publisher validate its events before it sends them; the bytes are in the log."
	fixText       = "Have the publisher complete this event; nothing else is wrong with it."
	fixIDs        = "Make the publisher give every event, session, call and token an id of its own."
	fixOrder      = "Make the publisher emit a session's events in one order: started first, one terminal event last, numbers and clock rising."
	fixStates     = "Make the publisher announce every change of state when it happens."
	fixTools      = "Make the publisher close every invocation once, under the same tool and id, before it ends the session."
	fixConfirm    = "Make the agent ask first, wait for the answer and act on that answer once; have what it did reviewed."
	fixDeclared   = "Register the publisher as what it is, with a manifest that says what it sends (countersign publisher put), or have it send what is declared."
	fixAdmitter   = "This is about the admitter itself: keep the log, see whether another process signs with its key, and report it."
	fixHandshake  = "Compare what was asked for with what was answered, and have the publisher answer every request, within what it asks for."
	fixReply      = "Check which subscriber answered and when; an answer that does not count must not be acted on."
	fixStream     = "Make the publisher count positions in characters and close every output exactly once."
	fixGovernance = "Have the publisher complete the action-governance blocks, writing \"unknown\" where it does not know."
	fixSecret     = "Revoke the credential, and have the publisher redact before it publishes; the bytes are in the log."
	fixGate       = "Find out why the call did not wait at its gate; treat what it did as unauthorised until that is known."
	fixArguments  = "Compare the admitted with the executed arguments; make the runtime check the receipt against what it is about to run, or say in mutation_reason why it changed them."
	fixClaim      = "Compare the event with the decision on record and find out where the publisher has its verdict from; what ran on it was not admitted."
	fixApproval   = "Have the approval looked into, and make the runtime wait for one that is for this very action."
	fixAttest     = "Have the runtime attest what its gate really does, at the beginning of each session."
	fixWeb        = "Make the publisher record every step from the search to the evidence it uses, with the ids that link them."
	fixLLM        = "Make the publisher pair its model calls and report their figures as they were."
)
