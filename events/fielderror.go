package events

import "fmt"

// FieldError reports a member of another JSON type than the protocol's. It never holds the
// member's value.
type FieldError struct {
	Path string // JSON pointer (RFC 6901) of the member
	Want string // the type it must have
}

func (e *FieldError) Error() string { return fmt.Sprintf("%s must be %s", e.Path, e.Want) }
