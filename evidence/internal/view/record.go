// Package view decodes without copying the parts of records that verification needs.
package view

import (
	"time"
	"unicode/utf8"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/internal/canonical"
)

// Record is the part of a record that verification needs, decoded without copying. All
// slices are parts of the text.
type Record struct {
	Body                            []byte // JSON
	Shard, Tenant, Session, Subject []byte
	Kind, BodyDigest, Reason        []byte
	Signature, DecisionID           []byte // the header's value, if it has exactly one
	Prev                            []byte // nil when session_prev is null
	Seq, Index                      uint64
	Indexed                         bool // session_index is not null
	NoHeaders                       bool // there are no headers
	Redactions                      []evidence.Redaction
	BrokerTime                      time.Time
}

// ScanRecord decodes a record's text. If ok is true, ParseRecord accepts the text with the
// same result (FuzzScanRecord); if it is false, ParseRecord has to decide.
func ScanRecord(text []byte) (v Record, ok bool) {
	if !utf8.Valid(text) {
		return v, false
	}
	s := &scanner{text: text}
	return v, v.scanText(s) && s.atEnd()
}

func (v *Record) scanText(s *scanner) bool {
	return s.matchLiteral(`{"body":`) && v.scanBody(s) &&
		s.scanMember(`,"body_digest":`, &v.BodyDigest) &&
		v.scanTime(s) &&
		s.matchLiteral(`,"headers":`) && v.scanHeaders(s) &&
		s.scanMember(`,"kind":`, &v.Kind) &&
		s.scanOptionalMember(`,"reason":`, &v.Reason) &&
		s.scanOptionalMember(`,"redaction_policy":`, nil) &&
		s.matchLiteral(`,"redactions":`) && v.scanRedactions(s) &&
		s.matchLiteral(`,"seq":`) && s.scanCount(&v.Seq) &&
		s.scanMember(`,"session":`, &v.Session) &&
		v.scanPosition(s) &&
		s.scanMember(`,"shard":`, &v.Shard) &&
		s.scanMember(`,"subject":`, &v.Subject) &&
		s.scanMember(`,"tenant":`, &v.Tenant) &&
		s.matchLiteral(`,"v":1}`)
}

func (v *Record) scanBody(s *scanner) (ok bool) {
	v.Body, ok = s.scanValue()
	return ok
}

func (v *Record) scanTime(s *scanner) bool {
	var text []byte
	ok := s.scanMember(`,"broker_time":`, &text)
	if ok {
		v.BrokerTime, ok = canonical.FixedTime(text)
	}
	return ok
}

// scanPosition consumes session_index and session_prev.
func (v *Record) scanPosition(s *scanner) bool {
	if !s.matchLiteral(`,"session_index":`) {
		return false
	}
	if !s.matchLiteral("null") {
		if v.Indexed = true; !s.scanCount(&v.Index) {
			return false
		}
	}
	if s.matchLiteral(`,"session_prev":null`) {
		return true
	}
	return s.scanMember(`,"session_prev":`, &v.Prev)
}

// scanHeaders consumes the headers and keeps those that the checks of decisions need.
func (v *Record) scanHeaders(s *scanner) bool {
	v.NoHeaders = true
	return s.scanObject(func(key []byte) bool {
		v.NoHeaders = false
		var only []byte
		n, fine := 0, true
		ok := s.scanElements(func() bool {
			inner, plain, ok := s.scanString()
			only, fine = inner, fine && plain
			n++
			return ok
		})
		switch {
		case !ok:
			return false
		case n != 1:
			return true
		case string(key) == events.HeaderSignature:
			v.Signature = only
			return fine
		case string(key) == events.HeaderDecisionID:
			v.DecisionID = only
			return fine
		}
		return true
	})
}

func (v *Record) scanRedactions(s *scanner) bool {
	return s.scanElements(func() bool {
		var action, commitment, detector, path, policy []byte
		if !s.matchLiteral("{") || !s.scanOptionalMember(`"action":`, &action) || action != nil && !s.matchLiteral(",") {
			return false
		}
		ok := s.scanMember(`"commitment":`, &commitment) && s.scanMember(`,"detector":`, &detector) && s.scanMember(`,"path":`, &path) &&
			s.scanOptionalMember(`,"policy":`, &policy) && s.matchLiteral("}")
		v.Redactions = append(v.Redactions, evidence.Redaction{Action: string(action), Commitment: string(commitment), Detector: string(detector), Path: string(path), Policy: string(policy)})
		return ok
	})
}

// HeaderValue returns a header's value if it has exactly one, otherwise "".
func HeaderValue(h map[string][]string, name string) string {
	if v := h[name]; len(v) == 1 {
		return v[0]
	}
	return ""
}

// OfRecord makes the view of a record that ParseRecord decoded.
func OfRecord(r evidence.Record) Record {
	v := Record{Body: r.Body, Shard: []byte(r.Shard), Tenant: []byte(r.Tenant), Session: []byte(r.Session), Subject: []byte(r.Subject),
		Kind: []byte(r.Kind), BodyDigest: []byte(r.BodyDigest), Reason: []byte(r.Reason),
		Signature: []byte(HeaderValue(r.Headers, events.HeaderSignature)), DecisionID: []byte(HeaderValue(r.Headers, events.HeaderDecisionID)),
		Seq: r.Seq, Redactions: r.Redactions, NoHeaders: len(r.Headers) == 0,
		BrokerTime: r.BrokerTime.Time}
	if r.SessionIndex != nil {
		v.Indexed, v.Index = true, *r.SessionIndex
	}
	if r.SessionPrev != nil {
		v.Prev = append([]byte{}, *r.SessionPrev...)
	}
	return v
}
