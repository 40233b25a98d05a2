package fact

import (
	"errors"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/events/cloudevents"
	"github.com/countersign-dev/countersign/events/protocol"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/schemas"
)

// DecodeErrorText describes why a message could not be decoded: by a code and a place, without
// values. A body that is not JSON has no place: the place would quote member names in a
// finding, which the erasure of the message does not reach.
func DecodeErrorText(err error) string {
	var strict *strictjson.Error
	var field *protocol.FieldError
	switch {
	case errors.As(err, &strict):
		return CodeAtPath(string(strict.Code), "")
	case errors.As(err, &field):
		return CodeAtPath("wrong_type", field.Path)
	}
	for _, known := range cloudEventErrors {
		if errors.Is(err, known.err) {
			return CodeAtPath(known.code, "")
		}
	}
	return CodeAtPath("not_readable", "")
}

var cloudEventErrors = []struct {
	err  error
	code string
}{
	{errNoData, "cloudevent_without_data"},
	{cloudevents.ErrBatched, "cloudevent_batch"},
	{cloudevents.ErrFormat, "cloudevent_format"},
	{cloudevents.ErrSpecVersion, "cloudevent_specversion"},
	{cloudevents.ErrDuplicate, "cloudevent_duplicate_header"},
	{cloudevents.ErrMissing, "cloudevent_attribute_missing"},
	{cloudevents.ErrName, "cloudevent_attribute_name"},
	{cloudevents.ErrValue, "cloudevent_attribute_value"},
	{cloudevents.ErrAmbiguous, "cloudevent_ambiguous"},
}

// CodeAtPath describes a code and a JSON pointer in words.
func CodeAtPath(code, path string) string { return catalogue.CodeAtPath(code, path) }

// violationText describes a violation in words: the keyword, the place, and the schema's name
// of a missing member.
func violationText(v schemas.Violation) string {
	if v.Keyword == "required" {
		return CodeAtPath(v.Message, v.Path)
	}
	return CodeAtPath(v.Keyword, v.Path)
}

// ParseInstant parses an RFC 3339 time; any other text is the zero time.
func ParseInstant(text string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, strings.ToUpper(text))
	if err != nil {
		return time.Time{}
	}
	return t.UTC()
}

// errNoData is the error for a CloudEvent without data, which cannot be a producer's event.
var errNoData = errors.New("the message has no data")
