// Package subject is the grammar of Countersign's NATS subjects (docs/reference/subjects.md): typed
// builders, one parser, and the escaping of tokens that NATS cannot carry. It uses no server;
// package streams does. Begin reading with Space and Parse.
package subject

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// DefaultPrefix is the first token of every subject unless configured.
const DefaultPrefix = "gov"

// NoSession is the token of an absent session (or any absent value).
const NoSession = "~"

// maxToken is the maximum length of a token in plain; longer ones are hashed.
const maxToken = 64

// Class is the second token: the purpose of a subject.
type Class string

// The classes of subjects.
const (
	Admit       Class = "admit"
	Resolve     Class = "resolve"
	Follow      Class = "follow"
	Mandates    Class = "mandates" // requests of mandates' principals
	Tokens      Class = "tokens"   // requests of gateways for their tenant's tokens
	Events      Class = "events"
	Ingest      Class = "ingest" // events between a publisher and the log
	Decisions   Class = "decisions"
	Calls       Class = "calls"
	Findings    Class = "findings"
	Approvals   Class = "approvals"
	Control     Class = "control"
	Quarantine  Class = "quarantine"
	Checkpoints Class = "checkpoints"
)

// Classes are all classes, in the order of the documentation.
var Classes = []Class{Admit, Ingest, Events, Decisions, Calls, Findings, Approvals, Control, Resolve, Follow, Mandates, Tokens, Quarantine, Checkpoints}

// LogClasses are the classes that a shard's log holds, in one total order.
var LogClasses = []Class{Events, Decisions, Calls, Findings, Approvals, Control}

// TypeRequest is the event type of the admitter's copy of a request.
const TypeRequest = "request"

// Event types of what the admitter writes beside decisions on aioc's proposals.
const (
	TypeToolEvaluated    = "tool_policy_evaluated"
	TypeHandoffEvaluated = "handoff_policy_evaluated"
)

// Protocols.
const (
	ProtoAAEP      = "aaep"
	ProtoAgentHook = "agenthook"
	ProtoAANA      = "aana"
	ProtoAUMP      = "aump"
	ProtoTool      = "tool"
	ProtoHandoff   = "handoff"
)

// Protocols lists every protocol token.
var Protocols = []string{ProtoAAEP, ProtoAgentHook, ProtoAANA, ProtoAUMP, ProtoTool, ProtoHandoff}

// Escape converts any text to one subject token: text that is not [A-Za-z0-9_-]+ becomes "~"
// and its unpadded base64url; if the token would be longer than 64 bytes it becomes "~h" and
// the SHA-256 in hex; the empty text is "~". Escape is injective except for the hash.
func Escape(s string) string {
	if s == "" {
		return NoSession
	}
	tok := s
	if !isPlainToken(s) {
		tok = "~" + base64.RawURLEncoding.EncodeToString([]byte(s))
		// "~h…" is reserved for hashes. Base64 text may begin with h as well, but a hash token
		// has exactly 66 characters, more than any plain one.
	}
	if len(tok) > maxToken {
		sum := sha256.Sum256([]byte(s))
		return "~h" + hex.EncodeToString(sum[:])
	}
	return tok
}

// Unescape returns the input of Escape. For a hashed token it returns the token itself and
// false: the text cannot be recovered.
func Unescape(tok string) (s string, exact bool) {
	switch {
	case tok == NoSession:
		return "", true
	case !strings.HasPrefix(tok, "~"):
		return tok, isPlainToken(tok) && len(tok) <= maxToken
	case isHash(tok):
		return tok, false
	}
	b, err := base64.RawURLEncoding.DecodeString(tok[1:])
	if err != nil || isPlainToken(string(b)) || Escape(string(b)) != tok {
		return tok, false
	}
	return string(b), true
}

func isPlainToken(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-':
		default:
			return false
		}
	}
	return s != ""
}

// Space builds and parses the subjects below one prefix. The zero Space uses DefaultPrefix. The
// builders escape their arguments.
type Space struct{ Prefix string }

func (s Space) prefix() string { return cmp.Or(s.Prefix, DefaultPrefix) }

func (s Space) joinTokens(class Class, tokens ...string) string {
	return s.prefix() + "." + string(class) + "." + strings.Join(tokens, ".")
}

// Admit is the subject on which a tenant asks for admission.
func (s Space) Admit(tenant, protocol string) string {
	return s.joinTokens(Admit, Escape(tenant), Escape(protocol))
}

// Resolve is the subject on which a reviewer resolves an approval workflow.
func (s Space) Resolve(tenant string) string { return s.joinTokens(Resolve, Escape(tenant)) }

// Follow is the subject on which a subscriber reads the outputs of its tenant's log.
func (s Space) Follow(tenant string) string { return s.joinTokens(Follow, Escape(tenant)) }

// Mandates is the subject on which the principal of a mandate asks to be shown it, or revokes it.
func (s Space) Mandates(tenant string) string { return s.joinTokens(Mandates, Escape(tenant)) }

