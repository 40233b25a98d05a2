package events

import (
	"strings"

	"github.com/google/uuid"
)

// NormaliseID returns the form in which identifiers of events are compared: a UUID of 36
// characters in lower case, and any other text unchanged.
func NormaliseID(id string) string {
	if len(id) != 36 || !strings.ContainsFunc(id, func(r rune) bool { return r >= 'A' && r <= 'F' }) {
		return id
	}
	u, err := uuid.Parse(id)
	if err != nil {
		return id
	}
	return u.String()
}
