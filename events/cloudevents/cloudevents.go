// Package cloudevents is the CloudEvents 1.0 binding on NATS (the CloudEvents NATS protocol
// binding, 1.0.3). Binary builds the headers of the records that Countersign emits, Decode
// reads producers' messages, and Write implements the SDK's binding interface
// for callers with SDK events.
//
// The reader is strict where two readers could see different events in one message:
// contradicting modes, repeated headers and values that are not UTF-8 are errors. It returns
// the data unchanged, byte for byte.
package cloudevents

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/countersign-dev/countersign/events"
)

// Mode is the encoding of an event in a message.
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

	// Extra holds the extension attributes by name ([a-z0-9]+) in their canonical text; nil if
	// there are none.
	Extra map[string]string
}

// Event is the event that Decode read from a message.
type Event struct {
	Mode       Mode
	Attributes // zero for plain messages

	// Data is the producer's event, byte for byte: the body of binary and plain messages (not a
	// copy); for a structured message the bytes of the JSON value "data" in the envelope,
	// whatever datacontenttype is, or the decoded data_base64; nil if it has neither.
	Data []byte
}

// Errors of unreadable messages. The errors that Decode returns name the header, attribute or
// member, and never hold a value. The envelope of a structured message also gives a
// *strictjson.Error if it is not acceptable JSON.
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

// validName reports whether an attribute may have this name (CloudEvents 1.0 section 3.1;
// "data" is reserved).
func validName(name string) bool {
	for i := range len(name) {
		if c := name[i]; !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9') {
			return false
		}
	}
	return name != "" && name != memberData
}

// set sets one attribute from its canonical text.
func (a *Attributes) set(name, value string) error {
	if !validName(name) {
		return attributeError(ErrName, name)
	}
	if !isPrintable(value) {
		return attributeError(ErrValue, name)
	}
	switch name {
	case "specversion":
		return nil // Decode checks it when it determines the mode
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

// checkRequired checks that the required attributes are set.
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
