// Package cli is the command line of countersign. Each command is a struct with its
// flags and a Run method, in the package of its subject below this one.
package cli

import (
	"github.com/alecthomas/kong"

	"github.com/countersign-dev/countersign/internal/cli/admin"
	"github.com/countersign-dev/countersign/internal/cli/approvalscmd"
	"github.com/countersign-dev/countersign/internal/cli/correlate"
	"github.com/countersign-dev/countersign/internal/cli/export"
	"github.com/countersign-dev/countersign/internal/cli/hookcmd"
	"github.com/countersign-dev/countersign/internal/cli/inspect"
	"github.com/countersign-dev/countersign/internal/cli/mandatecmd"
	"github.com/countersign-dev/countersign/internal/cli/mcpcmd"
	"github.com/countersign-dev/countersign/internal/cli/mcptools"
	"github.com/countersign-dev/countersign/internal/cli/policycmd"
	"github.com/countersign-dev/countersign/internal/cli/publishercmd"
	"github.com/countersign-dev/countersign/internal/cli/run"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/cli/verify"
)

// Program is the command line of countersign.
func Program() ui.Program {
	return ui.Program{
		Name:     "countersign",
		About:    "Proves what AI agents were allowed to do, what they did, and that the two match.",
		Commands: &commands{},
		Options:  []kong.Option{system.SessionNames},
	}
}

// commands is the whole command line.
type commands struct {
	Version ui.VersionFlag `help:"Print the version and exit."`

	Up          run.UpCmd                `cmd:"" help:"Start NATS, ClickHouse, the three services and the gateway on this machine."`
	Demo        run.DemoCmd              `cmd:"" help:"Play sample agent sessions through a pipeline of its own, start to finish."`
	Admit       run.AdmitCmd             `cmd:"" help:"Ask for admission once and print the native reply (exit 0 allow, 3 ask or defer, 4 deny)."`
	Evaluate    policycmd.EvaluateCmd    `cmd:"" help:"Decide requests offline, without a server (exit 0 whatever the verdict)."`
	Validate    correlate.ValidateCmd    `cmd:"" help:"Judge events or requests by their protocol's schemas and rules, without a server (exit 1 if one is not valid)."`
	Check       correlate.CheckCmd       `cmd:"" help:"Correlate a recorded session offline and print findings (exit 0 also with findings)."`
	Conformance correlate.ConformanceCmd `cmd:"" help:"Hold a publisher's traffic against its protocol's conformance levels and profiles; certifies nothing (exit 0 also if a profile is not met)."`
	Publish     run.PublishCmd           `cmd:"" help:"Publish events; succeeds only when all are stored durably."`
	Tail        run.TailCmd              `cmd:"" help:"Follow the decision stream."`
	Chain       inspect.ChainCmd         `cmd:"" help:"Print the evidence chain of a session."`
	Session     inspect.SessionCmd       `cmd:"" help:"Print what happened in a session, readable, in the order of the log."`
	Calls       inspect.CallsCmd         `cmd:"" help:"List calls: what was decided, what ran, and whether they match."`
	Findings    inspect.FindingsCmd      `cmd:"" help:"List what was found: broken rules, their proof, and what to do."`
	Replay      correlate.ReplayCmd      `cmd:"" help:"Correlate a session again and compare with what was recorded (exit 1 if it differs)."`
	Verify      verify.Cmd               `cmd:"" help:"Recompute chain, tree, checkpoints and signatures; succeeds only if everything holds."`
	Witness     verify.WitnessCmd        `cmd:"" help:"The witness's side: sign checkpoints of a log that another party runs."`
	Export      export.Cmd               `cmd:"" help:"Write the compliance bundle of a session, or of a tenant's records of a range of time."`
	Otel        export.OtelCmd           `cmd:"" help:"Send calls as OpenTelemetry spans, decisions and findings as log records."`
	Controls    export.ControlsCmd       `cmd:"" help:"What the evidence shows of the controls of common frameworks, and what it does not."`
	Rules       correlate.RulesCmd       `cmd:"" help:"List and explain the rules that findings name."`
	Policy      policycmd.Cmd            `cmd:"" help:"Check, test, simulate, push and roll back admission policies."`
	Explain     policycmd.ExplainCmd     `cmd:"" help:"Say why a decision was made, and make it again from what was recorded."`
	Mandate     mandatecmd.Cmd           `cmd:"" help:"Keep, revoke and judge AUMP mandates."`
	Keys        admin.KeysCmd            `cmd:"" help:"List, rotate and retire the keys that sign receipts."`
	Redaction   admin.RedactionCmd       `cmd:"" help:"Try, push and show the policies by which evidence is redacted."`
	Retention   admin.RetentionCmd       `cmd:"" help:"Show and change what is kept, for how long; legal holds; erase a session or a data subject."`
	Tenant      run.TenantCmd            `cmd:"" help:"Add tenants to a running 'up'."`
	User        run.UserCmd              `cmd:"" help:"Add users to a running 'up'."`
	Token       admin.TokenCmd           `cmd:"" help:"Make, list and revoke the tokens with which programs sign in at a gateway."`
	Hook        hookcmd.Cmd              `cmd:"" help:"The gate in front of a coding agent: claude-code, codex, gemini, cursor, copilot, cline, opencode."`
	MCP         mcpCmd                   `cmd:"" name:"mcp" help:"The gate in front of servers of the Model Context Protocol, and a server with tools of our own."`
	Publisher   publishercmd.Cmd         `cmd:"" help:"Keep publisher manifests, registrations and tool catalogues."`
	Approvals   approvalscmd.Cmd         `cmd:"" help:"The reviewer's side of ask and defer: list, show, approve, deny, cancel."`
	Audit       inspect.AuditCmd         `cmd:"" help:"Answer the questions that auditors ask, and let auditors in."`
	Doctor      run.DoctorCmd            `cmd:"" help:"Check durability, streams, permissions, lag, clock and keys; say what is unsafe."`
	Provision   run.ProvisionCmd         `cmd:"" help:"Create keys, streams and buckets for a system that 'up' does not run."`
	Engine      run.EngineCmd            `cmd:"" help:"The embedded ClickHouse engine."`
}

// mcpCmd is `countersign mcp`: what countersign-mcp has, and more.
type mcpCmd struct {
	mcpcmd.Cmd
	Tools mcptools.Cmd `cmd:"" help:"Serve an agent on standard input and output: AANA's and AUMP's evaluations, and reading evidence."`
}
