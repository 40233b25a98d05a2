package cloudevents

import (
	"maps"
	"slices"
	"strings"
)

// Decode reads a NATS message. The message is structured if its content-type says so, binary if
// it has ce-specversion, and plain otherwise. Header names match in any case, because NATS
// clients differ. After any error the message must not be used as an event; see the Err
// variables.
func Decode(header map[string][]string, body []byte) (Event, error) {
	h, err := readHeaders(header)
	if err != nil {
		return Event{}, err
	}
	structured, err := isStructured(h.contentType)
	if err != nil {
		return Event{}, err
	}
	switch version, binary := h.ce["specversion"]; {
	case structured && binary:
		// One reader would take the envelope for the data, another would not.
		return Event{}, attributeError(ErrAmbiguous, "ce-specversion beside a structured content-type")
	case structured:
		return decodeStructured(body)
	case binary && version != SpecVersion:
		return Event{}, ErrSpecVersion
	case binary:
		return decodeBinary(h, body)
	case len(h.ce) > 0:
		return Event{}, attributeError(ErrMissing, "specversion")
	default:
		return Event{Mode: ModePlain, Data: body}, nil
	}
}

// headers are the headers that Decode uses.
type headers struct {
	contentType string
	ce          map[string]string // by attribute name, decoded; nil if none
}

func readHeaders(header map[string][]string) (headers, error) {
	var h headers
	typed := false
	var keys []string
	for key := range header {
		if _, _, relevant := headerName(key); relevant {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys) // so that a message with two faults always gives the same error
	for _, key := range keys {
		name, ce, _ := headerName(key)
		values := header[key]
		_, repeated := h.ce[name]
		if len(values) != 1 || (ce && repeated) || (!ce && typed) {
			return headers{}, attributeError(ErrDuplicate, strings.ToLower(key))
		}
		if !ce {
			typed, h.contentType = true, values[0]
			continue
		}
		value, ok := decodeValue(values[0])
		if !ok {
			return headers{}, attributeError(ErrValue, strings.ToLower(key))
		}
		if h.ce == nil {
			h.ce = make(map[string]string, len(header))
		}
		h.ce[name] = value
	}
	return h, nil
}

// headerName reports whether Decode uses a header, and for ce-* headers the name of the
// attribute. Only ASCII letters are folded: "ce-ſource" is not "ce-source".
func headerName(key string) (name string, ce, relevant bool) {
	const longest = len(headerContentType)
	if len(key) >= len(headerPrefix) && asciiLower(key[:len(headerPrefix)]) == headerPrefix {
		return asciiLower(key[len(headerPrefix):]), true, true
	}
	if len(key) == longest && asciiLower(key) == headerContentType {
		return "", false, true
	}
	return "", false, false
}

func asciiLower(s string) string {
	for i := range len(s) {
		if s[i] >= 'A' && s[i] <= 'Z' {
			b := []byte(s)
			for j := i; j < len(b); j++ {
				if b[j] >= 'A' && b[j] <= 'Z' {
					b[j] += 'a' - 'A'
				}
			}
			return string(b)
		}
	}
	return s
}

// isStructured reads a content-type. The NATS binding demands "application/cloudevents", the
// JSON format "application/cloudevents+json"; both mean JSON here.
func isStructured(contentType string) (bool, error) {
	media, params, _ := strings.Cut(contentType, ";")
	media = asciiLower(strings.Trim(media, " \t"))
	switch {
	case !strings.HasPrefix(media, "application/cloudevents"):
		return false, nil
	case strings.HasPrefix(media, "application/cloudevents-batch"):
		return false, ErrBatched
	case media != ContentTypeStructured && media != "application/cloudevents":
		return false, ErrFormat
	}
	for _, p := range strings.Split(params, ";") {
		name, value, _ := strings.Cut(strings.Trim(p, " \t"), "=")
		if asciiLower(name) == "charset" && asciiLower(strings.Trim(value, `"`)) != "utf-8" {
			return false, ErrFormat
		}
	}
	return true, nil
}

func decodeBinary(h headers, body []byte) (Event, error) {
	e := Event{Mode: ModeBinary, Data: body}
	for _, name := range slices.Sorted(maps.Keys(h.ce)) {
		if err := e.Attributes.set(name, h.ce[name]); err != nil {
			return Event{}, err
		}
	}
	if e.DataContentType == "" && isPrintable(h.contentType) {
		e.DataContentType = h.contentType
	}
	if err := e.Attributes.checkRequired(); err != nil {
		return Event{}, err
	}
	return e, nil
}