// Tokens is the subject on which a gateway asks for the records of its tenant's tokens.
func (s Space) Tokens(tenant string) string { return s.joinTokens(Tokens, Escape(tenant)) }

// Event is the subject of a producer's event. typ may have several tokens
// ("agent.tool.invoked"); each is escaped separately.
func (s Space) Event(tenant, publisher, protocol, session, typ string) string {
	parts := strings.Split(typ, ".")
	for i, p := range parts {
		parts[i] = Escape(p)
	}
	return s.joinTokens(Events, append([]string{Escape(tenant), Escape(publisher), Escape(protocol), Escape(session)}, parts...)...)
}

// Request is the subject of the admitter's copy of an admission request.
func (s Space) Request(tenant, publisher, protocol, session string) string {
	return s.Event(tenant, publisher, protocol, session, TypeRequest)
}

// Decision is the subject of a decision record.
func (s Space) Decision(tenant, verdict, session string) string {
	return s.joinTokens(Decisions, Escape(tenant), Escape(verdict), Escape(session))
}

// Call is the subject of a call record.
func (s Space) Call(tenant, state, session string) string {
	return s.joinTokens(Calls, Escape(tenant), Escape(state), Escape(session))
}

// Finding is the subject of a finding.
func (s Space) Finding(tenant, severity, session string) string {
	return s.joinTokens(Findings, Escape(tenant), Escape(severity), Escape(session))
}

// Approval is the subject of an approval record.
func (s Space) Approval(tenant, status, workflow string) string {
	return s.joinTokens(Approvals, Escape(tenant), Escape(status), Escape(workflow))
}

// Outputs matches the subjects of a class of a tenant's outputs: all of them, or those with one
// state (verdict, severity) or of one session.
func (s Space) Outputs(class Class, tenant, state, session string) string {
	return s.joinTokens(class, Escape(tenant), anyOr(state), anyOr(session))
}

// OfSession are the patterns of the log's subjects that name a session of a tenant.
func (s Space) OfSession(tenant, session string) []string {
	list := []string{s.joinTokens(Events, Escape(tenant), "*", "*", Token(session), ">")}
	for _, class := range []Class{Decisions, Calls, Findings} {
		list = append(list, s.Outputs(class, tenant, "", session))
	}
	return list
}

// EventsOf matches the subjects of a protocol's events in a tenant: all of them, or those of one session, or
// of one type, which is a single token.
func (s Space) EventsOf(tenant, protocol, session, typ string) string {
	last := ">"
	if typ != "" {
		last = Escape(typ)
	}
	return s.joinTokens(Events, Escape(tenant), "*", Escape(protocol), anyOr(session), last)
}

func anyOr(token string) string {
	if token == "" {
		return "*"
	}
	return Token(token)
}

// Control is the subject of a shard's control records.
func (s Space) Control(shard, kind string) string {
	return s.joinTokens(Control, Escape(shard), Escape(kind))
}

// Quarantine is the subject of bytes that could not be parsed.
func (s Space) Quarantine(tenant string) string { return s.joinTokens(Quarantine, Escape(tenant)) }

// Checkpoints is the subject of a shard's checkpoints.
func (s Space) Checkpoints(shard string) string { return s.joinTokens(Checkpoints, Escape(shard)) }

// All matches every subject of a class.
func (s Space) All(class Class) string { return s.joinTokens(class, ">") }

// AllOf matches every subject of a class and a tenant.
func (s Space) AllOf(class Class, tenant string) string {
	return s.joinTokens(class, Escape(tenant), ">")
}

// Rename returns a subject with the names that producers choose replaced: the session, and the
// parts of an event's type, together if the whole type is renamed. rename gets the unescaped
// values, and returns a name that is not to be replaced unchanged. A hashed token, and a
// foreign subject, stay unchanged.
func (s Space) Rename(subj string, rename func(value string) string) string {
	p, err := s.Parse(subj)
	if err != nil {
		return subj
	}
	prefix := s.prefix()
	fields := classLayouts[p.Class]
	tokens := strings.SplitN(subj[len(prefix)+1:], ".", 1+len(fields))
	for i, f := range fields {
		switch f {
		case fieldSession:
			tokens[1+i] = renameToken(tokens[1+i], rename)
		case fieldType:
			if whole := rename(p.Type); whole != p.Type {
				tokens[1+i] = Escape(whole)
				continue
			}
			parts := strings.Split(tokens[1+i], ".")
			for k, part := range parts {
				parts[k] = renameToken(part, rename)
			}
			tokens[1+i] = strings.Join(parts, ".")
		}
	}
	return prefix + "." + strings.Join(tokens, ".")
}

func renameToken(tok string, rename func(string) string) string {
	value, exact := Unescape(tok)
	if !exact || value == "" {
		return tok
	}
	if name := rename(value); name != value {
		return Escape(name)
	}
	return tok
}

// ErrForeign reports that a subject is not Countersign's.
var ErrForeign = errors.New("subject: not a Countersign subject")

