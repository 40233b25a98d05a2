package evidence

import (
	"cmp"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/evidence/internal/redact"
)

// Row is one row of the table evidence.
type Row struct {
	Shard, Tenant, Session, Kind, Subject string
	Seq                                   uint64
	BrokerTime                            time.Time
	BodyDigest                            string
	Record                                string // the canonical text; empty if it expired
	RecordHash                            [32]byte
	Expiry                                uint64 // of a row without a text: where it says the reason stands; nothing rests on it
}

// checkRedactions checks that every redaction left its mark where it says.
func (e *Examiner) checkRedactions(text []byte, v *recordView) {
	find := func(pointer string) (any, string, bool) { return locatePointer(text, pointer) }
	for i, red := range v.redactions {
		if !hexDigest(red.Commitment, digest.PrefixKeyed) {
			e.addFinding(CodeRedaction, "redactions/"+strconv.Itoa(i), "the commitment is not of the form %s<64 hex digits>", digest.PrefixKeyed)
		}
		if !hasPlaceholder(find, red, len(v.reason) > 0, v.noHeaders) {
			e.addFinding(CodeRedaction, "redactions/"+strconv.Itoa(i), "nothing at %.120q was replaced by %s", red.Path, redact.Placeholder(red.Detector))
		}
	}
}

// hasPlaceholder reports whether a redaction left its mark; find follows a JSON pointer.
func hasPlaceholder(find func(string) (any, string, bool), red Redaction, reasoned, headless bool) bool {
	action, known := redact.ParseAction(cmp.Or(red.Action, redact.Mask.String()))
	switch {
	case !known || action == redact.Allow:
		return false
	case red.Path == "/body" && red.Detector == redact.Withheld:
		return reasoned
	case red.Path == "/headers" && (red.Detector == redact.TooMany || red.Detector == redact.Withheld):
		return headless
	}
	value, last, ok := find(red.Path)
	if action == redact.Drop {
		return !ok || value == nil || value == "" || redact.HasPlaceholder(last, red.Detector, redact.Mask)
	}
	if !ok {
		return false
	}
	s, _ := value.(string)
	return redact.HasPlaceholder(s, red.Detector, action) || redact.HasPlaceholder(last, red.Detector, action)
}

// locatePointer follows a JSON pointer into a canonical text. It gives the last token
// and what stands there: a string, nil for null, false for anything else.
func locatePointer(text []byte, pointer string) (value any, last string, ok bool) {
	if !strings.HasPrefix(pointer, "/") {
		return nil, "", false
	}
	s := &canonicalScanner{text: text}
	for token := range strings.SplitSeq(pointer[1:], "/") {
		last = strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
		found, simple := s.enterMember(last)
		if !simple {
			return locateInTree(text, pointer)
		}
		if !found {
			return nil, "", false
		}
	}
	return s.leafValue(), last, true
}

// enterMember goes to the value of a key, or an index, of the value it stands
// before. It is not simple where a key is escaped.
func (s *canonicalScanner) enterMember(token string) (found, simple bool) {
	switch s.peek() {
	case '{':
		simple = s.object(1, func(key []byte) bool {
			if string(key) == token {
				found = true
				return false
			}
			return s.value(1)
		})
	case '[':
		want, err := strconv.Atoi(token)
		i := -1
		simple = s.scanElements(func() bool {
			if i++; err == nil && i == want {
				found = true
				return false
			}
			return s.value(1)
		})
	default:
		return false, true
	}
	return found, found || simple
}

// leafValue gives the value it stands before, as locate does.
func (s *canonicalScanner) leafValue() any {
	switch s.peek() {
	case '"':
		inner, plain, ok := s.scanString()
		if ok && plain {
			return string(inner)
		}
		var value string
		_ = json.Unmarshal([]byte(`"`+string(inner)+`"`), &value) // it is canonical JSON
		return value
	case 'n':
		return nil
	}
	return false
}

func locateInTree(text []byte, pointer string) (value any, last string, ok bool) {
	var tree any
	if json.Unmarshal(text, &tree) != nil {
		return nil, "", false
	}
	return resolvePointer(tree, pointer)
}

// resolvePointer follows a JSON pointer and returns the value and the last token.
func resolvePointer(v any, pointer string) (value any, last string, ok bool) {
	if !strings.HasPrefix(pointer, "/") {
		return nil, "", false
	}
	for token := range strings.SplitSeq(pointer[1:], "/") {
		last = strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
		switch at := v.(type) {
		case map[string]any:
			if v, ok = at[last]; !ok {
				return nil, "", false
			}
		case []any:
			i, err := strconv.Atoi(last)
			if err != nil || i < 0 || i >= len(at) {
				return nil, "", false
			}
			v = at[i]
		default:
			return nil, "", false
		}
	}
	return v, last, true
}
