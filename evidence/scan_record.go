package evidence

import (
	"unicode/utf8"

	"github.com/countersign-dev/countersign/events"
)

// recordView is the part of a record that verification needs, decoded without copying. All
// slices are parts of the text.
type recordView struct {
	body                            []byte // JSON
	shard, tenant, session, subject []byte
	kind, bodyDigest, reason        []byte
	signature, decisionID           []byte // the header's value, if it has exactly one
	prev                            []byte // nil when session_prev is null
	seq, index                      uint64
	indexed                         bool // session_index is not null
	noHeaders                       bool // there are no headers
	redactions                      []Redaction
	brokerSeconds, brokerNanos      int64
}

// scanRecord decodes a record's text. If ok is true, ParseRecord accepts the text with the
// same result (FuzzScanRecord); if it is false, ParseRecord has to decide.
func scanRecord(text []byte) (v recordView, ok bool) {
	if !utf8.Valid(text) {
		return v, false
	}
	s := &canonicalScanner{Text: text}
	return v, v.scanText(s) && s.atEnd()
}

func (v *recordView) scanText(s *canonicalScanner) bool {
	return s.literal(`{"body":`) && v.scanBody(s) &&
		s.scanMember(`,"body_digest":`, &v.bodyDigest) &&
		v.scanTime(s) &&
		s.literal(`,"headers":`) && v.scanHeaders(s) &&
		s.scanMember(`,"kind":`, &v.kind) &&
		s.scanOptionalMember(`,"reason":`, &v.reason) &&
		s.scanOptionalMember(`,"redaction_policy":`, nil) &&
		s.literal(`,"redactions":`) && v.scanRedactions(s) &&
		s.literal(`,"seq":`) && s.scanCount(&v.seq) &&
		s.scanMember(`,"session":`, &v.session) &&
		v.scanPosition(s) &&
		s.scanMember(`,"shard":`, &v.shard) &&
		s.scanMember(`,"subject":`, &v.subject) &&
		s.scanMember(`,"tenant":`, &v.tenant) &&
		s.literal(`,"v":1}`)
}

func (v *recordView) scanBody(s *canonicalScanner) (ok bool) {
	v.body, ok = s.scanValue()
	return ok
}

func (v *recordView) scanTime(s *canonicalScanner) bool {
	var text []byte
	ok := s.scanMember(`,"broker_time":`, &text)
	if ok {
		v.brokerSeconds, v.brokerNanos, ok = fixedTime(text)
	}
	return ok
}

// scanPosition consumes session_index and session_prev.
func (v *recordView) scanPosition(s *canonicalScanner) bool {
	if !s.literal(`,"session_index":`) {
		return false
	}
	if !s.literal("null") {
		if v.indexed = true; !s.scanCount(&v.index) {
			return false
		}
	}
	if s.literal(`,"session_prev":null`) {
		return true
	}
	return s.scanMember(`,"session_prev":`, &v.prev)
}

// scanHeaders consumes the headers and keeps those that the checks of decisions need.
func (v *recordView) scanHeaders(s *canonicalScanner) bool {
	v.noHeaders = true
	return s.scanObject(func(key []byte) bool {
		v.noHeaders = false
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
			v.signature = only
			return fine
		case string(key) == events.HeaderDecisionID:
			v.decisionID = only
			return fine
		}
		return true
	})
}

func (v *recordView) scanRedactions(s *canonicalScanner) bool {
	return s.scanElements(func() bool {
		var action, commitment, detector, path, policy []byte
		if !s.literal("{") || !s.scanOptionalMember(`"action":`, &action) || action != nil && !s.literal(",") {
			return false
		}
		ok := s.scanMember(`"commitment":`, &commitment) && s.scanMember(`,"detector":`, &detector) && s.scanMember(`,"path":`, &path) &&
			s.scanOptionalMember(`,"policy":`, &policy) && s.literal("}")
		v.redactions = append(v.redactions, Redaction{Action: string(action), Commitment: string(commitment), Detector: string(detector), Path: string(path), Policy: string(policy)})
		return ok
	})
}

// headerValue returns a header's value if it has exactly one, otherwise "".
func headerValue(h map[string][]string, name string) string {
	if v := h[name]; len(v) == 1 {
		return v[0]
	}
	return ""
}

// viewOf makes the view of a record that ParseRecord decoded.
func viewOf(r Record) recordView {
	v := recordView{body: r.Body, shard: []byte(r.Shard), tenant: []byte(r.Tenant), session: []byte(r.Session), subject: []byte(r.Subject),
		kind: []byte(r.Kind), bodyDigest: []byte(r.BodyDigest), reason: []byte(r.Reason),
		signature: []byte(headerValue(r.Headers, events.HeaderSignature)), decisionID: []byte(headerValue(r.Headers, events.HeaderDecisionID)),
		seq: r.Seq, redactions: r.Redactions, noHeaders: len(r.Headers) == 0,
		brokerSeconds: r.BrokerTime.Unix(), brokerNanos: int64(r.BrokerTime.Nanosecond())}
	if r.SessionIndex != nil {
		v.indexed, v.index = true, *r.SessionIndex
	}
	if r.SessionPrev != nil {
		v.prev = append([]byte{}, *r.SessionPrev...)
	}
	return v
}
