package fact

import (
	"strings"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// An event is parsed once. Its schema, its canonical forms and its typed event are read from that
// document. A tree is made of it only to look for secrets and for what was redacted.

// maxInterned bounds the texts that a Decoder keeps; maxInternedText bounds their length.
const (
	maxInterned     = 4096
	maxInternedText = 128
)

// Intern returns a shared copy of a frequent text. The copy does not keep the message in
// memory.
func (d *Decoder) Intern(s string) string {
	if len(s) > maxInternedText {
		return strings.Clone(s)
	}
	if known, ok := d.interned[s]; ok {
		return known
	}
	if len(d.interned) >= maxInterned || d.interned == nil {
		d.interned = make(map[string]string, 64)
	}
	s = strings.Clone(s)
	d.interned[s] = s
	return s
}

// FormBuffer is a reused buffer for canonical forms.
type FormBuffer struct{ buf []byte }

// WriteForm returns what form appends, in the buffer. The result is valid until the next call.
func (w *FormBuffer) WriteForm(form func(b []byte) []byte) []byte {
	b := form(w.buf[:0])
	w.buf = b[:0]
	return b
}

// AppendTrimmed appends the canonical form of an object without the members in omit, and its
// metadata without those in omitMetadata. Empty metadata is left out.
func AppendTrimmed(b []byte, doc strictjson.Value, omit, omitMetadata MemberNames) []byte {
	var room [24]strictjson.Value
	b = append(b, '{')
	first := len(b)
	for _, m := range doc.AppendSorted(room[:0]) {
		before := len(b)
		if omit[m.Key()] {
			continue
		}
		if before > first {
			b = append(b, ',')
		}
		if m.Key() != "metadata" || m.Kind() != strictjson.KindObject || omitMetadata == nil {
			b = m.AppendMember(b)
			continue
		}
		empty := len(b) + len(`"metadata":{}`)
		if b = AppendTrimmed(append(b, `"metadata":`...), m, omitMetadata, nil); len(b) == empty {
			b = b[:before]
		}
	}
	return append(b, '}')
}
