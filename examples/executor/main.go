// Command executor shows how a separate process runs tools, and only those that were allowed:
// it reads calls as JSON Lines from standard input, checks the receipt of each against exactly
// what it is about to run, and runs it once. It needs no connection and no admitter, only the
// public checkpoint key.
//
//	countersign up --data-dir data --ready-file ready.json &
//	go run ./examples/executor -tenant acme -key data/keys/checkpoint.pub -used /var/lib/executor/used < calls.jsonl
//
// A call is the runtime's line, with the two headers of the reply:
//
//	{"source": "acme-runtime", "session": "s1", "tool_call_id": "c1", "tool": "echo", "arguments": {"text": "hi"},
//	 "receipt": "<Countersign-Receipt>", "key": "<Countersign-Key>"}
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/countersign-dev/countersign/client/guard"
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "executor:", err)
		os.Exit(1)
	}
}

// tools are the tools of this executor. Credentials of tools belong here, not in the agent's
// process.
var tools = map[string]func(ctx context.Context, arguments []byte) (string, error){
	"echo": func(_ context.Context, arguments []byte) (string, error) {
		var a struct {
			Text string `json:"text"`
		}
		err := json.Unmarshal(arguments, &a)
		return a.Text, err
	},
}

// handedOver is one line of input.
type handedOver struct {
	Source     string          `json:"source"`
	Session    string          `json:"session"`
	ToolCallID string          `json:"tool_call_id"`
	Tool       string          `json:"tool"`
	Arguments  json.RawMessage `json:"arguments"`
	Receipt    string          `json:"receipt"`
	Key        string          `json:"key"`
}

// outcome is one line of output.
type outcome struct {
	ToolCallID string `json:"tool_call_id"`
	Ran        bool   `json:"ran"`
	Result     string `json:"result,omitempty"`
	Refused    string `json:"refused,omitempty"` // why nothing ran: a stable code
	Error      string `json:"error,omitempty"`   // the tool's own error
}

func run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	guard, err := newGuard(args)
	if err != nil {
		return err
	}
	enc := json.NewEncoder(out)
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var call handedOver
		if err := json.Unmarshal(lines.Bytes(), &call); err != nil {
			return fmt.Errorf("reading a call: %w", err)
		}
		if err := enc.Encode(execute(ctx, guard, call)); err != nil {
			return err
		}
	}
	return lines.Err()
}

// newGuard returns the one guard of this process.
func newGuard(args []string) (*guard.Guard, error) {
	flags := flag.NewFlagSet("executor", flag.ContinueOnError)
	tenant := flags.String("tenant", "acme", "whose calls this executor runs")
	key := flags.String("key", "checkpoint.pub", "file with the public checkpoint key")
	used := flags.String("used", "", "directory that remembers used receipts, for all executors of this machine")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	public, err := os.ReadFile(*key)
	if err != nil {
		return nil, err
	}
	options := guard.Options{Tenant: *tenant, PublicKey: string(public)}
	if *used != "" {
		if options.Uses, err = guard.NewDirectory(*used); err != nil {
			return nil, err
		}
	}
	return guard.New(options)
}

// execute runs one call if its receipt allows it. The tool and its arguments are looked up once
// and given to both the guard and the tool: what is checked is what runs.
func execute(ctx context.Context, g *guard.Guard, call handedOver) outcome {
	done := outcome{ToolCallID: call.ToolCallID}
	tool, known := tools[call.Tool]
	if !known {
		done.Refused = "unknown_tool"
		return done
	}
	err := g.Run(ctx, guard.Execution{
		Receipt: call.Receipt, Key: call.Key,
		Source: call.Source, Session: call.Session, ToolCallID: call.ToolCallID, Tool: call.Tool, Arguments: call.Arguments,
	}, func(ctx context.Context) (err error) {
		done.Ran = true
		done.Result, err = tool(ctx, call.Arguments)
		return err
	})
	var refused *guard.Refused
	switch {
	case errors.As(err, &refused):
		done.Refused = refused.Code
	case err != nil:
		done.Error = err.Error()
	}
	return done
}
