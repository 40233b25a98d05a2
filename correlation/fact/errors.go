package fact

import (
	"errors"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/cloudevents"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/schemas"
)

// DecodeErrorText says why something could not be read: a code and a place, no values. Of
// what is no JSON it says no place: that would quote names of members in a finding
// that an erasure of the message does not reach.
func DecodeErrorText(err error) string {
	var strict *strictjson.Error
	var field *fieldError // of all protocols
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

// CodeAtPath puts a code and a JSON pointer into words.
func CodeAtPath(code, path string) string { return catalogue.CodeAtPath(code, path) }

// violationText puts a violation into words: the keyword and the place, and what is
// missing by the name that the schema has for it.
func violationText(v schemas.Violation) string {
	if v.Keyword == "required" {
		return CodeAtPath(v.Message, v.Path)
	}
	return CodeAtPath(v.Keyword, v.Path)
}

// ParseInstant reads RFC 3339 text; anything else is the zero time.
func ParseInstant(text string) time.Time {
	if t, ok := events.ParsePlainTime(text); ok {
		return t
	}
	t, err := time.Parse(time.RFC3339Nano, strings.ToUpper(text))
	if err != nil {
		return time.Time{}
	}
	return t.UTC()
}

// errNoData: a CloudEvent without data cannot be an event of a producer.
var errNoData = errors.New("the message has no data")
