package mcpcmd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/mcpgate"
	"github.com/countersign-dev/countersign/mcp"
)

type serveCmd struct {
	Gateway
	holding
	Listen        string   `help:"Address of the gate. Beyond loopback it needs a certificate and --public-url. It keeps at most 1024 connections open, and 256 of any other machine." default:"127.0.0.1:8467" placeholder:"ADDR"`
	TLSCert       string   `name:"tls-cert" help:"Certificate in PEM; read again when it changes." placeholder:"FILE"`
	TLSKey        string   `name:"tls-key" help:"Its key in PEM." placeholder:"FILE"`
	PublicURL     string   `name:"public-url" help:"Address under which clients reach the gate." placeholder:"URL"`
	Upstream      []string `help:"A server to serve under /NAME: NAME=URL, or NAME=COMMAND, whose words are separated by spaces. May be repeated." sep:"none" placeholder:"NAME=URL|COMMAND"`
	UpstreamToken []string `help:"The gate's own bearer token for the URL of a server: NAME=FILE. Tokens of callers are never passed on." sep:"none" placeholder:"NAME=FILE"`
	Authorization []string `name:"authorization-server" help:"Issuer of the callers' tokens, which clients are told (OAuth protected-resource metadata)." sep:"none" placeholder:"URL"`
	Origin        []string `help:"Origin of web pages that may call the gate, such as https://app.example. May be repeated. Pages of other origins are refused." sep:"none" placeholder:"ORIGIN"`
	Pin           string   `help:"Accept only the definitions in DIR/NAME.json, for every caller. Without it each caller accepts a tool as it is first seen." placeholder:"DIR"`
	Reads         bool     `help:"Have resources/read and prompts/get admitted, too (default: they pass)."`
}

func (c *serveCmd) Run(ctx context.Context, io ui.Stdio) error {
	if err := c.check(c.Hold); err != nil {
		return err
	}
	upstreams, err := c.upstreams()
	if err != nil {
		return ui.UsageError{Err: err}
	}
	o := mcpgate.ServeOptions{
		Listen: c.Listen, Cert: c.TLSCert, Key: c.TLSKey, PublicURL: c.PublicURL, Origins: c.Origin, AuthorizationAt: c.Authorization, Upstreams: upstreams,
		Peer: c.Peer, Page: c.page(), Hold: c.Hold, Reads: c.Reads, Err: io.Err,
		Pins: func(server, caller string) (mcpgate.PinFile, error) {
			return mcpgate.OpenCallerPins(server, caller, c.Pin)
		},
		Ready: func(url string) {
			for _, u := range upstreams {
				fmt.Fprintf(io.Err, "countersign: serving %s at %s/%s\n", u.Name, url, u.Name)
			}
		},
	}
	if err := o.Check(); err != nil {
		return ui.UsageError{Err: err}
	}
	for _, u := range upstreams {
		if pins, err := o.Pins(u.Name, "check"); err != nil {
			return err
		} else if _, err := pins.Read(); err != nil {
			return err
		}
	}
	return mcpgate.Serve(ctx, o)
}

// upstreams reads the flags that name servers.
func (c *serveCmd) upstreams() ([]mcpgate.Upstream, error) {
	tokens := map[string]string{}
	for _, text := range c.UpstreamToken {
		name, file, found := strings.Cut(text, "=")
		if !found || file == "" {
			return nil, errors.New("--upstream-token is written NAME=FILE")
		}
		tokens[name] = file
	}
	var list []mcpgate.Upstream
	for _, text := range c.Upstream {
		name, where, _ := strings.Cut(text, "=")
		if err := mcp.CheckServerName(name); err != nil {
			return nil, fmt.Errorf("--upstream: %w", err)
		}
		u := mcpgate.Upstream{Name: name, TokenFile: tokens[name]}
		delete(tokens, name)
		if strings.HasPrefix(where, "https://") || strings.HasPrefix(where, "http://") {
			u.URL = where
		} else if u.Command = strings.Fields(where); len(u.Command) == 0 {
			return nil, fmt.Errorf("--upstream %s names neither a URL nor a command", name)
		}
		if u.TokenFile != "" && u.URL == "" {
			return nil, fmt.Errorf("--upstream-token: the server %s has no URL", name)
		}
		list = append(list, u)
	}
	for name := range tokens {
		return nil, fmt.Errorf("--upstream-token names %s, and no --upstream does", ui.Clean(name, 64))
	}
	return list, nil
}
