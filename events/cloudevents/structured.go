package cloudevents

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// Members of the JSON event format that are not attributes.
const (
	memberData       = "data"
	memberDataBase64 = "data_base64"
)

// decodeStructured parses an envelope (CloudEvents JSON event format). It only delimits the
// data; the decoder of the event validates it.
func decodeStructured(body []byte) (Event, error) {
	members, err := splitMembers(body)
	if err != nil {
		return Event{}, err
	}
	e := Event{Mode: ModeStructured}
	version := ""
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if name == memberData || name == memberDataBase64 {
			continue
		}
		if !validName(name) {
			return Event{}, attributeError(ErrName, name)
		}
		value, there, ok := attributeText(members[name], reservedNames[name])
		switch {
		case !ok:
			return Event{}, attributeError(ErrValue, name)
		case !there:
			continue
		case name == "specversion":
			version = value
		}
		if err := e.Attributes.set(name, value); err != nil {
			return Event{}, err
		}
	}
	if version != SpecVersion {
		return Event{}, ErrSpecVersion
	}
	if err := e.Attributes.checkRequired(); err != nil {
		return Event{}, err
	}
	e.Data, err = envelopeData(members)
	if err != nil {
		return Event{}, err
	}
	return e, nil
}

// splitMembers returns the raw values of an object's members, each a slice of its own.
func splitMembers(body []byte) (members map[string]jsontext.Value, err error) {
	if err := strictjson.Unmarshal(body, &members); err == nil && members != nil {
		return members, nil
	}
	// Report the defect with the codes of strictjson.
	if _, err := strictjson.ReadObject(body, strictjson.Limits{}); err != nil {
		return nil, err
	}
	return nil, &strictjson.Error{Code: strictjson.NotJSON, Detail: "the envelope is not valid JSON"}
}

// attributeText returns an attribute's canonical text. Context attributes are strings;
// extensions may also be booleans or 32-bit integers. null counts as absent.
func attributeText(raw jsontext.Value, mustBeString bool) (text string, there, ok bool) {
	switch kind := raw.Kind(); {
	case kind == 'n':
		return "", false, true
	case kind == '"':
		err := json.Unmarshal(raw, &text)
		return text, true, err == nil
	case mustBeString:
		return "", false, false
	case kind == 't' || kind == 'f':
		return string(raw), true, true
	case kind == '0':
		i, err := strconv.ParseInt(string(raw), 10, 32)
		return strconv.FormatInt(i, 10), true, err == nil
	}
	return "", false, false
}

func envelopeData(members map[string]jsontext.Value) ([]byte, error) {
	data, plain := members[memberData]
	coded, base := members[memberDataBase64]
	switch {
	case plain && base:
		return nil, attributeError(ErrAmbiguous, "data beside data_base64")
	case plain:
		return data, nil
	case !base:
		return nil, nil
	}
	var text string
	if coded.Kind() != '"' || json.Unmarshal(coded, &text) != nil || strings.ContainsAny(text, "\r\n") {
		return nil, attributeError(ErrValue, memberDataBase64)
	}
	b, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil {
		return nil, attributeError(ErrValue, memberDataBase64)
	}
	return b, nil
}