// Parsed is a parsed subject. Fields that its class lacks are empty. Values are unescaped; for
// a hashed token the field holds the token itself.
type Parsed struct {
	Class     Class
	Tenant    string // empty for control and checkpoints
	Publisher string // events, ingest
	Protocol  string // admit, events, ingest
	Session   string // events, ingest, decisions, calls, findings
	Type      string // events, ingest: dotted type, or TypeRequest
	Verdict   string // decisions
	State     string // calls: state; findings: severity; approvals: status
	Workflow  string // approvals
	Shard     string // control, checkpoints
	Kind      string // control
}

// Parse parses a subject. It accepts exactly what the builders build, so that no two subjects
// have the same values: a token that Escape would have written differently makes the subject
// foreign.
func (s Space) Parse(subj string) (Parsed, error) {
	prefix := s.prefix()
	if len(subj) <= len(prefix) || subj[:len(prefix)] != prefix || subj[len(prefix)] != '.' {
		return Parsed{}, fmt.Errorf("%w: %.80q does not begin with %q", ErrForeign, subj, prefix)
	}
	class, rest, _ := strings.Cut(subj[len(prefix)+1:], ".")
	fields, known := classLayouts[Class(class)]
	if tokens := strings.Count(rest, ".") + 1; !known || rest == "" || tokens < len(fields) || tokens > len(fields) && Class(class) != Events && Class(class) != Ingest {
		return Parsed{}, fmt.Errorf("%w: %.80q", ErrForeign, subj)
	}
	p := Parsed{Class: Class(class)}
	parts := [...]*string{fieldTenant: &p.Tenant, fieldPublisher: &p.Publisher, fieldProtocol: &p.Protocol, fieldSession: &p.Session, fieldType: &p.Type,
		fieldVerdict: &p.Verdict, fieldState: &p.State, fieldWorkflow: &p.Workflow, fieldShard: &p.Shard, fieldKind: &p.Kind}
	for _, f := range fields {
		ok := false
		if f == fieldType { // the rest
			*parts[f], ok = readType(rest)
		} else {
			var token string
			token, rest, _ = strings.Cut(rest, ".")
			*parts[f], ok = unescapeToken(token)
		}
		if !ok {
			return Parsed{}, fmt.Errorf("%w: %.80q has a token that is not escaped properly", ErrForeign, subj)
		}
	}
	return p, nil
}

// unescapeToken unescapes a token that Escape may have written.
func unescapeToken(tok string) (value string, ok bool) {
	value, exact := Unescape(tok)
	return value, exact || isHash(tok)
}

func isHash(tok string) bool {
	digits, ok := strings.CutPrefix(tok, "~h")
	if !ok || len(digits) != 2*sha256.Size {
		return false
	}
	return strings.Trim(digits, "0123456789abcdef") == ""
}

// readType reads the tokens of an event type.
func readType(tokens string) (string, bool) {
	escaped := false
	for t := range strings.SplitSeq(tokens, ".") {
		value, ok := unescapeToken(t)
		if !ok || strings.Contains(value, ".") { // Event splits there
			return "", false
		}
		escaped = escaped || value != t
	}
	if !escaped {
		return tokens, true
	}
	parts := strings.Split(tokens, ".")
	for i, t := range parts {
		parts[i], _ = unescapeToken(t)
	}
	return strings.Join(parts, "."), true
}

// subjectField is a field of a Parsed.
type subjectField uint8

const (
	fieldTenant subjectField = iota
	fieldPublisher
	fieldProtocol
	fieldSession
	fieldType
	fieldVerdict
	fieldState
	fieldWorkflow
	fieldShard
	fieldKind
)

// fieldNames are the names of the parts in a pattern.
var fieldNames = [...]string{fieldTenant: "tenant", fieldPublisher: "publisher", fieldProtocol: "protocol", fieldSession: "session", fieldType: "type",
	fieldVerdict: "verdict", fieldState: "state", fieldWorkflow: "workflow", fieldShard: "shard", fieldKind: "kind"}

// Pattern is what a subject of a class looks like below the default prefix:
// gov.resolve.<tenant>.
func Pattern(c Class) string {
	pattern := DefaultPrefix + "." + string(c)
	for _, f := range classLayouts[c] {
		pattern += ".<" + fieldNames[f] + ">"
	}
	return pattern
}

var classLayouts = map[Class][]subjectField{
	Admit:       {fieldTenant, fieldProtocol},
	Resolve:     {fieldTenant},
	Follow:      {fieldTenant},
	Mandates:    {fieldTenant},
	Tokens:      {fieldTenant},
	Events:      {fieldTenant, fieldPublisher, fieldProtocol, fieldSession, fieldType},
	Ingest:      {fieldTenant, fieldPublisher, fieldProtocol, fieldSession, fieldType},
	Decisions:   {fieldTenant, fieldVerdict, fieldSession},
	Calls:       {fieldTenant, fieldState, fieldSession},
	Findings:    {fieldTenant, fieldState, fieldSession},
	Approvals:   {fieldTenant, fieldState, fieldWorkflow},
	Control:     {fieldShard, fieldKind},
	Quarantine:  {fieldTenant},
	Checkpoints: {fieldShard},
}
