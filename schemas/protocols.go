package schemas

import (
	"embed"
	"io/fs"
	"slices"

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

// Tokens lists the tokens of the protocols.
func Tokens() (list []string) {
	for _, p := range protocols {
		list = append(list, p.Token)
	}
	return list
}

// Protocols returns the table. The caller may change it.
func Protocols() []Protocol { return slices.Clone(protocols) }
