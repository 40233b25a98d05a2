package evidence

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence/internal/canonical"
)

// Version is the version of the record format, the member v of every record.
const Version = 1

// The kinds of records.
const (
	KindRequest     = "request"
	KindEvent       = "event"
	KindDecision    = "decision"
	KindCall        = "call"
	KindFinding     = "finding"
	KindApproval    = "approval"
	KindControl     = "control"
	KindUnparseable = "unparseable"
)

// Redaction says that a value was removed from the evidence copy.
type Redaction struct {
	Action     string `json:"action,omitempty"` // what was done; mask if absent, in records that were built without policies
	Commitment string `json:"commitment"`       // to the value
	Detector   string `json:"detector"`         // what found it
	Path       string `json:"path"`             // JSON pointer into the record; the last token for object keys and header names is the new name
	Policy     string `json:"policy,omitempty"` // builtin or <name>@<id> of a policy and, behind a /, its rule
}

// Record is the evidence of one log message. Its text has exactly these members, in RFC 8785
// form; only Reason and RedactionPolicy may be absent.
type Record struct {
	V               int                 `json:"v"`                          // 1
	Shard           string              `json:"shard"`                      // stream and moment of its creation, GOV@20261120T064150.123456789Z: 1 to 200 bytes of printable ASCII without blank and +
	Seq             uint64              `json:"seq"`                        // the log sequence, 1 to 2^53; a shard has every one from 1
	Tenant          string              `json:"tenant"`                     // from the subject, unescaped; empty when it has none
	Session         string              `json:"session"`                    // likewise
	Kind            string              `json:"kind"`                       // follows from the subject
	Subject         string              `json:"subject"`                    // the log subject; ~ and unpadded base64url of it when it was not UTF-8
	Headers         map[string][]string `json:"headers"`                    // the values of each name, redacted
	BrokerTime      events.Time         `json:"broker_time"`                // when the broker stored the message: UTC, nine fraction digits and Z
	BodyDigest      string              `json:"body_digest"`                // of the raw bytes; keyed where something was redacted or withheld
	Body            json.RawMessage     `json:"body"`                       // the body in RFC 8785 form, redacted; null when there is a Reason
	Redactions      []Redaction         `json:"redactions"`                 // what was taken out; the place in this list is part of a commitment
	SessionIndex    *uint64             `json:"session_index"`              // place in the session, from 1; null without one
	SessionPrev     *string             `json:"session_prev"`               // hex hash of the session's record before; null for the first, and without a session
	Reason          string              `json:"reason,omitempty"`           // why there is no body
	RedactionPolicy string              `json:"redaction_policy,omitempty"` // id of the tenant's redaction policy; absent when only the built-in rules applied
}

// Canonical returns the record's text in RFC 8785 form. Body must already be in that form.
func (r Record) Canonical() ([]byte, error) {
	w := recordWriter{buf: make([]byte, 0, r.estimateSize())}
	w.writeRecord(&r)
	return w.buf, w.err
}

// EncodeAndHash returns the record's text and hash. It replaces Body by a part of the text.
func (r *Record) EncodeAndHash() (text []byte, hash [32]byte, err error) {
	w := recordWriter{buf: append(make([]byte, 0, len(HashPrefix)+r.estimateSize()), HashPrefix...)}
	if w.writeRecord(r); w.err != nil {
		return nil, hash, w.err
	}
	text = w.buf[len(HashPrefix):len(w.buf):len(w.buf)]
	r.Body = text[len(`{"body":`):][:len(r.Body):len(r.Body)]
	return text, sha256.Sum256(w.buf), nil
}

// estimateSize is about the length of the text if nothing in it has to be escaped.
func (r *Record) estimateSize() int {
	n := 512 + len(r.Body) + len(r.Session) + len(r.Subject) + 2*len(r.Tenant)
	for name, values := range r.Headers {
		n += len(name) + 8
		for _, v := range values {
			n += len(v) + 4
		}
	}
	for i := range r.Redactions {
		n += 200 + len(r.Redactions[i].Path) + len(r.Redactions[i].Policy)
	}
	return n
}

func (w *recordWriter) writeRecord(r *Record) {
	w.buf = append(append(w.buf, `{"body":`...), r.Body...)
	w.writeText(`,"body_digest":`, r.BodyDigest)
	w.writeTime(`,"broker_time":`, r.BrokerTime)
	w.writeHeaders(r.Headers)
	w.writeText(`,"kind":`, r.Kind)
	if r.Reason != "" {
		w.writeText(`,"reason":`, r.Reason)
	}
	if r.RedactionPolicy != "" {
		w.writeText(`,"redaction_policy":`, r.RedactionPolicy)
	}
	w.writeRedactions(r.Redactions)
	w.buf = strconv.AppendUint(append(w.buf, `,"seq":`...), r.Seq, 10)
	w.writeText(`,"session":`, r.Session)
	w.writeRaw(`,"session_index":`)
	if r.SessionIndex == nil {
		w.writeRaw("null")
	} else {
		w.buf = strconv.AppendUint(w.buf, *r.SessionIndex, 10)
	}
	if r.SessionPrev == nil {
		w.writeRaw(`,"session_prev":null`)
	} else {
		w.writeText(`,"session_prev":`, *r.SessionPrev)
	}
	w.writeText(`,"shard":`, r.Shard)
	w.writeText(`,"subject":`, r.Subject)
	w.writeText(`,"tenant":`, r.Tenant)
	w.writeRaw(`,"v":`)
	w.buf = strconv.AppendInt(w.buf, int64(r.V), 10)
	w.writeRaw("}")
}

