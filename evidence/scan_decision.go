package evidence

import (
	"reflect"
	"strings"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// decisionView is what verification reads of a decision. The slices are parts of
// its text, or of a copy of it.
type decisionView struct {
	id, tenant, session, verdict, requestDigest, receiptHash []byte
}

// readDecision decodes a decision whose text is RFC 8785, strictly: what
// events.DecodeRecord refuses is refused here.
func readDecision(body []byte) (d decisionView, ok bool) {
	if d, ok = scanDecision(body); ok {
		return d, true
	}
	full, err := events.DecodeRecord[events.Decision](body)
	return decisionView{[]byte(full.DecisionID), []byte(full.Tenant), []byte(full.Session), []byte(full.Verdict),
		[]byte(full.RequestDigest), []byte(full.ReceiptHash)}, err == nil
}

// scanDecision reads what nearly all decisions are: a yes is a proof that
// DecodeRecord reads the same (FuzzScanDecision), a no says nothing.
func scanDecision(body []byte) (d decisionView, ok bool) {
	if len(body) > strictjson.DefaultLimits.MaxBytes {
		return d, false
	}
	s := &canonicalScanner{text: body}
	ok = s.object(1, func(key []byte) bool {
		field, known := decisionShape.fields[string(key)]
		start := s.pos
		if !known || !s.scanShape(field) {
			return false
		}
		for _, want := range [...]struct {
			name string
			into *[]byte
		}{{"decision_id", &d.id}, {"tenant", &d.tenant}, {"session", &d.session}, {"verdict", &d.verdict},
			{"request_digest", &d.requestDigest}, {"receipt_hash", &d.receiptHash}} {
			if string(key) == want.name {
				*want.into = body[start+1 : s.pos-1] // shaped lets no escapes pass
			}
		}
		return true
	})
	return d, ok && s.pos == len(body)
}

// typeShape is what the text of a Go value looks like.
type typeShape struct {
	kind    reflect.Kind // Interface: nothing is known of it, so the long way decides
	isTime  bool
	trusted bool                  // of texts: no producer has a part in it (see ourValues)
	elem    *typeShape            // of pointers and slices
	fields  map[string]*typeShape // of structs, by their JSON names
}

var decisionShape = shapeFor[events.Decision]()

func shapeFor[T any]() *typeShape { return shapeOf(reflect.TypeFor[T]()) }

// shapeOf describes the records of package events: structs of texts, numbers and
// the like; their types are not recursive.
func shapeOf(t reflect.Type) *typeShape {
	s := &typeShape{kind: t.Kind()}
	switch {
	case t == reflect.TypeFor[events.Time]():
		s.isTime = true
	case t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice:
		s.elem = shapeOf(t.Elem())
	case t.Kind() == reflect.Struct:
		s.fields = map[string]*typeShape{}
		for i := range t.NumField() {
			f := t.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if f.Anonymous || name == "" || name == "-" {
				return &typeShape{kind: reflect.Interface}
			}
			s.fields[name] = shapeOf(f.Type)
			s.fields[name].trusted = trustedMembers[name]
		}
	}
	return s
}

// scanShape takes a value of a shape. Texts with escapes, and null but for
// pointers, it leaves to the long way.
func (s *canonicalScanner) scanShape(sh *typeShape) bool {
	switch sh.kind {
	case reflect.String:
		text, plain, ok := s.scanString()
		return ok && plain && (sh.trusted || s.isTextClean == nil || s.isTextClean(text))
	case reflect.Bool:
		return s.literal("true") || s.literal("false")
	case reflect.Int, reflect.Int64:
		s.literal("-")
		return s.scanSignedDigits()
	case reflect.Uint64:
		_, ok := s.integer()
		return ok
	case reflect.Pointer:
		return s.literal("null") || s.scanShape(sh.elem)
	case reflect.Slice:
		return s.scanElements(func() bool { return s.scanShape(sh.elem) })
	case reflect.Struct:
		if sh.isTime {
			return s.scanTime()
		}
		return s.object(1, func(key []byte) bool {
			field, known := sh.fields[string(key)]
			return known && s.scanShape(field)
		})
	}
	return false
}

// scanSignedDigits takes the digits of an integer behind a sign, or without one.
func (s *canonicalScanner) scanSignedDigits() bool {
	negative := s.pos > 0 && s.text[s.pos-1] == '-'
	n, ok := s.integer()
	return ok && (!negative || n != 0)
}

func (s *canonicalScanner) scanTime() bool {
	text, plain, ok := s.scanString()
	if !ok || !plain {
		return false
	}
	_, _, fixed := fixedTime(text)
	return len(text) == 0 || fixed
}
