package evidence

import (
	"time"
	"unicode/utf8"

	"github.com/countersign-dev/countersign/events"
)

// recordView is a record's text taken apart without copying: what ParseRecord gives,
// as far as verification needs it. All slices are parts of the text.
type recordView struct {
	body                            []byte // JSON
	shard, tenant, session, subject []byte
	kind, bodyDigest, reason        []byte
	signature, decisionID           []byte // the only value of the header, if it has exactly one
	prev                            []byte // nil when session_prev is null
	seq, index                      uint64
	indexed                         bool // session_index is not null
	noHeaders                       bool // there are no headers
	redactions                      []Redaction
	brokerSeconds, brokerNanos      int64
}

// scanRecord takes a record's text apart. A yes is a proof that ParseRecord
// accepts the text and finds the same in it (FuzzScanRecord); a no says nothing.
func scanRecord(text []byte) (v recordView, ok bool) {
	if !utf8.Valid(text) {
		return v, false
	}
	s := &canonicalScanner{text: text}
	return v, v.scanText(s) && s.pos == len(text)
}

func (v *recordView) scanText(s *canonicalScanner) bool {
	start := len(`{"body":`)
	if !s.literal(`{"body":`) || !s.value(0) {
		return false
	}
	v.body = s.text[start:s.pos]
	return s.scanMember(`,"body_digest":`, &v.bodyDigest) &&
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

// scanMember takes a member that is a text without escapes.
func (s *canonicalScanner) scanMember(name string, into *[]byte) bool {
	if !s.literal(name) {
		return false
	}
	inner, plain, ok := s.scanString()
	*into = inner
	return ok && plain
}

// scanOptionalMember takes a member that is left out when it is empty.
func (s *canonicalScanner) scanOptionalMember(name string, into *[]byte) bool {
	if s.pos+len(name) > len(s.text) || string(s.text[s.pos:s.pos+len(name)]) != name {
		return true
	}
	var value []byte
	ok := s.scanMember(name, &value) && len(value) > 0
	if into != nil {
		*into = value
	}
	return ok
}

func (s *canonicalScanner) scanCount(into *uint64) (ok bool) {
	*into, ok = s.integer()
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

// scanPosition takes session_index and session_prev.
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

// scanHeaders takes an object of lists of texts and keeps the headers that decisions
// are checked by.
func (v *recordView) scanHeaders(s *canonicalScanner) bool {
	v.noHeaders = true
	return s.object(1, func(key []byte) bool {
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

// fixedTime reads a time in events.TimeLayout, from 1970 on. What it refuses may
// be one nonetheless.
func fixedTime(b []byte) (seconds, nanos int64, ok bool) {
	const shape = "dddd-dd-ddTdd:dd:dd.dddddddddZ"
	if len(b) != len(shape) {
		return 0, 0, false
	}
	for i := range b {
		if digit := b[i] >= '0' && b[i] <= '9'; shape[i] == 'd' && !digit || shape[i] != 'd' && b[i] != shape[i] {
			return 0, 0, false
		}
	}
	number := func(part []byte) (n int) {
		for _, c := range part {
			n = n*10 + int(c-'0')
		}
		return n
	}
	year, month, day := number(b[:4]), number(b[5:7]), number(b[8:10])
	hour, minute, second := number(b[11:13]), number(b[14:16]), number(b[17:19])
	if year < 1970 || month < 1 || month > 12 || day < 1 || day > daysIn(year, month) || hour > 23 || minute > 59 || second > 59 {
		return 0, 0, false
	}
	days := int64(daysBefore(year, month) + day - 1)
	return ((days*24+int64(hour))*60+int64(minute))*60 + int64(second), int64(number(b[20:29])), true
}

var monthDays = [13]int{0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}

func leapYear(y int) bool { return y%4 == 0 && (y%100 != 0 || y%400 == 0) }

func daysIn(year, month int) int {
	if month == int(time.February) && leapYear(year) {
		return 29
	}
	return monthDays[month]
}

// daysBefore counts the days from 1970 to the first of a month.
func daysBefore(year, month int) int {
	y := year - 1
	days := (year-1970)*365 + (y/4 - 1969/4) - (y/100 - 1969/100) + (y/400 - 1969/400)
	for m := 1; m < month; m++ {
		days += daysIn(year, m)
	}
	return days
}
