// Package aana validates the events of the AANA Agent Action Contract v1 by the schemas that
// package schemas compiles.
package aana

import (
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/schemas"
)

const (
	event    = "aana/event"
	contract = "aana/contract"
)

// ValidateEvent validates the shape of an event with normalised evidence references. It leaves
// out what the contract forbids between fields; ValidateContract includes that.
func ValidateEvent(v strictjson.Value) []schemas.Violation {
	return schemas.Default().Validate(event, v)
}

// ValidateContract validates an event as the published schema does.
func ValidateContract(v strictjson.Value) []schemas.Violation {
	return schemas.Default().Validate(contract, v)
}
