package schemas

import "github.com/countersign-dev/countersign/events/strictjson"

const (
	aanaEvent    = "aana/event"
	aanaContract = "aana/contract"
)

// AANA validates the shape of an event of the AANA Agent Action Contract v1 with normalised
// evidence references. It leaves out what the contract forbids between fields; AANAContract
// includes that.
func AANA(v strictjson.Value) []Violation { return Default().Validate(aanaEvent, v) }

// AANAContract validates an event as the published schema does.
func AANAContract(v strictjson.Value) []Violation { return Default().Validate(aanaContract, v) }
