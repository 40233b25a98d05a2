// Package gates measures a call through the gates for MCP servers and for coding agents, beside the admission of
// the same call and beside no gate.
package gates

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/bench/measure"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/gateclient"
	"github.com/countersign-dev/countersign/mcp"
)

// MCPCmd measures a call of an MCP tool through the gates, beside the admission of the same call and beside
// the server alone. Of each round every one takes its turn, so that all have the same machine.
type MCPCmd struct{ turnsFlags }

// turnsFlags are common to the benchmarks of gates.
type turnsFlags struct {
	Calls        int    `help:"Number of calls of each kind, one after the other." default:"300"`
	SyncInterval string `help:"Sync setting of the log: always, or a duration such as 2m." default:"always"`
	Policies     int    `help:"How many policies are loaded." default:"100"`
	CacheDir     string `help:"Where the engine's library is kept (default: the user's cache directory)." env:"COUNTERSIGN_CACHE" placeholder:"DIR"`
	JSON         bool   `name:"json" help:"Print JSON, one measurement a line."`
}

// gatePath is one of the kinds of calls that take turns.
type gatePath struct {
	what string
	gate bool
	call func(ctx context.Context) error
	took []time.Duration
}

// mcpPolicy allows the calls of the benchmark.
var mcpPolicy = policy.Document{Name: "mcp", Data: []byte(`apiVersion: countersign.dev/v1
kind: AdmissionPolicy
metadata: {name: mcp}
spec:
  match: {tools: ["mcp__bench__*"]}
  rules:
    - {name: echo, when: 'has(args.text)', verdict: allow, reason: echo}
`)}

func (c *MCPCmd) Run(ctx context.Context, io ui.Stdio) error {
	if c.Calls < 1 {
		return ui.UsageError{Err: errors.New("--calls must be at least 1")}
	}
	setup := measure.Setup{SyncInterval: c.SyncInterval, Policies: c.Policies, CacheDir: c.CacheDir, More: []policy.Document{mcpPolicy}}
	return setup.RunReady(ctx, io, func(dir, file string, ready target.Ready) error {
		paths, stop, err := openMCP(ctx, dir, file, ready.Roles[target.Runtime].Token)
		if err != nil {
			return err
		}
		defer stop()
		if err := takeTurns(ctx, c.Calls, paths); err != nil {
			return err
		}
		return printTurns(io, c.JSON, fmt.Sprintf("%d policies, log synced: %s, one call at a time", c.Policies, c.SyncInterval), paths)
	})
}

// reportPause is longer than the report of a call usually takes.
const reportPause = 10 * time.Millisecond

// takeTurns makes the calls of all kinds, in turn. The first tenth does not count. Before each call there is a
// pause: without it, what follows a gate would wait for the report of that gate's call, and what follows
// something else would not.
func takeTurns(ctx context.Context, calls int, paths []*gatePath) error {
	first := calls/measure.WarmUp + 1
	for round := range first + calls {
		for i := range paths {
			p := paths[(round+i)%len(paths)]
			time.Sleep(reportPause)
			begun := time.Now()
			if err := p.call(ctx); err != nil {
				return fmt.Errorf("%s: %w", p.what, err)
			}
			if round >= first {
				p.took = append(p.took, time.Since(begun))
			}
		}
	}
	return nil
}

func (p *gatePath) result() measure.Latency {
	var sum time.Duration
	for _, d := range p.took {
		sum += d
	}
	return measure.LatencyOf(p.what, 1, p.took, sum)
}

// printTurns prints a line for each kind of calls. The first is the admission that the others are held against.
func printTurns(io ui.Stdio, asJSON bool, setup string, paths []*gatePath) error {
	measure.Title(io, asJSON, measure.LatencyHeads, "%s", setup)
	admission := paths[0].result()
	for _, p := range paths {
		r := p.result()
		if p.gate {
			r.P50Over, r.P99Over = r.P50-admission.P50, r.P99-admission.P99
		}
		if err := measure.Print(io, asJSON, r); err != nil {
			return err
		}
	}
	return nil
}

// admissionOf asks the gateway as a gate does, and does nothing else.
func admissionOf(readyFile string) (func(context.Context) error, error) {
	peer, err := gateclient.Config{ReadyFile: readyFile}.Peer()
	if err != nil {
		return nil, err
	}
	asker, session, n := gateclient.NewAsker(peer), "mcp-"+uuid.NewString(), 0
	return func(ctx context.Context) error {
		n++
		call := mcp.Call{Server: "bench", Name: "echo", Arguments: json.RawMessage(mcpArguments)}
		event, err := call.Propose(mcp.Event{ID: uuid.NewString(), Time: time.Now(), Session: session, CallID: fmt.Sprintf("mcp-%d", n)})
		if err != nil {
			return err
		}
		return propose(ctx, asker, event)
	}, nil
}

// propose asks the gateway about an event that must be allowed.
func propose(ctx context.Context, asker *gateclient.Asker, event []byte) error {
	r, err := asker.Propose(ctx, event, "")
	if err == nil && r.Verdict != events.Allow {
		err = fmt.Errorf("verdict %s: %w", r.Verdict, measure.ErrNotAllowed)
	}
	return err
}
