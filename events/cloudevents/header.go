package cloudevents

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/countersign-dev/countersign/events"
)

const (
	headerPrefix      = "ce-"
	headerContentType = "content-type"
)

// Binary builds the headers of a message in binary mode, for the records that Countersign
// emits: ce-*, names in lower case, empty attributes left out. Equal attributes give equal
// headers. ID, Source and Type must not be empty, or no reader accepts the message. There is no
// content-type: in NATS it marks a structured event (CloudEvents NATS binding, 3), and
// ce-datacontenttype describes the data. Without it a record of an atomic batch also has only
// eight headers, which fit the small kind of Go's maps.
//
// Names in Extra are constants of the program; Binary panics for an invalid extension name.
// Values may be anything: they are percent-encoded.
func Binary(a Attributes) map[string][]string {
	if a.DataContentType == "" {
		a.DataContentType = ContentTypeJSON
	}
	for name := range a.Extra {
		if !validName(name) || reservedNames[name] {
			panic(fmt.Sprintf("cloudevents: %q is no name for an extension attribute", name))
		}
	}
	n := 5 + len(a.Extra) // exact: a map of at most 8 is of the small kind
	for _, there := range [...]bool{a.Subject != "", a.DataSchema != "", !a.Time.IsZero()} {
		if there {
			n++
		}
	}
	h, values := make(map[string][]string, n), make([]string, 0, n)
	put := func(header, value string) {
		if value != "" {
			values = append(values, encodeValue(value))
			h[header] = values[len(values)-1 : len(values) : len(values)]
		}
	}
	put("ce-specversion", SpecVersion)
	put("ce-id", a.ID)
	put("ce-source", a.Source)
	put("ce-type", a.Type)
	put("ce-subject", a.Subject)
	put("ce-datacontenttype", a.DataContentType)
	put("ce-dataschema", a.DataSchema)
	put("ce-time", events.Time{Time: a.Time}.String())
	for name, value := range a.Extra {
		put(headerPrefix+name, value)
	}
	return h
}

var reservedNames = map[string]bool{
	"specversion": true, "id": true, "source": true, "type": true, "subject": true,
	"time": true, "datacontenttype": true, "dataschema": true,
}

const hexDigits = "0123456789ABCDEF"

// encodeValue percent-encodes an attribute for a header (section 3.1.3.2). Bytes that are not
// UTF-8 become U+FFFD.
func encodeValue(s string) string {
	if isHeaderSafe(s) {
		return s
	}
	s = strings.ToValidUTF8(s, "\ufffd")
	var b strings.Builder
	b.Grow(len(s))
	for i := range len(s) {
		if c := s[i]; c > 0x20 && c < 0x7f && c != '"' && c != '%' {
			b.WriteByte(c)
		} else {
			b.WriteByte('%')
			b.WriteByte(hexDigits[c>>4])
			b.WriteByte(hexDigits[c&15])
		}
	}
	return b.String()
}

// isHeaderSafe reports whether a text needs no encoding.
func isHeaderSafe(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= 0x20 || c >= 0x7f || c == '"' || c == '%' {
			return false
		}
	}
	return true
}

// decodeValue is the inverse of encodeValue. It also accepts quoted strings (RFC 7230 section
// 3.2.6), which older writers used. It decodes once. Text that should have been encoded is
// accepted if it can be read in only one way. Attributes.set checks that the result is UTF-8.
func decodeValue(s string) (string, bool) {
	s = strings.Trim(s, " \t")
	if strings.HasPrefix(s, `"`) {
		var ok bool
		if s, ok = unquote(s); !ok {
			return "", false
		}
	} else if strings.Contains(s, `"`) {
		return "", false
	}
	s, err := url.PathUnescape(s)
	return s, err == nil
}

func unquote(s string) (string, bool) {
	if len(s) < 2 || s[len(s)-1] != '"' {
		return "", false
	}
	var b strings.Builder
	s = s[1 : len(s)-1]
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '"':
			return "", false
		case '\\':
			if i++; i == len(s) {
				return "", false
			}
		}
		b.WriteByte(s[i])
	}
	return b.String(), true
}
