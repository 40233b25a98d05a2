package mcpcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/mcpgate"
	"github.com/countersign-dev/countersign/mcp"
)

type decideCmd struct {
	Gateway
	Hold         time.Duration `help:"How long a call may wait for its verdict, and for a person: less than the gateway's time-out." default:"8s" placeholder:"DURATION"`
	Listen       string        `help:"Address of the decision point. Beyond loopback it needs a certificate, and answers no --docker. It keeps at most 1024 connections open, and 256 of any other machine." default:"127.0.0.1:8468" placeholder:"ADDR"`
	TLSCert      string        `name:"tls-cert" help:"Certificate in PEM; read again when it changes." placeholder:"FILE" and:"tls"`
	TLSKey       string        `name:"tls-key" help:"Its key in PEM." placeholder:"FILE" and:"tls"`
	ToolHive     []string      `name:"toolhive-secret" help:"File with the secret of ToolHive's signatures. Two of them, while it changes." sep:"none" placeholder:"FILE"`
	Docker       string        `help:"Answer Docker's MCP gateway; its tools are judged as mcp__NAME__TOOL. Any program of this machine may ask." placeholder:"NAME"`
	AgentGateway string        `name:"agentgateway" help:"Answer agentgateway (ExtMCP, gRPC) at ADDR, such as 127.0.0.1:8469. Beyond loopback it needs a certificate, and --client-ca." placeholder:"ADDR"`
	ClientCA     string        `name:"client-ca" help:"CA certificates in PEM: at --agentgateway, only clients with a certificate of them are answered." placeholder:"FILE"`
	Outcomes     time.Duration `help:"How long agentgateway may take to show how a call ended, at most 10m. Without it the outcome on record is unknown." placeholder:"DURATION"`
	Reads        bool          `help:"Have resources/read and prompts/get admitted, too (default: they pass)."`
}

func (c *decideCmd) Run(ctx context.Context, io ui.Stdio) error {
	if err := c.check(c.Hold); err != nil {
		return err
	}
	if len(c.ToolHive) == 0 && c.Docker == "" && c.AgentGateway == "" {
		return ui.UsageError{Err: errors.New("say who may ask: --toolhive-secret FILE, --docker NAME or --agentgateway ADDR")}
	}
	if c.Outcomes < 0 || c.Outcomes > mcpgate.MaxOutcomes {
		return ui.UsageError{Err: fmt.Errorf("--outcomes must be 0s to %s", mcpgate.MaxOutcomes)}
	}
	if c.Docker != "" {
		if err := mcp.CheckServerName(c.Docker); err != nil {
			return ui.UsageError{Err: fmt.Errorf("--docker: %w", err)}
		}
	}
	o := mcpgate.DecideOptions{
		Peer: c.Peer, Hold: c.Hold, Page: c.page(), Reads: c.Reads, Docker: c.Docker, Err: io.Err, Listen: c.Listen, Cert: c.TLSCert, Key: c.TLSKey,
		AgentGateway: c.AgentGateway, ClientCA: c.ClientCA, Outcomes: c.Outcomes,
		Ready: func(url string) { fmt.Fprintf(io.Err, "countersign: deciding at %s\n", url) },
	}
	for _, file := range c.ToolHive {
		b, err := os.ReadFile(file)
		secret := strings.TrimSpace(string(b))
		if err == nil && len(secret) < 16 {
			err = fmt.Errorf("%s has less than 16 characters", file)
		}
		if err != nil {
			return fmt.Errorf("--toolhive-secret: %w", err)
		}
		o.Secrets = append(o.Secrets, secret)
	}
	return mcpgate.Decide(ctx, o)
}
