// Package protocol lets tests add a row to the engine's table of protocols (docs/adr/0023). The
// table itself is in package correlation, because its rows refer to the parts of the engine.
package protocol

import "github.com/countersign-dev/countersign/correlation/fact"

// Add adds the smallest row: how the messages of a protocol are read. Package correlation sets it.
// Only tests call it, and none while a correlator runs.
var Add func(fact.Protocol) (remove func())