// recordWriter appends the members of a record in the order of RFC 8785.
type recordWriter struct {
	buf []byte
	err error
}

func (w *recordWriter) writeRaw(text string) { w.buf = append(w.buf, text...) }

func (w *recordWriter) writeText(member, value string) {
	w.buf = append(w.buf, member...)
	out, err := canonical.AppendString(w.buf, value)
	if err != nil {
		w.err = err
		return
	}
	w.buf = out
}

func (w *recordWriter) writeTime(member string, t events.Time) {
	w.buf = append(append(w.buf, member...), '"')
	if !t.IsZero() {
		w.buf = t.UTC().AppendFormat(w.buf, events.TimeLayout)
	}
	w.buf = append(w.buf, '"')
}

func (w *recordWriter) writeHeaders(h map[string][]string) {
	w.writeRaw(`,"headers":`)
	sep := "{"
	var room [16]string
	names := slices.AppendSeq(room[:0], maps.Keys(h))
	slices.SortFunc(names, strictjson.CompareKeys)
	for _, name := range names {
		w.writeText(sep, name)
		w.writeRaw(":[")
		for i, v := range h[name] {
			w.writeText([]string{"", ","}[min(i, 1)], v)
		}
		w.writeRaw("]")
		sep = ","
	}
	if sep == "{" {
		w.writeRaw(sep)
	}
	w.writeRaw("}")
}

func (w *recordWriter) writeRedactions(list []Redaction) {
	w.writeRaw(`,"redactions":[`)
	for i, r := range list {
		w.writeRaw([]string{`{`, `,{`}[min(i, 1)])
		if r.Action != "" {
			w.writeText(`"action":`, r.Action)
			w.writeRaw(",")
		}
		w.writeText(`"commitment":`, r.Commitment)
		w.writeText(`,"detector":`, r.Detector)
		w.writeText(`,"path":`, r.Path)
		if r.Policy != "" {
			w.writeText(`,"policy":`, r.Policy)
		}
		w.writeRaw("}")
	}
	w.writeRaw("]")
}

// HashPrefix separates record hashes from every other use of SHA-256.
const HashPrefix = "countersign/evidence/v1\x00"

// HashRecord is SHA-256("countersign/evidence/v1" || 0x00 || record), the hash of a record's
// canonical text.
func HashRecord(canonical []byte) [32]byte {
	h := sha256.New()
	h.Write([]byte(HashPrefix))
	h.Write(canonical)
	return [32]byte(h.Sum(nil))
}

// ParseRecord parses a record's text. The text must be canonical: exactly the bytes that
// Canonical writes for the result.
func ParseRecord(text []byte) (Record, error) {
	var r Record
	form, err := strictjson.CanonicalBytes(text)
	if err != nil {
		return r, fmt.Errorf("%w: not a JSON text that RFC 8785 covers", ErrRecord)
	}
	if !bytes.Equal(form, text) {
		return r, fmt.Errorf("%w: not the RFC 8785 form, first at byte %d", ErrRecord, canonical.FirstDifference(form, text))
	}
	if err := strictjson.Unmarshal(text, &r, strictjson.RejectUnknown); err != nil {
		return r, fmt.Errorf("%w: a member is unknown or has the wrong type", ErrRecord)
	}
	again, err := r.Canonical()
	if err != nil || !bytes.Equal(again, text) {
		return r, fmt.Errorf("%w: a member is missing or spelt differently, first at byte %d", ErrRecord, canonical.FirstDifference(again, text))
	}
	if r.V != Version {
		return r, fmt.Errorf("%w: version %d; this program reads version %d", ErrRecord, r.V, Version)
	}
	return r, nil
}

// Head is the index (from 1) and the hash of the last record of a session. The zero Head
// stands for a session without records.
type Head struct {
	Index uint64
	Hash  [32]byte
}

// MaskedNames reports whether any of the sessions, as records name them, may have a real name
// that is not in the evidence, because it was too long or holds a credential. A caller that
// knows a session by its real name cannot match it with these.
func MaskedNames(sessions []string) bool {
	return slices.ContainsFunc(sessions, func(s string) bool {
		_, exact := subject.Unescape(s)
		return !exact && strings.HasPrefix(s, "~h")
	})
}
