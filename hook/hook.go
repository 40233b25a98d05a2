// Package hook translates between coding agents and AgentHook: the JSON that an agent writes to
// its hook becomes an Event and then an AgentHook event (SPEC 0.2, AHP-013), and a verdict becomes
// the output that this agent understands. It is pure; package internal/hookgate reads, asks and
// writes. Begin reading with Agents.
package hook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Kind says what an agent tells its hook.
type Kind string

// The kinds. Only Before can be refused; every other kind is a report.
const (
	Before       Kind = "before"        // a tool is about to run
	After        Kind = "after"         // a tool ran, or failed
	Blocked      Kind = "blocked"       // a tool was refused; no agent tells this, the gate does
	Prompt       Kind = "prompt"        // the user said something
	SessionStart Kind = "session_start" // of the agent
	SessionEnd   Kind = "session_end"
	Response     Kind = "response" // the agent, or a sub-agent, has answered and stops
	Handoff      Kind = "handoff"  // a sub-agent starts
	Failure      Kind = "failure"  // the agent itself failed; no call of a tool did
	Ignored      Kind = ""         // nothing that AgentHook has an event for
)

// Event is one call of a hook, in the terms that all agents share. Texts that an agent does not
// give are empty.
type Event struct {
	Kind    Kind
	Session string
	Parent  string          // the session that started this one, if the agent says so
	Tool    string          // as the agent calls it
	Input   json.RawMessage // the arguments: a JSON object, as the agent wrote it; nil unless Before or After
	CallID  string          // the agent's id of the call; empty if it has none
	Worker  string          // the sub-agent that acts, if the agent says so
	MCP     bool            // the tool is an MCP server's, by the agent's own rule
	CWD     string
	Model   string
	Version string // of the agent
	Prompt  string
	Answer  string        // Response: its text; empty if the agent does not say
	Error   string        // Failure: its kind, one word; empty if the agent does not say
	Failed  bool          // After: the tool failed
	Unsure  bool          // After: the agent does not say whether it failed, or had its effect before it was ended
	Took    time.Duration // After: zero if the agent does not say
}

// Output is what a hook process leaves: two texts and an exit code.
type Output struct {
	Stdout, Stderr string
	Exit           int
}

// ErrInput reports that an agent's input cannot be understood. The call must be refused.
var ErrInput = errors.New("the agent's input cannot be understood")

// MaxInput is the largest input that is read, in bytes: that of a report has the result of the tool, such as an image. A
// longer one may be a call, and is refused.
const MaxInput = 64 << 20

// Agent is one agent's dialect.
type Agent struct {
	Name string
	// Read understands an input. name is the event that the command line names; it is ignored
	// for agents that name the event in their input. The error is ErrInput with a reason that quotes no input.
	Read func(name string, input []byte) (Event, error)
	// Allow lets the agent go on as if there were no hook, so that its own prompts remain.
	Allow Output
	// Refuse refuses the call. Some agents take it for the refusal of a prompt, too; others ignore it
	// where no call is about to run.
	Refuse func(reason string) Output
	// Probe writes an input that asks for a call of a tool without arguments, as the agent would.
	Probe func(session, tool string) []byte
	// Version finds the agent's version in the environment of its hooks. It is nil for agents that put it into
	// their input, or nowhere.
	Version func(getenv func(string) string) string
	// Package is the npm package of its program, which has a version where the agent tells none.
	Package string
	// Defer is nil for agents whose runs cannot wait for a person.
	Defer *Deferral
	// Past names what this agent lets past its hooks.
	Past []string
}

// Deferral is how a run of an agent ends with a call that has not run. When the run is resumed, the agent
// gives the call again, with the same id.
type Deferral struct {
	Answer func(reason string) Output
	// Applies reports whether the agent takes Answer so. Where it does not, it may let the call run.
	Applies func(e Event, getenv func(string) string) bool
}

// Agents are the dialects, by the name that `countersign hook` takes.
var Agents = []Agent{claudeCode, codex, gemini, cursor, copilot, cline, openCode}

// Find returns the agent of a name.
func Find(name string) (Agent, bool) {
	for _, a := range Agents {
		if a.Name == name {
			return a, true
		}
	}
	return Agent{}, false
}

