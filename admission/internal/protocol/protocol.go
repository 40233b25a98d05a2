// Package protocol lets tests add a row to admission's table of protocols (docs/adr/0023). The
// table itself is in package admission.
package protocol

import "github.com/countersign-dev/countersign/admission/call"

// Row is what a test may say of a protocol: the fields of admission's row have the same names.
type Row struct {
	call.Protocol
	Carrier, Source string
}

// Add adds a row. Package admission sets it. Only tests call it, and none while requests are
// decided.
var Add func(token string, row Row) (remove func())
