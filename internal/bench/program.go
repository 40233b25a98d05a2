// Package bench has the measurements of countersign-bench: admission, correlation, audit,
// verification and export on this machine, beside floors that are measured in the same run. Begin
// with Commands: each command is a type with a Run method, in the package of its subject; measure
// has what they share.
package bench

import (
	"github.com/alecthomas/kong"

	"github.com/countersign-dev/countersign/internal/bench/admit"
	"github.com/countersign-dev/countersign/internal/bench/audit"
	"github.com/countersign-dev/countersign/internal/bench/calls"
	correlatebench "github.com/countersign-dev/countersign/internal/bench/correlate"
	"github.com/countersign-dev/countersign/internal/bench/gates"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/ui"
)

// Program is the command line of countersign-bench.
func Program() ui.Program {
	return ui.Program{
		Name:     "countersign-bench",
		About:    "Measure this machine, beside the floors.",
		Commands: &Commands{},
		Options:  []kong.Option{system.SessionNames},
	}
}

// Commands is the command line of countersign-bench.
type Commands struct {
	Version ui.VersionFlag `help:"Print the version and exit."`

	Calls     calls.Cmd          `cmd:"" help:"What a governed call costs end to end, beside the same bytes appended and the same rows inserted."`
	Verify    audit.VerifyCmd    `cmd:"" help:"Verification and proofs, beside reading the same rows in order and hashing them."`
	Correlate correlatebench.Cmd `cmd:"" help:"Correlation rate, cost and lag, beside a consumer that decodes nothing."`

	Export audit.ExportCmd `cmd:"" help:"The export of a tenant's range and its verification: time and memory of each."`

	Admit   admit.Cmd        `cmd:"" help:"Admission latency and rate, beside a raw NATS round trip and raw durable publishes."`
	Gateway admit.GatewayCmd `cmd:"" help:"Admission over HTTP beside NATS, idle streams with their memory, and an event to many streams beside writes alone."`
	MCP     gates.MCPCmd     `cmd:"" name:"mcp" help:"A call of an MCP tool through the gates, beside the admission of the same call and beside the server alone."`
	Hook    gates.HookCmd    `cmd:"" help:"A call of a coding agent through its gate, from process start to answer, beside an empty program and beside the admission of the same call."`
	Audit   audit.Cmd        `cmd:"" help:"The auditor's rate and the look-ups of auditors, beside plain consuming and plain inserting."`

	MCPServer gates.MCPServerCmd `cmd:"" name:"mcp-server" hidden:"" help:"A server with one tool."`
}
