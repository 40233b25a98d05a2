// Package hookgate is the process that a coding agent starts as its hook: it reads the agent's
// input, asks the gateway, and answers in the agent's dialect. It fails closed: whatever goes wrong,
// a call that is about to run is refused, within the budget. Begin reading with Run.
package hookgate

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/countersign-dev/countersign/client/guard"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/hook"
	"github.com/countersign-dev/countersign/internal/buildinfo"
	"github.com/countersign-dev/countersign/internal/gateclient"
	"github.com/countersign-dev/countersign/internal/owner"
	"github.com/countersign-dev/countersign/internal/retry"
)

// Stdio are the process's three streams.
type Stdio struct {
	In       io.Reader
	Out, Err io.Writer
}

// answerTime of the budget is kept for the answer: a report that takes too long is no refusal.
const answerTime = 300 * time.Millisecond

// closeTime bounds the report of a call without a verdict: the gateway that gave none may be slow.
const closeTime = 2 * time.Second

// exitRefused refuses a call. It is also the exit code of a gate that is called wrongly: agents take 2 for a refusal.
const exitRefused = 2

// ConfigPath says which configuration a gate reads: the file, if it is named; the one in the home of the user, if the
// agent's managed configuration runs the gate; otherwise the default one.
func ConfigPath(file string, managed bool) func() (string, error) {
	switch {
	case file != "":
		return func() (string, error) { return file, nil }
	case managed:
		return gateclient.HomeConfigPath
	}
	return gateclient.DefaultConfigPath
}

var errInterrupted = errors.New("the hook was interrupted")

// Run answers one call of an agent's hook and returns the exit code. event is the agent's name of
// the event for agents that do not name it in their input; configPath finds the gate's configuration.
func Run(agentName, event string, configPath func() (string, error), std Stdio) int {
	agent, ok := hook.Find(agentName)
	if !ok {
		fmt.Fprintf(std.Err, "countersign: there is no agent %q: give one of %s\n", agentName, strings.Join(agentNames(), ", "))
		return exitRefused
	}
	signal.Ignore(syscall.SIGPIPE) // a closed output is refused by the exit code
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	begun := time.Now()
	g := &gate{agent: agent, event: event, now: time.Now}
	return write(std, within(ctx, g.fail, func(budget chan<- time.Duration) hook.Output {
		d := g.configure(configPath) - time.Since(begun)
		budget <- d
		ctx, cancel := context.WithTimeout(ctx, d-answerTime)
		defer cancel()
		return g.answer(ctx, std.In)
	}))
}

// within runs work, which does everything that can take time or fail. It answers with fail if work panics,
// if ctx ends, or if work takes longer than its budget: gateclient.DefaultBudget until work sends another.
func within(ctx context.Context, fail func(code string, err error) hook.Output, work func(budget chan<- time.Duration) hook.Output) hook.Output {
	answer, budget := make(chan hook.Output, 1), make(chan time.Duration, 1)
	go func() {
		defer func() {
			if recover() != nil {
				answer <- fail("internal_error", errors.New("the hook failed"))
			}
		}()
		answer <- work(budget)
	}()
	end := time.NewTimer(gateclient.DefaultBudget)
	defer end.Stop()
	for {
		select {
		case out := <-answer:
			return out
		case d := <-budget:
			end.Reset(d)
		case <-end.C:
			return fail("no_answer", gateclient.ErrTooLate)
		case <-ctx.Done():
			return fail("no_answer", errInterrupted)
		}
	}
}

func agentNames() (names []string) {
	for _, a := range hook.Agents {
		names = append(names, a.Name)
	}
	return names
}

// write writes an output. What cannot be written to standard output is refused by the exit code.
func write(std Stdio, out hook.Output) int {
	if _, err := io.WriteString(std.Out, out.Stdout); err != nil || out.Stdout != "" && isNull(std.Out) {
		fmt.Fprintln(std.Err, "countersign: refused: the answer could not be written") // alone: with this exit code agents show it to the model
		return exitRefused
	}
	_, _ = io.WriteString(std.Err, out.Stderr) // the exit code says it all the same
	return out.Exit
}

// isNull reports whether w is the null device, which Go opens in place of an output that is closed.
func isNull(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	is, err := f.Stat()
	null, nullErr := os.Stat(os.DevNull)
	return err == nil && nullErr == nil && os.SameFile(is, null)
}

