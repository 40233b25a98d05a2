package events

import (
	"fmt"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// Encode returns the bytes of a record for the log: the RFC 8785 form of what encoding/json writes.
func Encode(record any) ([]byte, error) {
	b, err := strictjson.Canonical(record)
	if err != nil {
		return nil, fmt.Errorf("encoding a %T: %w", record, err)
	}
	return b, nil
}

// DecodeRecord reads a record written by Encode, strictly: unknown fields are errors, and so is
// everything that strictjson refuses.
func DecodeRecord[T any](b []byte) (r T, err error) {
	if _, err = strictjson.ReadObject(b, strictjson.DefaultLimits); err != nil {
		return r, err
	}
	if err = strictjson.Unmarshal(b, &r, strictjson.RejectUnknown); err != nil {
		return r, fmt.Errorf("decoding a %T: %w", r, err)
	}
	return r, nil
}

// FieldError reports a member of another JSON type than the protocol's. It never holds the
// member's value.
type FieldError struct {
	Path string // JSON pointer (RFC 6901) of the member
	Want string // the type it must have
}

func (e *FieldError) Error() string { return fmt.Sprintf("%s must be %s", e.Path, e.Want) }
