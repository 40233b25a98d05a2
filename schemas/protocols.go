package schemas

import (
	"embed"
	"io/fs"
	"slices"

	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
)

// Protocol is a row of the table of protocols at the stage of schemas: what the registry must know
// of each (docs/adr/0023).
type Protocol struct {
	// Token is the protocol's token in subjects. The protocol member of records may have it.
	Token string
	// Schemas holds the folder of the protocol's schemas. Protocols may share one.
	Schemas fs.FS
}

//go:embed aaep/*.json
var aaepSchemas embed.FS

//go:embed agenthook/*.json
var agentHookSchemas embed.FS

//go:embed aana/*.json
var aanaSchemas embed.FS

//go:embed aump/*.json
var aumpSchemas embed.FS

//go:embed aioc/*.json
var aiocSchemas embed.FS

var protocols = []Protocol{
	{subject.ProtoAAEP, aaepSchemas},
	{subject.ProtoAgentHook, agentHookSchemas},
	{subject.ProtoAANA, aanaSchemas},
	{subject.ProtoAUMP, aumpSchemas},
	{subject.ProtoTool, aiocSchemas},
	{subject.ProtoHandoff, aiocSchemas},
}

// judges has, by token, what judges one event or request of a protocol by its schemas and its checks on
// one document. It is no part of the table, because the functions need the registry that is made of it.
func judges() map[string]func(strictjson.Value) []Violation {
	return map[string]func(strictjson.Value) []Violation{
		subject.ProtoAAEP:      StrictAAEP,
		subject.ProtoAgentHook: judgeAgentHook,
		subject.ProtoAANA:      AANAContract,
		subject.ProtoAUMP:      bySchema("event_type", "aump/evidence-event", "aump/action-evaluation.request"),
		subject.ProtoTool:      bySchema("type", "aioc/tool_policy_evaluated", "aioc/tool-policy-input"),
		subject.ProtoHandoff:   bySchema("type", "aioc/handoff_policy_evaluated", "aioc/handoff-policy-input"),
	}
}

// Protocols returns the table. The caller may change it.
func Protocols() []Protocol { return slices.Clone(protocols) }