// gate is one call of the hook.
type gate struct {
	agent     hook.Agent
	event     string
	config    gateclient.Config
	configErr error
	calls     calls
	now       func() time.Time
	isReport  atomic.Bool // the input was read, and no call is about to run
}

// fail ends a hook that cannot do its work: what may be a call is refused. A report refuses nothing: some agents
// would take it for the order to go on.
func (g *gate) fail(code string, err error) hook.Output {
	if g.isReport.Load() {
		return notOnRecord(err)
	}
	return g.agent.Refuse(gateclient.Refusal(code, err))
}

// configure reads the configuration and returns the budget. What is wrong is reported by answer, in
// the agent's words.
func (g *gate) configure(find func() (string, error)) time.Duration {
	path, err := find()
	if g.configErr = err; err == nil {
		g.config, g.configErr = gateclient.ReadConfig(path)
	}
	dir, err := CallsDir()
	g.calls, g.configErr = calls{dir: dir}, errors.Join(g.configErr, err)
	budget, err := g.config.AnswerBudget()
	g.configErr = errors.Join(g.configErr, err)
	return budget
}

// answer is the whole work of a hook.
func (g *gate) answer(ctx context.Context, in io.Reader) hook.Output {
	input, err := io.ReadAll(io.LimitReader(in, hook.MaxInput+1))
	if err == nil && len(input) > hook.MaxInput {
		err = fmt.Errorf("%w: it is longer than %d MiB", hook.ErrInput, hook.MaxInput>>20)
	}
	var e hook.Event
	if err == nil {
		e, err = g.agent.Read(g.event, input)
	}
	if err != nil {
		return g.agent.Refuse(gateclient.Refusal("bad_input", err))
	}
	g.isReport.Store(e.Kind != hook.Before)
	if e.Version == "" {
		e.Version = versionOf(g.agent)
	}
	switch e.Kind {
	case hook.Ignored:
		return g.agent.Allow
	case hook.Before:
		return g.before(ctx, e)
	default:
		return g.report(ctx, e)
	}
}

// before asks whether a call may run.
func (g *gate) before(ctx context.Context, e hook.Event) hook.Output {
	if g.configErr != nil {
		return g.refuseLocal("bad_configuration", errConfiguration, g.configErr)
	}
	p, err := g.config.Peer()
	if err != nil {
		return g.refuseLocal("bad_configuration", errConfiguration, err)
	}
	key, err := sameCallKey(g.agent.Name, e)
	if err != nil {
		return g.agent.Refuse(gateclient.Refusal("bad_arguments", err))
	}
	call, err := g.proposal(key, e)
	if err != nil {
		return g.refuseLocal("memory_of_calls", errMemory, err)
	}
	g.calls.forgetOld(g.now()) // at each call: a machine on which no call is allowed forgets, too
	if err := gateclient.CheckSize(call.Event); err != nil {
		return g.agent.Refuse(gateclient.Refusal("bad_arguments", err))
	}
	a := gateclient.NewAsker(p)
	r, err := a.Propose(ctx, call.Event, call.Workflow)
	var forgotten error
	if err == nil && r.Waits() {
		call, forgotten = g.remember(key, call, r) // at once: a gate that is killed while it waits keeps the approval
		r, err = a.Await(ctx, nil, call.Event, r)
	}
	switch {
	case err != nil:
		if call.Workflow == "" && !gateclient.IsNotStored(err) { // it may be allowed by now, and its repetition is another call
			ctx, cancel := context.WithTimeout(ctx, closeTime)
			defer cancel()
			g.closeCall(ctx, a, key, e, call)
		}
		return g.agent.Refuse(gateclient.Refusal("no_verdict", err))
	case r.Waits():
		return g.pending(e, r, forgotten)
	case r.Verdict != events.Allow:
		g.closeCall(ctx, a, key, e, call)
		return g.agent.Refuse(gateclient.Refusal(string(r.Verdict), errors.New(r.Reason)))
	}
	err = a.CheckReceipt(ctx, r, guard.Execution{Session: e.Session, ToolCallID: call.CallID, Tool: e.Tool, Arguments: e.Input})
	if err != nil {
		g.closeCall(ctx, a, key, e, call)
		return g.agent.Refuse(gateclient.Refusal("bad_receipt", err))
	}
	if err := g.opened(key, e, call, r.DecisionRef); err != nil {
		g.closeCall(ctx, a, key, e, call)
		return g.refuseLocal("memory_of_calls", errMemory, err)
	}
	return g.agent.Allow
}

