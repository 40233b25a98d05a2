package evidence

import (
	"sync"
	"unicode/utf8"
	"unsafe"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence/internal/redact"
)

// Most messages need no redaction: our own records are kept as they are, and most
// events hold nothing that a detector finds. For both there is a short way, which
// reads the text once and makes no tree. Where it says no, the long way decides;
// where it says yes, the long way would have made the same record
// (TestShortWayMakesTheSameRecord, FuzzShortWay).

// maxShort is the longest event that the short way is tried for. Of longer ones
// nearly all of the cost is the search, which is the same either way.
const maxShort = 8 << 10

// workbench is what one goroutine needs again and again to make records.
type workbench struct {
	clean  redact.Cleaner
	scopes map[string]scope // of subjects seen lately
}

func newBenches() *sync.Pool {
	return &sync.Pool{New: func() any { return &workbench{scopes: map[string]scope{}} }}
}

func (b *Builder) take() *workbench { return b.benches.Get().(*workbench) }

// scopeOf remembers: records of a session share few subjects.
func (w *workbench) scopeOf(space subject.Space, subj string) scope {
	if sc, known := w.scopes[subj]; known {
		return sc
	}
	if len(w.scopes) >= maxScopes {
		clear(w.scopes)
	}
	sc := scopeOf(space, subj)
	switch sc.class {
	case "":
		sc.secret = utf8.ValidString(subj) && secretName(&w.clean, subj)
	case subject.Control:
	default:
		space.Rename(subj, func(name string) string {
			sc.secret = sc.secret || secretName(&w.clean, name)
			return name
		})
	}
	sc.named, sc.subject = sc.key, printable(subj)
	w.scopes[subj] = sc
	return sc
}

// ownShapes are the records that are nearly always written as they must be: by
// Countersign, in their canonical form. Findings and approvals are not among them:
// of those a text is redacted, or the session read.
var ownShapes = map[string]*shape{
	KindDecision + "/":                       decisionShape,
	KindCall + "/":                           shapeFor[events.Call](),
	KindControl + "/" + events.ControlCursor: shapeFor[events.Cursor](),
	KindControl + "/" + events.ControlTick:   shapeFor[events.Tick](),
}

// isOwn reports whether a text is the canonical form of one of our records of the
// subject's kind, and look finds nothing wrong with its texts.
func isOwn(sc scope, raw []byte, look func([]byte) bool) bool {
	sh := ownShapes[sc.kind+"/"+sc.member]
	if sh == nil || len(raw) > strictjson.DefaultLimits.MaxBytes || !utf8.Valid(raw) {
		return false
	}
	s := scanner{text: raw, look: look}
	return s.shaped(sh) && s.at == len(raw)
}

// harmless reports whether nothing is found in a text of one of our records.
func (w *workbench) harmless(text []byte) bool {
	return len(w.clean.Scan(unsafe.String(unsafe.SliceData(text), len(text)))) == 0
}

// short tries the short way for a body. What panics there goes the long way too.
func (r *redaction) short() (c content, ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	raw := r.m.Body
	if r.b.document != nil {
		return content{}, false
	}
	if r.sc.class != subject.Events {
		return content{kind: r.sc.kind, text: raw}, isOwn(r.sc, raw, r.bench.harmless)
	}
	if !r.usual() || structured(r.m.Header) || len(raw) > maxShort {
		return content{}, false
	}
	text, ok := r.bench.clean.Document(raw, r.sc.protocol, len(raw))
	return content{kind: r.sc.kind, text: text}, ok
}

// usual reports whether redaction takes out what detectors find and nothing else.
func (r *redaction) usual() bool {
	return !r.broken && r.withheld == "" && r.echoes == nil && (r.policy == nil || !r.policy.TakesOut())
}

// shortHeaders tries the short way for the headers.
func (r *redaction) shortHeaders() (map[string][]string, bool) {
	if r.b.document != nil || !r.usual() || r.sc.protocol == subject.ProtoAANA {
		return nil, false
	}
	out := make(map[string][]string, len(r.m.Header))
	for name, values := range r.m.Header {
		switch {
		case transportHeaders[name]:
			continue
		case ownSignature(r.sc.kind, name, values):
		case headerName(name) != name || !r.bench.clean.Texts(name, values):
			return nil, false
		}
		out[name] = values
	}
	return out, true
}
