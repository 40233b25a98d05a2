package judge

import (
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/schemas"
	"github.com/countersign-dev/countersign/schemas/aaep"
	"github.com/countersign-dev/countersign/schemas/aana"
	"github.com/countersign-dev/countersign/schemas/agenthook"
)

// judges has, by token, what judges one event or request of a protocol (docs/adr/0023).
var judges = map[string]func(strictjson.Value) []schemas.Violation{
	subject.ProtoAAEP:      aaep.Strict,
	subject.ProtoAgentHook: agenthook.Judge,
	subject.ProtoAANA:      aana.ValidateContract,
	subject.ProtoAUMP:      bySchema("event_type", "aump/evidence-event", "aump/action-evaluation.request"),
	subject.ProtoTool:      bySchema("type", "aioc/tool_policy_evaluated", "aioc/tool-policy-input"),
	subject.ProtoHandoff:   bySchema("type", "aioc/handoff_policy_evaluated", "aioc/handoff-policy-input"),
}