// What the model is told of failures on this machine: it learns no path.
var (
	errConfiguration = errors.New("the gate's configuration cannot be used; a person finds the reason with countersign hook doctor")
	errMemory        = errors.New("the gate's memory of calls cannot be used; a person finds the reason with countersign hook doctor")
)

// refuseLocal refuses a call in which something on this machine is wrong. Standard error, which agents show to
// people alone, says what.
func (g *gate) refuseLocal(code string, told, err error) hook.Output {
	out := g.agent.Refuse(gateclient.Refusal(code, told))
	out.Stderr += "countersign: " + gateclient.Clean(err.Error()) + "\n"
	return out
}

// proposal is the PreToolUse event to send: that of an identical call that waits for a person, or a
// new one.
func (g *gate) proposal(key string, e hook.Event) (w waiting, err error) {
	if e.CallID != "" && !g.calls.has(key) {
		return g.newProposal(e, e.CallID)
	}
	err = g.calls.change(key, g.now(), func(s *sameCall) {
		if s.Waiting != nil && !s.Waiting.By.Runs() && g.isOurs(e, *s.Waiting) {
			s.Waiting.By = owner.ThisProcess() // an identical call that comes meanwhile is another one
			w = *s.Waiting
		}
	})
	if err != nil || w.CallID != "" {
		return w, err
	}
	return g.newProposal(e, cmp.Or(e.CallID, derivedPrefix+uuid.NewString()))
}

// derivedPrefix begins the ids of calls of agents that give none. The rest is random: the id is on record, and of
// anything made from the arguments a reader could guess a short secret among them.
const derivedPrefix = "derived-"

// isOurs reports whether a remembered event says of the call what this gate says of it: other programs of
// the user can write the memory of calls, and the receipt does not bind what an event claims besides tool
// and arguments.
func (g *gate) isOurs(e hook.Event, w waiting) bool {
	var was struct {
		EventID   string    `json:"event_id"`
		Timestamp time.Time `json:"timestamp"`
		Metadata  struct {
			Model       string `json:"agent_model"`
			Version     string `json:"agent_version"`
			Translation struct {
				Adapter string `json:"adapter_version"`
			} `json:"provider_translation"`
		} `json:"metadata"`
	}
	if json.Unmarshal(w.Event, &was) != nil {
		return false
	}
	hadID := e.CallID != ""
	if hadID {
		e.CallID = w.CallID
	}
	e.Model, e.Version = was.Metadata.Model, was.Metadata.Version // these may change between two tries, and the directory may not
	again, err := e.AgentHook(g.agent.Name, hook.Envelope{
		ID: was.EventID, Time: was.Timestamp, CallID: w.CallID, Derived: !hadID, Adapter: was.Metadata.Translation.Adapter,
	})
	if err != nil {
		return false
	}
	made, err := strictjson.CanonicalBytes(again)
	if err != nil {
		return false
	}
	remembered, err := strictjson.CanonicalBytes(w.Event)
	return err == nil && bytes.Equal(made, remembered)
}

func (g *gate) newProposal(e hook.Event, callID string) (waiting, error) {
	event, err := g.wire(e, callID, hook.Approval{})
	return waiting{Event: event, CallID: callID}, err
}

// wire writes an event as AgentHook has it.
func (g *gate) wire(e hook.Event, callID string, approval hook.Approval) ([]byte, error) {
	id, err := uuid.NewRandom()
	if err != nil {
		return nil, err
	}
	return e.AgentHook(g.agent.Name, hook.Envelope{
		ID: id.String(), Time: g.now(), CallID: callID, Derived: strings.HasPrefix(callID, derivedPrefix) && e.CallID == "",
		Prompts: g.config.Prompts, Probe: g.config.Probe, Adapter: buildinfo.Version(), Approval: approval,
	})
}

// remember keeps a call that waits for a person, for its repetition by another process.
func (g *gate) remember(key string, call waiting, r gateclient.Reply) (waiting, error) {
	call.Workflow, call.Until, call.By = r.Workflow, r.WaitsUntil(g.now()), owner.ThisProcess()
	return call, g.calls.change(key, g.now(), func(s *sameCall) { s.Waiting = &call })
}

