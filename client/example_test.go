package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/client"
	"github.com/countersign-dev/countersign/client/guard"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/streams"
)

// An executor asks before a tool runs, and once more right before it runs.
func ExampleClient_Admit() {
	nc, publicKey, stop := connect() // as the runtime rt1 of tenant acme
	defer stop()

	c, err := client.New(nc, client.Options{Tenant: "acme", Publisher: "rt1", PublicKey: publicKey})
	if err != nil {
		log.Fatal(err)
	}
	args := []byte(`{"to":"dana@acme.example","amount":10}`)
	v := c.Admit(context.Background(), client.Call{
		Protocol: "agenthook", Body: []byte(`{"event_id":"e1"}`), // the whole PreToolUse event
		Session: "s1", ToolCallID: "c1", Tool: "send_email", Arguments: args,
	})
	fmt.Println("allowed:", v.Allowed())
	fmt.Println("other arguments:", v.Permits([]byte(`{"to":"dana@acme.example","amount":1000}`)) == nil)
	fmt.Println("these arguments:", v.Permits(args) == nil)
	fmt.Println("once more:", v.Permits(args))
	// Output:
	// allowed: true
	// other arguments: false
	// these arguments: true
	// once more: guard: this receipt was used before; ask again
}

// Whatever goes wrong, the verdict is deny: here no admitter listens.
func ExampleClient_Admit_noResponders() {
	w, err := newWorld(streams.Shard{})
	if err != nil {
		log.Fatal(err)
	}
	defer w.close()
	nc, err := w.conn("rt1")
	if err != nil {
		log.Fatal(err)
	}
	c, err := client.New(nc, client.Options{Tenant: "acme", Publisher: "rt1", PublicKey: w.publicKey})
	if err != nil {
		log.Fatal(err)
	}
	v := c.Admit(context.Background(), client.Call{Protocol: "agenthook", Body: []byte(`{}`), Tool: "send_email"})
	fmt.Println(v.Decision, v.Reason)
	// Output: deny no_responders
}

// Events are stored durably and in order, or the error says which are not.
func ExampleClient_Publish() {
	nc, publicKey, stop := connect()
	defer stop()

	c, err := client.New(nc, client.Options{Tenant: "acme", Publisher: "rt1", PublicKey: publicKey})
	if err != nil {
		log.Fatal(err)
	}
	err = c.Publish(context.Background(), "agenthook",
		[]byte(`{"event_type":"PreToolUse","session_id":"s1"}`),
		[]byte(`{"event_type":"PostToolUse","session_id":"s1"}`))
	fmt.Println(err)
	// Output: <nil>
}

// An executor in another process runs the tool inside Run: only with a receipt for
// exactly this call, and only once.
func Example_executor() {
	g, call := executor()

	sendEmail := func(context.Context) error { fmt.Println("sent"); return nil }
	fmt.Println(g.Run(context.Background(), call, sendEmail))
	fmt.Println(g.Run(context.Background(), call, sendEmail))
	// Output:
	// sent
	// <nil>
	// guard: this receipt was used before; ask again
}

// A receipt for other arguments is refused, and the tool does not run.
func Example_executor_refused() {
	g, call := executor()
	call.Arguments = []byte(`{"to":"dana@acme.example","amount":1000}`)

	err := g.Run(context.Background(), call, func(context.Context) error { fmt.Println("sent"); return nil })
	var refused *guard.Refused
	fmt.Println(errors.As(err, &refused), guard.Code(err))
	// Output: true receipt_other_arguments
}

// Code tells a refusal from an error of the tool that ran.
func Example_executor_code() {
	g, call := executor()

	err := g.Run(context.Background(), call, func(context.Context) error { return errors.New("the mail server is down") })
	fmt.Printf("%q: %v\n", guard.Code(err), err)

	call.Receipt = "" // nothing was admitted
	err = g.Run(context.Background(), call, func(context.Context) error { return nil })
	fmt.Printf("%q\n", guard.Code(err))
	// Output:
	// "": the mail server is down
	// "receipt_missing"
}

// executor is a guard, and a call with the receipt that the admitter gave for it.
func executor() (*guard.Guard, guard.Execution) {
	w, err := newWorld(streams.Shard{})
	if err != nil {
		log.Fatal(err)
	}
	defer w.close()
	reply := w.allow(nil) // the admitter's answer
	g, err := guard.New(guard.Options{Tenant: "acme", PublicKey: w.publicKey})
	if err != nil {
		log.Fatal(err)
	}
	return g, guard.Execution{
		Receipt: reply.Header.Get(events.HeaderReceipt), Key: reply.Header.Get(events.HeaderKey),
		Source: "rt1", Session: "s1", ToolCallID: "c1", Tool: "send_email", Arguments: []byte(`{"to":"dana@acme.example","amount":10}`),
	}
}

// connect stands for streams.Connect to a running system.
func connect() (nc *nats.Conn, publicKey string, stop func()) {
	w, err := newWorld(streams.Shard{})
	if err != nil {
		log.Fatal(err)
	}
	if err := w.answer(func(*nats.Msg) *nats.Msg { return w.allow(nil) }); err != nil {
		log.Fatal(err)
	}
	if nc, err = w.conn("rt1"); err != nil {
		log.Fatal(err)
	}
	return nc, w.publicKey, w.close
}
