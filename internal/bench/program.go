package bench

import (
	"github.com/alecthomas/kong"

	"github.com/countersign-dev/countersign/internal/cli/export"
	"github.com/countersign-dev/countersign/internal/cli/mcpcmd"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/cli/verify"
)

// productArg is the command with which a benchmark starts its own binary as the product, to
// measure a separate process.
const productArg = "product"

// productCommands are the commands of the product that are measured so.
type productCommands struct {
	Export export.Cmd `cmd:"" help:"As countersign export."`
	Verify verify.Cmd `cmd:"" help:"As countersign verify."`

	MCP       mcpcmd.Cmd   `cmd:"" name:"mcp" help:"As countersign mcp."`
	MCPServer mcpServerCmd `cmd:"" name:"mcp-server" help:"A server with one tool."`
}

// Program is the command line of countersign-bench.
func Program() ui.Program {
	return ui.Program{
		Name:     "countersign-bench",
		About:    "Measure this machine, beside the floors.",
		Commands: &Commands{},
		Options:  []kong.Option{system.SessionNames},
	}
}