// closeCall ends a call that was refused, here and on the log. The refusal does not depend on it.
func (g *gate) closeCall(ctx context.Context, a *gateclient.Asker, key string, e hook.Event, call waiting) {
	g.forget(key, call)
	e.Kind = hook.Blocked
	if event, err := g.wire(e, call.CallID, hook.Approval{}); err == nil {
		_, _, _ = a.Post(ctx, event, "")
	}
}

// forget ends the wait of a call that was refused: its repetition is another call.
func (g *gate) forget(key string, call waiting) {
	if call.Workflow != "" {
		_ = g.calls.change(key, g.now(), func(s *sameCall) { s.decided(call) }) // what stays is refused again
	}
}

// pending says what to do about a call that waits for a person. forgotten is why its repetition will not be
// known, nil if it will.
func (g *gate) pending(e hook.Event, r gateclient.Reply, forgotten error) hook.Output {
	text, where := r.Pending(), r.Where(g.config.ApprovalURL)
	if forgotten != nil {
		return g.refuseLocal("memory_of_calls", errors.New(text+". It cannot be repeated: "+errMemory.Error()), forgotten)
	}
	if g.config.Defer && g.agent.Defer != nil && g.agent.Defer.Applies(e, os.Getenv) {
		return g.agent.Defer.Answer(text + ". Resume the session once it is approved. " + where)
	}
	return g.agent.Refuse(text + ". Do not try another way; repeat the identical call once it is approved. " + where)
}

// opened remembers an allowed call if its report must say more than the agent does: another id, or the
// approval. It ends the call's wait.
func (g *gate) opened(key string, e hook.Event, call waiting, decision string) error {
	open := openCall{Agent: e.CallID, Admitted: call.CallID}
	if call.Workflow != "" {
		open.Approval = hook.Approval{Workflow: call.Workflow, Decision: decision}
	}
	if open == (openCall{Agent: e.CallID, Admitted: e.CallID}) {
		return nil
	}
	return g.calls.change(key, g.now(), func(s *sameCall) {
		s.decided(call)
		s.Open = append(s.Open, open)
	})
}

// exitReport is the exit code of a report that was not stored: agents show it and go on.
const exitReport = 1

// report publishes what happened. Nothing can be refused any more; a failure is told to the user.
func (g *gate) report(ctx context.Context, e hook.Event) hook.Output {
	if err := g.publish(ctx, e); err != nil {
		return notOnRecord(err)
	}
	return g.agent.Allow
}

func notOnRecord(err error) hook.Output {
	return hook.Output{Stderr: "countersign: the event is not on record: " + gateclient.Clean(err.Error()) + "\n", Exit: exitReport}
}

func (g *gate) publish(ctx context.Context, e hook.Event) error {
	if g.configErr != nil {
		return g.configErr
	}
	p, err := g.config.Peer()
	if err != nil {
		return err
	}
	of, err := g.reported(e)
	if err != nil {
		return err
	}
	event, err := g.wire(e, of.Admitted, of.Approval)
	if err != nil {
		return err
	}
	a, pauses := gateclient.NewAsker(p), retry.New(firstPause, maxPause)
	for {
		_, _, err = a.Post(ctx, event, "")
		if e.Kind != hook.After || err == nil || !gateclient.IsPassing(err) || pauses.Wait(ctx) != nil {
			return err
		}
	}
}

// Pauses between two tries to report a call that ran. Other reports are tried once: the agent waits for them, and no
// call is open without them.
const firstPause, maxPause = 300 * time.Millisecond, 2 * time.Second

// reported is the call that a report is about, as it was admitted.
func (g *gate) reported(e hook.Event) (of openCall, err error) {
	if e.Kind != hook.After {
		return of, nil
	}
	key, err := sameCallKey(g.agent.Name, e)
	if err != nil {
		return openCall{Admitted: e.CallID}, nil //nolint:nilerr // such a call was never admitted: the correlator says so
	}
	if g.calls.has(key) {
		if err := g.calls.change(key, g.now(), func(s *sameCall) { of = s.take(e.CallID) }); err != nil {
			return of, err
		}
	}
	of.Admitted = cmp.Or(of.Admitted, e.CallID)
	return of, nil
}