// payload is an agent's input.
type payload map[string]json.RawMessage

// readPayload refuses what two readers could read differently: a member that comes twice, and a text that is not UTF-8.
// The values of its members are as they came.
func readPayload(input []byte) (payload, error) {
	var p payload
	if err := json.Unmarshal(input, &p); err != nil || p == nil {
		return nil, fmt.Errorf("%w: it is no JSON object", ErrInput)
	}
	d := jsontext.NewDecoder(bytes.NewReader(input), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	_, err := d.ReadToken()
	for range p {
		if err == nil {
			err = errors.Join(d.SkipValue(), d.SkipValue()) // a name and its value
		}
	}
	if err != nil || d.PeekKind() != jsontext.KindEndObject {
		return nil, fmt.Errorf("%w: a member comes twice", ErrInput)
	}
	for _, value := range p {
		if value[0] == '"' && !utf8.Valid(value) {
			return nil, fmt.Errorf("%w: a text is not UTF-8", ErrInput)
		}
	}
	return p, nil
}

// text returns the first member of these names that is a text and not empty.
func (p payload) text(names ...string) string {
	for _, n := range names {
		var s string
		if json.Unmarshal(p[n], &s) == nil && s != "" {
			return s
		}
	}
	return ""
}

// object returns a member that is an object, empty if there is none.
func (p payload) object(name string) payload {
	o, _ := readPayload(p[name]) // what is no object has no members
	return o
}

// milliseconds returns a member that is a number of milliseconds.
func (p payload) milliseconds(name string) time.Duration {
	var n float64
	if json.Unmarshal(p[name], &n) != nil || n < 0 || n > float64(24*time.Hour/time.Millisecond) {
		return 0
	}
	return time.Duration(n * float64(time.Millisecond))
}

// arguments returns the arguments of a call as an object: agents give an object, a text that holds
// one, or, for a tool with one argument, another value.
func (p payload) arguments(name string) json.RawMessage {
	raw := p[name]
	var text string
	if json.Unmarshal(raw, &text) == nil {
		raw = json.RawMessage(text)
		if !isObject(raw) {
			raw = p[name]
		}
	}
	switch {
	case isObject(raw):
		return raw
	case len(raw) == 0 || string(raw) == "null":
		return json.RawMessage("{}")
	}
	return json.RawMessage(`{"input":` + string(raw) + `}`)
}

// joins reports whether a tool's name holds a separator with a text on both sides: with it some agents join the
// names of an MCP server and its tool, and none of their own tools has it.
func joins(tool, separator string) bool {
	server, name, found := strings.Cut(tool, separator)
	return found && server != "" && name != ""
}

func isObject(raw json.RawMessage) bool {
	var o map[string]json.RawMessage
	return json.Unmarshal(raw, &o) == nil && o != nil
}

// call completes an event about a tool. A call without a tool or a session cannot be judged.
func (p payload) call(e Event, arguments string) (Event, error) {
	if e.Kind != Before && e.Kind != After {
		return e, nil
	}
	if e.Kind == Before && (len(p[arguments]) == 0 || string(p[arguments]) == "null") {
		return Event{}, fmt.Errorf("%w: a call without arguments says so", ErrInput)
	}
	e.Input = p.arguments(arguments)
	if e.Tool == "" || e.Session == "" {
		return Event{}, fmt.Errorf("%w: a call needs a tool and a session", ErrInput)
	}
	return e, nil
}

// probe is an agent's Probe: its input is the members of fixed, and session and tool by these names.
func probe(session, tool string, fixed map[string]any) func(string, string) []byte {
	return func(s, t string) []byte {
		m := map[string]any{session: s, tool: t}
		for name, value := range fixed {
			m[name] = value
		}
		b, err := json.Marshal(m)
		if err != nil { // m is made of texts
			return nil
		}
		return b
	}
}

// jsonOutput is an output of one JSON object.
func jsonOutput(v any) Output {
	b, err := json.Marshal(v)
	if err != nil { // v is made of texts
		return Output{Stderr: "countersign: refused", Exit: 2}
	}
	return Output{Stdout: string(b) + "\n"}
}
