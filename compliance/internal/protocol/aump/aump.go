// Package aump has what the row of AUMP does at the stage of compliance.
package aump

import (
	"github.com/countersign-dev/countersign/events/aump"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// MandateHash is the hash of an AUMP mandate's text, or "" if the text is no mandate.
func MandateHash(text string) string {
	m, err := aump.DecodeMandate([]byte(text), strictjson.DefaultLimits)
	if m == nil || err != nil && !m.Doc.Exists() {
		return ""
	}
	hash, err := aump.MandateHash(m.Tree())
	if err != nil {
		return ""
	}
	return hash
}
