// Command aaep-producer is a small agent that speaks AAEP: it reads requests of its user from standard
// input, a line each, and publishes what it does through the gateway. It asks Countersign before a tool
// runs, and its user before what cannot be undone. Its model is a table (scripts.go); what a real agent
// would take over is session.go and gateway.go.
//
//	countersign up --ready-file ready.json --policy DIR &
//	countersign publisher put examples/aaep-producer/front-end.json --ready-file ready.json
//	go run ./examples/aaep-producer -ready ready.json
//
// DIR holds policies for find_flights and book_flight, such as those of examples/policies/assistant and
// examples/gates. Users listen, and reply, by AAEP subscriptions (docs/gateway.md). For each request the
// program prints the session in which it is carried out.
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
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "aaep-producer:", err)
		os.Exit(1)
	}
}

// readyFile is what the producer reads of the ready file of `countersign up`.
type readyFile struct {
	Gateway string `json:"gateway_url"`
	Roles   map[string]struct {
		Token string `json:"token"`
	} `json:"roles"`
}

// run carries out one request after the other until the input or ctx ends.
func run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	flags := flag.NewFlagSet("aaep-producer", flag.ContinueOnError)
	ready := flags.String("ready", "ready.json", "ready file of countersign up")
	patience := flags.Duration("patience", time.Minute, "how long a question to the user waits, in whole seconds")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *patience < time.Second {
		return errors.New("-patience must be a second or more")
	}
	text, err := os.ReadFile(*ready)
	if err != nil {
		return err
	}
	var file readyFile
	if err := json.Unmarshal(text, &file); err != nil {
		return fmt.Errorf("%s: %w", *ready, err)
	}
	p := newProducer(gateway{url: file.Gateway, speaks: file.Roles["runtime"].Token, hears: file.Roles["subscriber"].Token}, *patience)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	hearing, heard := make(chan struct{}), make(chan error, 1)
	go func() { heard <- p.gateway.hearReplies(ctx, hearing, p.deliver) }()
	select {
	case <-hearing:
	case err := <-heard:
		return err
	}
	lines := bufio.NewScanner(in)
	for ctx.Err() == nil && lines.Scan() {
		if err := p.serve(ctx, lines.Text(), out); err != nil {
			return err
		}
	}
	return lines.Err()
}

// serve carries out one request in a session of its own.
func (p *producer) serve(ctx context.Context, request string, out io.Writer) error {
	s := &session{p: p, id: newID("sess_"), state: "idle"}
	if _, err := fmt.Fprintln(out, s.id); err != nil {
		return err
	}
	if err := s.emit(ctx, "session.started", event{"summary_normal": "Working on a request.", "tools_available": tools}); err != nil {
		return err
	}
	err := scriptOf(request)(ctx, s)
	if err == nil {
		return s.emit(ctx, "session.completed", event{"summary_normal": "The request is done.", "tool_invocations_count": s.tools})
	}
	if ctx.Err() != nil {
		stopped, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
		defer cancel()
		return s.emit(stopped, "session.cancelled", event{"cancelled_by": "producer", "summary_normal": "The agent is stopping."})
	}
	return s.emit(ctx, "session.errored", event{"urgency": critical, "error_category": "permanent", "summary_normal": "The request failed.", "recoverable": false})
}

// lastWords bounds the last event of a session that a stop cuts short.
const lastWords = 5 * time.Second
