package aump

import (
	"time"

	"github.com/countersign-dev/countersign/events/internal/field"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// Evidence is an evidence event: a runtime's record about an action.
type Evidence struct {
	Version        string // aump.version
	Type           string // aump.type
	ID             string
	Ref            Ref
	Sequence       int64
	CreatedAt      time.Time // zero if it is not RFC 3339
	EventType      string
	Summary        string
	Result         string
	Actor          Actor
	Action         *EvidenceAction
	ReasonCodes    []string
	Paths          []string
	DownstreamRefs []DownstreamRef
	Privacy        Privacy
	Hashes         Hashes
	Metadata       map[string]any

	Doc strictjson.Value // the whole document
	Raw []byte           // the bytes that DecodeEvidence was given, not a copy
}

// Actor is the party that an event is about.
type Actor struct{ Role, ID string }

// EvidenceAction is the action that an event is about.
type EvidenceAction struct{ Type, Summary, Hash string }

// Privacy is an event's statement about its content.
type Privacy struct {
	Retention             string
	ContainsPrivateFields bool
	Redaction             string
	ProtectedFields       []string
}

// Hashes chain events.
type Hashes struct{ Event, PreviousEvent, Transcript string }

// DecodeEvidence reads one evidence event. Its errors are those of
// DecodeMandate.
func DecodeEvidence(raw []byte, lim strictjson.Limits) (*Evidence, error) {
	e := &Evidence{Raw: raw}
	doc, env, err := decodeDocument(raw, lim, e.readFields)
	if !doc.Exists() {
		return nil, err
	}
	e.Doc, e.Version, e.Type = doc, env.version, env.kind
	return e, err
}

// Tree is the whole document, as strictjson.Parse gives it. Each call makes it anew.
func (e *Evidence) Tree() map[string]any { return e.Doc.ObjectTree() }

func (e *Evidence) readFields(o field.Object) {
	e.ID, e.EventType, e.Summary, e.Result = o.Text("id"), o.Text("event_type"), o.Text("summary"), o.Text("result")
	e.Ref = readChild(o, "mandate_ref", readRef)
	e.Sequence = intOrZero(o.Int("sequence"))
	e.CreatedAt = field.Instant(o.Text("created_at"))
	e.Actor = readChild(o, "actor", func(a field.Object) Actor { return Actor{Role: a.Text("role"), ID: a.Text("id")} })
	e.Action = readOptional(o, "action", func(a field.Object) EvidenceAction {
		return EvidenceAction{Type: a.Text("type"), Summary: a.Text("summary"), Hash: a.Text("hash")}
	})
	e.ReasonCodes, e.Paths = o.Texts("reason_codes"), o.Texts("paths")
	e.DownstreamRefs = readDownstream(o)
	e.Privacy = readChild(o, "privacy", readPrivacy)
	e.Hashes = readChild(o, "hashes", func(h field.Object) Hashes {
		return Hashes{Event: h.Text("event_hash"), PreviousEvent: h.Text("previous_event_hash"), Transcript: h.Text("transcript_hash")}
	})
	e.Metadata = o.Map("metadata")
}

// LeaksPrivately reports whether an event states that it holds private fields although its
// retention is not full, the only kind that may hold them.
func (e *Evidence) LeaksPrivately() bool {
	return e.Privacy.ContainsPrivateFields && e.Privacy.Retention != FullTranscript
}

// HashMatches reports whether the hash that an event states is its hash; it is true for an
// event that states none.
func (e *Evidence) HashMatches() bool {
	if e.Hashes.Event == "" {
		return true
	}
	sent, ok := NormaliseHash(e.Hashes.Event)
	want, err := EventHash(e.Tree())
	return ok && err == nil && sent == want
}

func readPrivacy(o field.Object) Privacy {
	return Privacy{
		Retention: o.Text("retention"), ContainsPrivateFields: isTrue(o.Bool("contains_private_fields")),
		Redaction: o.Text("redaction"), ProtectedFields: o.Texts("protected_fields"),
	}
}
