// Package mcpcmd is `countersign mcp`: the gate in front of servers of the Model Context Protocol, and
// the definitions of tools that it accepts. The gate itself is package internal/mcpgate. Begin reading
// with Cmd.
package mcpcmd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/gateclient"
	"github.com/countersign-dev/countersign/internal/mcpgate"
	"github.com/countersign-dev/countersign/mcp"
)

// Cmd is `countersign mcp`.
type Cmd struct {
	Wrap   wrapCmd   `cmd:"" help:"Start an MCP server and stand between it and the client on standard input and output: calls of its tools are admitted first. A report of how a call ended that cannot be stored is tried again for a minute."`
	Serve  serveCmd  `cmd:"" help:"Serve MCP servers over HTTP to callers with tokens of the gateway: calls of their tools are admitted first, under the caller's token. A report of how a call ended that cannot be stored is tried again for a minute."`
	Decide decideCmd `cmd:"" help:"Decide calls for MCP gateways that ask before they pass one on: ToolHive, Docker's, agentgateway."`
	Pins   pinsCmd   `cmd:"" help:"The definitions of tools that are accepted."`
}

// Gateway says where the gateway is and how long calls may wait.
type Gateway struct {
	ReadyFile string `help:"Ready file of a running 'up' on this machine (default: COUNTERSIGN_READY_FILE of the environment, without --config)." placeholder:"FILE" xor:"peer"`
	Config    string `help:"The gates' configuration, with the gateway's address (default: countersign/hook.json in the user's configuration directory)." placeholder:"FILE" xor:"peer"`
	Page      string `name:"approval-url" help:"Address of the page where an approval is decided; {workflow} stands for its id (default: that of the gates' configuration, if it is used). Clients that can are asked to open it." placeholder:"URL"`
}

type holding struct {
	Hold time.Duration `help:"How long a call may wait for its verdict, and for a person." default:"25s" placeholder:"DURATION"`
}

// Peer resolves the configuration, anew for each use: a system that is started again has another address.
func (g Gateway) Peer() (gateclient.Peer, error) {
	c, err := g.config()
	if err != nil {
		return gateclient.Peer{}, err
	}
	return c.Peer()
}

func (g Gateway) config() (gateclient.Config, error) {
	if file := gateclient.ReadyFileOf(g.ReadyFile, g.Config); file != "" {
		return gateclient.Config{ReadyFile: file}, nil
	}
	path := g.Config
	if path == "" {
		var err error
		if path, err = gateclient.DefaultConfigPath(); err != nil {
			return gateclient.Config{}, err
		}
	}
	c, err := gateclient.ReadConfig(path)
	if err != nil {
		return c, fmt.Errorf("%w; or give --ready-file FILE", err)
	}
	return c, nil
}

// page is the address of the page where a person decides. A configuration that cannot be read names none: the first
// call says what is wrong with it.
func (g Gateway) page() string {
	c, err := g.config()
	if g.Page != "" || err != nil {
		return g.Page
	}
	return c.ApprovalURL
}

// check reports what is wrong with the flags.
func (g Gateway) check(hold time.Duration) error {
	if hold < time.Second || hold > time.Hour {
		return ui.UsageError{Err: errors.New("--hold must be 1s to 1h")}
	}
	if page := g.page(); page != "" && gateclient.CheckURL(page) != nil {
		return ui.UsageError{Err: errors.New("--approval-url, or approval_url of the configuration, must begin with https://, or with http:// and name this machine")}
	}
	return nil
}

type wrapCmd struct {
	Gateway
	holding
	Name    string   `help:"The server's name, a part of the names under which its tools are judged: mcp__NAME__TOOL." required:"" placeholder:"NAME"`
	Pin     string   `help:"Accept only the definitions in FILE, which stays as it is. Without it a tool is accepted as it is first seen." placeholder:"FILE"`
	Reads   bool     `help:"Have resources/read and prompts/get admitted, too (default: they pass)."`
	Command []string `arg:"" passthrough:"" help:"The server's command line, after --."`
}

func (c *wrapCmd) Run(ctx context.Context, io ui.Stdio) error {
	command := c.Command
	if len(command) > 0 && command[0] == "--" {
		command = command[1:]
	}
	if len(command) == 0 {
		return ui.UsageError{Err: errors.New("say which server to start: countersign mcp wrap --name NAME -- COMMAND")}
	}
	if err := mcp.CheckServerName(c.Name); err != nil {
		return ui.UsageError{Err: err}
	}
	if err := c.check(c.Hold); err != nil {
		return err
	}
	pins, err := mcpgate.OpenPins(c.Name, c.Pin)
	if err != nil {
		return err
	}
	if _, err := pins.Read(); err != nil {
		return err
	}
	code, err := mcpgate.Wrap(ctx, mcpgate.WrapOptions{
		Server: c.Name, Command: command, Peer: c.Peer, Page: c.page(), Hold: c.Hold, Pins: pins, Reads: c.Reads, In: io.In, Out: io.Out, Err: io.Err,
	})
	if err == nil && code != 0 {
		return ui.ExitCode(code)
	}
	return err
}
