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
	s := &scanner{text: body}
	ok = s.object(1, func(key []byte) bool {
		field, known := decisionShape.fields[string(key)]
		start := s.at
		if !known || !s.shaped(field) {
			return false
		}
		for _, want := range [...]struct {
			name string
			into *[]byte
		}{{"decision_id", &d.id}, {"tenant", &d.tenant}, {"session", &d.session}, {"verdict", &d.verdict},
			{"request_digest", &d.requestDigest}, {"receipt_hash", &d.receiptHash}} {
			if string(key) == want.name {
				*want.into = body[start+1 : s.at-1] // shaped lets no escapes pass
			}
		}
		return true
	})
	return d, ok && s.at == len(body)
}

// shape is what the text of a Go value looks like.
type shape struct {
	kind   reflect.Kind // Interface: nothing is known of it, so the long way decides
	time   bool
	ours   bool              // of texts: no producer has a part in it (see ourValues)
	elem   *shape            // of pointers and slices
	fields map[string]*shape // of structs, by their JSON names
}

var decisionShape = shapeFor[events.Decision]()

func shapeFor[T any]() *shape { return shapeOf(reflect.TypeFor[T]()) }

// shapeOf describes the records of package events: structs of texts, numbers and
// the like; their types are not recursive.
func shapeOf(t reflect.Type) *shape {
	s := &shape{kind: t.Kind()}
	switch {
	case t == reflect.TypeFor[events.Time]():
		s.time = true
	case t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice:
		s.elem = shapeOf(t.Elem())
	case t.Kind() == reflect.Struct:
		s.fields = map[string]*shape{}
		for i := range t.NumField() {
			f := t.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if f.Anonymous || name == "" || name == "-" {
				return &shape{kind: reflect.Interface}
			}
			s.fields[name] = shapeOf(f.Type)
			s.fields[name].ours = ourValues[name]
		}
	}
	return s
}

// shaped takes a value of a shape. Texts with escapes, and null but for
// pointers, it leaves to the long way.
func (s *scanner) shaped(sh *shape) bool {
	switch sh.kind {
	case reflect.String:
		text, plain, ok := s.str()
		return ok && plain && (sh.ours || s.look == nil || s.look(text))
	case reflect.Bool:
		return s.literal("true") || s.literal("false")
	case reflect.Int, reflect.Int64:
		s.literal("-")
		return s.signed()
	case reflect.Uint64:
		_, ok := s.integer()
		return ok
	case reflect.Pointer:
		return s.literal("null") || s.shaped(sh.elem)
	case reflect.Slice:
		return s.each(func() bool { return s.shaped(sh.elem) })
	case reflect.Struct:
		if sh.time {
			return s.instant()
		}
		return s.object(1, func(key []byte) bool {
			field, known := sh.fields[string(key)]
			return known && s.shaped(field)
		})
	}
	return false
}

// signed takes the digits of an integer behind a sign, or without one.
func (s *scanner) signed() bool {
	negative := s.at > 0 && s.text[s.at-1] == '-'
	n, ok := s.integer()
	return ok && (!negative || n != 0)
}

func (s *scanner) instant() bool {
	text, plain, ok := s.str()
	if !ok || !plain {
		return false
	}
	_, _, fixed := fixedTime(text)
	return len(text) == 0 || fixed
}
