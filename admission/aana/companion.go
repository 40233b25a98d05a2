package aana

import (
	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/admission/publisher"
	"github.com/countersign-dev/countersign/events"
)

// Companion evaluates calls of other protocols by the contract that they carry.
var Companion = call.Companion{Name: Name, Member: "aana", Requirement: publisher.RequireContract,
	EvidenceCodes: evidenceCodes, Judge: judgeCarried}

// memberContract is the only member of the object in which a call carries a contract.
const memberContract = "contract"

// Reason codes of a contract that is about another call.
const (
	CodeContractTool      = "contract_tool_mismatch"      // the AANA contract is about another tool than the call
	CodeContractArguments = "contract_arguments_mismatch" // the AANA contract is about other arguments than those of the call
)

// judgeCarried evaluates the call as Evaluator evaluates the contract that the call carries.
// The contract must be about this call.
func judgeCarried(carried call.Carried) (c call.Call, o call.Opinion) {
	c, o.Verdict = carried.Call, events.Allow
	holder, _ := carried.Document.(map[string]any)
	contract, ok := holder[memberContract].(map[string]any)
	if !ok || len(holder) != 1 {
		o.AddReason(events.Deny, Name, call.CodeSchemaInvalid, carried.Path)
		return c, o
	}
	at := carried.Path + "/" + memberContract
	about, inner := carried.Read(Evaluator{}, contract, nil)
	o.MergeCarried(inner, at)
	if inner.Malformed {
		return c, o
	}
	if about.Tool != c.Tool && about.Tool != c.CanonicalTool {
		o.AddReason(events.Deny, call.AdmissionEvaluatorName, CodeContractTool, at+"/tool_name")
	}
	if !carried.NoArguments && !sameArguments(about.ArgsCanonical, c.ArgsCanonical) {
		o.AddReason(events.Deny, call.AdmissionEvaluatorName, CodeContractArguments, at+"/proposed_arguments")
	}
	if carried.Tool.Entry.Understates(categoryOf(contract)) {
		o.AddReason(events.Deny, publisher.EvaluatorName, publisher.CodeCategory, at+"/"+memberCategory)
	}
	return c, o
}

const memberCategory = "tool_category"

func categoryOf(contract map[string]any) string {
	category, _ := contract[memberCategory].(string)
	return category
}

// sameArguments treats missing and empty arguments as equal.
func sameArguments(a, b []byte) bool {
	return string(a) == string(b) || len(a) <= len("{}") && len(b) <= len("{}")
}
