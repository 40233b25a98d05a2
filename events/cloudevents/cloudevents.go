// Package cloudevents is the CloudEvents 1.0 binding on NATS (the CloudEvents
// NATS protocol binding, 1.0.3): headers for the records that Countersign
// emits, one reader for what producers send, and the SDK's binding interfaces
// for those who hold SDK events.
//
// The reader is strict where two readers could see different events in one
// message: contradicting modes, repeated headers and values that are not UTF-8
// are errors. It hands out the data byte for byte.
package cloudevents

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/countersign-dev/countersign/events"
)

// Mode is how a message carries its event.
type Mode string

// The modes. A plain message is no CloudEvent: its body is the event.
const (
	ModePlain      Mode = "plain"
	ModeBinary     Mode = "binary"
	ModeStructured Mode = "structured"
)

// SpecVersion is the only CloudEvents version that is read or written.
const SpecVersion = "1.0"

// Content types.
const (
	ContentTypeJSON       = "application/json"
	ContentTypeStructured = "application/cloudevents+json"
)

// Attributes are the context attributes of an event.
type Attributes struct {
	ID      string
	Source  string
	Type    string
	Subject string
	Time    time.Time // zero if absent

	DataContentType string // Binary writes application/json if it is empty
	DataSchema      string

	// Extra holds the extension attributes by name ([a-z0-9]+) in their canonical
	// text; nil if there are none.
	Extra map[string]string
}

// Event is what Decode found in a message.
type Event struct {
	Mode       Mode
	Attributes // zero for plain messages

	// Data is the producer's event, byte for byte: the body of binary and plain
	// messages (not a copy); of a structured message the bytes of the JSON value
	// "data" as they stand in the envelope, whatever datacontenttype says, or the
	// decoded data_base64; nil if it has neither.
	Data []byte
}

// Why a message cannot be read. The errors that Decode returns name the header,
// attribute or member, and never hold a value. Beside these, the envelope of a
// structured message gives a *strictjson.Error if it is not acceptable JSON.
var (
	ErrBatched     = errors.New("cloudevents: batches are not supported on NATS, send one event per message")
	ErrFormat      = errors.New("cloudevents: only the JSON event format (application/cloudevents+json, UTF-8) is supported")
	ErrSpecVersion = errors.New("cloudevents: specversion must be 1.0")
	ErrDuplicate   = errors.New("cloudevents: header occurs more than once")
	ErrMissing     = errors.New("cloudevents: required attribute is missing or empty")
	ErrName        = errors.New("cloudevents: attribute names consist of a-z and 0-9")
	ErrValue       = errors.New("cloudevents: value is not valid")
	ErrAmbiguous   = errors.New("cloudevents: the message contradicts itself")
)

func attributeError(err error, name string) error { return fmt.Errorf("%w: %.40q", err, name) }

// validName reports whether an attribute may have this name (CloudEvents 1.0
// section 3.1; "data" is the name of something else).
func validName(name string) bool {
	for i := 0; i < len(name); i++ {
		if c := name[i]; !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9') {
			return false
		}
	}
	return name != "" && name != memberData
}

// set takes one attribute's canonical text.
func (a *Attributes) set(name, value string) error {
	if !validName(name) {
		return attributeError(ErrName, name)
	}
	if !isPrintable(value) {
		return attributeError(ErrValue, name)
	}
	switch name {
	case "specversion":
		return nil // checked where the mode is decided
	case "id":
		a.ID = value
	case "source":
		a.Source = value
	case "type":
		a.Type = value
	case "subject":
		a.Subject = value
	case "datacontenttype":
		a.DataContentType = value
	case "dataschema":
		a.DataSchema = value
	case "time":
		t, err := events.ParseTime(value)
		if err != nil {
			return attributeError(ErrValue, name)
		}
		a.Time = t
	default:
		if a.Extra == nil {
			a.Extra = map[string]string{}
		}
		a.Extra[name] = value
	}
	return nil
}

// toMap gives the attributes that are there, specversion first, by name.
func (a Attributes) toMap() map[string]string {
	m := map[string]string{
		"specversion":     SpecVersion,
		"id":              a.ID,
		"source":          a.Source,
		"type":            a.Type,
		"subject":         a.Subject,
		"datacontenttype": a.DataContentType,
		"dataschema":      a.DataSchema,
	}
	if !a.Time.IsZero() {
		m["time"] = events.Time{Time: a.Time}.String()
	}
	for name, value := range a.Extra {
		m[name] = value
	}
	for name, value := range m {
		if value == "" {
			delete(m, name)
		}
	}
	return m
}

// checkRequired checks that the required attributes are there.
func (a Attributes) checkRequired() error {
	switch "" {
	case a.ID:
		return attributeError(ErrMissing, "id")
	case a.Source:
		return attributeError(ErrMissing, "source")
	case a.Type:
		return attributeError(ErrMissing, "type")
	}
	return nil
}

// isPrintable reports whether a text may be an attribute's value: UTF-8 without
// control characters or noncharacters (CloudEvents 1.0 section 3.1, String).
func isPrintable(s string) bool {
	for _, r := range s {
		switch {
		case r < 0x20, r >= 0x7f && r <= 0x9f:
			return false
		case r >= 0xfdd0 && r <= 0xfdef, r&0xfffe == 0xfffe:
			return false
		}
	}
	return utf8.ValidString(s)
}
