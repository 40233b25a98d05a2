// Package aump has what the row of AUMP does at the stage of compliance.
package aump

import (
	"github.com/countersign-dev/countersign/events/aump"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// Mandate returns what the hash of an AUMP mandate covers, which leaves out its signatures, and the hash;
// "" if the text is no mandate.
func Mandate(text string) (covered, hash string) {
	m, err := aump.DecodeMandate([]byte(text), strictjson.DefaultLimits)
	if m == nil || err != nil && !m.Doc.Exists() {
		return "", ""
	}
	form, err := aump.UnsignedForm(m.Tree())
	if err != nil {
		return "", ""
	}
	hash, err = aump.MandateHash(m.Tree())
	if err != nil {
		return "", ""
	}
	return string(form), hash
}
