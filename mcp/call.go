package mcp

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/hook"
)

// Methods of the protocol that a gate treats in its own way.
const (
	MethodCall     = "tools/call"
	MethodList     = "tools/list"
	MethodRead     = "resources/read"
	MethodPrompt   = "prompts/get"
	MethodCanceled = "notifications/cancelled"
	// MethodTaskUpdate gives input to a call that runs as a task (SEP-2663).
	MethodTaskUpdate = "tasks/update"
)

// Call is a request that needs admission.
type Call struct {
	Server    string // the name that the user gave to the server
	Name      string // of the tool, as its server calls it; for other methods the method
	Arguments json.RawMessage
	Caller    string // the caller that another gateway names when it asks; "" if it names none
	Agent     string // the client, by its own word
	Version   string // of the client
	Meta      string // digest of what _meta has besides ids of the call and what the protocol itself needs; keyed before it is put on record
	CallID    string // the client's id of the call, by its own word; "" if there is none
	Tool      *Tool  // the accepted definition; nil for other methods
}

// judged are the members of a call that an admission covers, that change nothing about what the tool does,
// or that make a call another one (Call.Meta). Any other one reaches the server only past the policies: answers of a user to a tool's
// question (inputResponses), too.
var judged = []string{"name", "arguments", "_meta", "task"}

// cut bounds a name in an error.
func cut(name string) string { return name[:min(len(name), 64)] }

// ErrCall reports a request for a call that cannot be understood.
var ErrCall = errors.New("the call cannot be understood")

// ReadCall reads the params of a request. For tools/call, Arguments has the bytes that the server will
// get; for any other method it has the params without _meta. The error is ErrCall.
func ReadCall(method string, params json.RawMessage) (Call, error) {
	if params == nil {
		return Call{}, fmt.Errorf("%w: it has no params", ErrCall)
	}
	o, err := members(params, []string{"name", "arguments", "_meta", "uri"})
	if err != nil {
		return Call{}, fmt.Errorf("%w: %w", ErrCall, err)
	}
	c := Call{Name: method, CallID: agentCallID(o["_meta"])}
	if c.Meta, err = metaDigest(o["_meta"]); err != nil {
		return Call{}, fmt.Errorf("%w: its _meta: %w", ErrCall, err)
	}
	raw := o["arguments"]
	if method == MethodCall {
		for name := range o {
			if !slices.Contains(judged, name) {
				return Call{}, fmt.Errorf("%w: it has the member %q, which no policy sees", ErrCall, cut(name))
			}
		}
		if json.Unmarshal(o["name"], &c.Name) != nil || !toolName.MatchString(c.Name) {
			return Call{}, fmt.Errorf("%w: it names no tool", ErrCall)
		}
	} else {
		delete(o, "_meta")
		if raw, err = json.Marshal(o); err != nil {
			return Call{}, fmt.Errorf("%w: %w", ErrCall, err)
		}
	}
	if c.Arguments, err = argumentsOf(raw); err != nil {
		return Call{}, fmt.Errorf("%w: %w", ErrCall, err)
	}
	return c, nil
}

// passingMeta are members of _meta that differ from call to call and change nothing about what a tool does.
var passingMeta = []string{"progressToken", "claudecode/toolUseId", "traceparent", "tracestate", "baggage"}

// protocolMeta begins the members of _meta that belong to the protocol.
const protocolMeta = "io.modelcontextprotocol/"

// metaDigest is a digest of the members of _meta that a tool may act on; "" without such members.
func metaDigest(meta json.RawMessage) (string, error) {
	if meta == nil || string(meta) == "null" {
		return "", nil
	}
	o, err := members(meta, nil)
	if err != nil {
		return "", err
	}
	maps.DeleteFunc(o, func(name string, _ json.RawMessage) bool {
		return slices.Contains(passingMeta, name) || strings.HasPrefix(name, protocolMeta)
	})
	if len(o) == 0 {
		return "", nil
	}
	text, err := json.Marshal(o)
	if err != nil {
		return "", err
	}
	one, err := canonical(text)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", sha256.Sum256(one)), nil
}

// agentCallID is the id that Claude Code gives to a call.
func agentCallID(meta json.RawMessage) string {
	var o map[string]json.RawMessage
	var id string
	_ = json.Unmarshal(meta, &o)
	_ = json.Unmarshal(o["claudecode/toolUseId"], &id)
	if len(id) > 200 {
		return ""
	}
	return id
}

// ToolName is the name under which a call is judged: that of Claude Code's hooks, so that one policy
// speaks of both.
func (c Call) ToolName() string { return "mcp__" + c.Server + "__" + c.Name }

// Event is the part of an AgentHook event that a gate gives.
type Event struct {
	ID      string // a UUID
	Time    time.Time
	Session string
	CallID  string // the id under which the call is admitted
	Adapter string // version of this program
}

const unknown = "unknown"

// surface is AHP-013's word for where these tools come from.
const surface = "mcp_tools_call"

// source names the gate in every event.
const source = "mcp"

// Propose is the PreToolUse event of a call.
func (c Call) Propose(v Event) ([]byte, error) {
	o, metadata := c.event(agenthook.PreToolUse, v)
	o["evidence_phase"], o["tool_input"] = agenthook.PhasePreCommit, c.Arguments
	action, kind := unknown, unknown
	switch c.Name {
	case MethodRead:
		action, kind = "read", "mcp_resource"
	case MethodPrompt:
		action, kind = "read", "mcp_prompt"
	}
	o["action"], o["resource_kind"], o["resource"], o["resource_scope"], o["operation_risk"] = action, kind, unknown, unknown, unknown
	identity, translation := c.identity(), c.translation(v.Adapter)
	if c.Tool != nil {
		identity["schema_hash"], translation["schema_hash"] = c.Tool.Digest, c.Tool.Digest
	}
	metadata["tool_identity"], metadata["provider_translation"], metadata["risk"] = identity, translation, c.risk()
	if scope := c.approvalScope(); scope != "" {
		metadata["approval_scope"] = scope
	}
	return hook.Encode(o)
}

// Outcomes of a call, as AHP-013 has them.
const (
	Succeeded = "succeeded"
	Failed    = "failed"
	Canceled  = "cancelled"
	Unknown   = unknown
)

// Report is the PostToolUse event of a call that was passed to the server, under an
// approval if the call needed one. The event has no result: results may be large and secret.
func (c Call) Report(v Event, began, ended time.Time, outcome string, approval hook.Approval) ([]byte, error) {
	o, metadata := c.event(agenthook.PostToolUse, v)
	metadata["tool_input_executed"] = c.Arguments // once: the event is no larger than the one that asked
	metadata["execution"] = map[string]any{
		"outcome": outcome, "started_at": instant(began), "completed_at": instant(ended), "duration_ms": max(0, ended.Sub(began).Milliseconds()),
	}
	if approval != (hook.Approval{}) {
		metadata["approval"] = approval.Block()
	}
	return hook.Encode(o)
}

// ReportBlocked is the event of a call that was not passed to the server. code is that of the refusal.
func (c Call) ReportBlocked(v Event, code string) ([]byte, error) {
	o, metadata := c.event(agenthook.ToolUseBlocked, v)
	if code != "" {
		metadata["refusal"] = code
	}
	return hook.Encode(o)
}

// Change is a definition that is not the accepted one.
type Change struct{ Tool, Accepted, Offered string } // the name, and two digests

// maxChanges is how many changes an event lists.
const maxChanges = 100

// ReportChanges is the event of the changed definitions of a server: one event, however many there are.
// Its blocks name both definitions of the first tool, which the correlator reports (AH-C-036);
// changed_tools has all of them, the first hundred by name.
func ReportChanges(server string, changes []Change, v Event) ([]byte, error) {
	c := Call{Server: server, Name: changes[0].Tool}
	o, metadata := c.event(agenthook.ToolCallValidated, v)
	o["evidence_phase"] = agenthook.PhaseObservational
	identity, translation := c.identity(), c.translation(v.Adapter)
	identity["schema_hash"], translation["schema_hash"] = changes[0].Accepted, changes[0].Offered
	metadata["tool_identity"], metadata["provider_translation"] = identity, translation
	metadata["validation"] = map[string]string{"status": "failed", "validator": "countersign-mcp", "schema_hash": changes[0].Offered}
	list := []map[string]string{}
	for _, change := range changes[:min(len(changes), maxChanges)] {
		name := Call{Server: server, Name: change.Tool}.ToolName()
		list = append(list, map[string]string{"tool_name": name, "accepted": change.Accepted, "offered": change.Offered})
	}
	metadata["changed_tools"], metadata["changed_tools_total"] = list, len(changes)
	return hook.Encode(o)
}

// event is what all events share, and the metadata in it.
func (c Call) event(kind string, v Event) (o, metadata map[string]any) {
	metadata = map[string]any{"mcp_server": c.Server}
	for name, text := range map[string]string{"tool_call_id": v.CallID, "agent": c.Agent, "gateway_caller": c.boundedCaller(), "agent_version": c.Version, "agent_tool_call_id": c.CallID} {
		if text != "" {
			metadata[name] = text
		}
	}
	return map[string]any{
		"schema_version": 1, "event_id": v.ID, "event_type": kind, "timestamp": instant(v.Time), "source": source,
		"session_id": v.Session, "tool_name": c.ToolName(), "metadata": metadata,
	}, metadata
}

// boundedCaller is the caller, or the beginning and a digest of one that is long.
func (c Call) boundedCaller() string {
	const most = 200
	if len(c.Caller) <= most {
		return c.Caller
	}
	return fmt.Sprintf("%s… sha256:%x", strings.ToValidUTF8(c.Caller[:most/2], ""), sha256.Sum256([]byte(c.Caller)))
}

// approvalScope limits an approval of the call to its caller and its _meta.
func (c Call) approvalScope() string {
	scope := c.boundedCaller()
	if c.Meta != "" {
		scope += " _meta hmac-sha256:" + c.Meta
	}
	return strings.TrimSpace(scope)
}

func instant(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

func (c Call) identity() map[string]string {
	return map[string]string{
		"canonical_name": source + "." + hook.CanonicalPart(c.Server) + "." + hook.CanonicalPart(c.Name), "provider_name": c.ToolName(), "source": surface,
	}
}

func (c Call) translation(adapter string) map[string]string {
	return map[string]string{"provider_surface": surface, "model_facing_tool": c.Name, "provider": c.Server, "adapter_version": adapter}
}

// risk is AHP-013's risk. What a server says of its own tool only adds to it: operation_risk stays
// unknown, which policies must treat as the worst.
func (c Call) risk() map[string]any {
	r := map[string]any{"risk_class": unknown}
	if c.Tool == nil {
		return r
	}
	is := func(hint *bool, value bool) bool { return hint != nil && *hint == value }
	a := c.Tool.Annotations
	if is(a.OpenWorld, true) {
		r["risk_class"] = "external_side_effect"
	}
	if is(a.Destructive, true) {
		r["risk_class"] = "destructive_write"
	}
	if is(a.Idempotent, false) {
		r["idempotent"] = false
	}
	return r
}

// Outcome is what a response says of the call: Succeeded, Failed, or Unknown for a response that is not
// the call's end (a task that goes on, a question to the client) or cannot be read.
func (m Message) Outcome() string {
	var result struct {
		IsError bool            `json:"isError"`
		Type    string          `json:"resultType"`
		Task    json.RawMessage `json:"task"`
	}
	switch {
	case m.Failed:
		return Failed
	case json.Unmarshal(m.Result, &result) != nil, result.Type != "" && result.Type != "complete", result.Task != nil:
		return Unknown
	case result.IsError:
		return Failed
	}
	return Succeeded
}

// Governed reports whether requests of a method are admitted before they reach a server. With reads,
// those for resources and prompts are.
func Governed(method string, reads bool) bool {
	return method == MethodCall || reads && (method == MethodRead || method == MethodPrompt)
}

// GivesInput reports whether messages of a method give input to a call that runs: no policy sees it, so
// they reach no server.
func GivesInput(method string) bool { return method == MethodTaskUpdate }

// CanceledID is the id of the request that a notification cancels, "" if it names none.
func (m Message) CanceledID() ID {
	o, err := members(m.Params, []string{"requestId"})
	if err != nil || m.Method != MethodCanceled {
		return ""
	}
	return ID(o["requestId"])
}

// Client is what the params of an initialize say of the client.
func (m Message) Client() (name, version string) {
	var params struct {
		Info struct{ Name, Version string } `json:"clientInfo"`
	}
	_ = json.Unmarshal(m.Params, &params) // a client without a name has none
	return bounded(params.Info.Name), bounded(params.Info.Version)
}

// OpensURLs reports whether an initialize declares that the client can ask its user to open a URL.
func (m Message) OpensURLs() bool {
	var params struct {
		Capabilities struct {
			Elicitation struct {
				URL json.RawMessage `json:"url"`
			} `json:"elicitation"`
		} `json:"capabilities"`
	}
	return json.Unmarshal(m.Params, &params) == nil && params.Capabilities.Elicitation.URL != nil
}

// AskToOpen is the request that the client's user open the page of an approval. What the user answers
// decides nothing.
func AskToOpen(id ID, workflow, page string) ([]byte, error) {
	return json.Marshal(map[string]any{
		"jsonrpc": "2.0", "id": json.RawMessage(id), "method": "elicitation/create",
		"params": map[string]string{
			"mode": "url", "url": page, "elicitationId": workflow,
			"message": "Countersign: a call waits for a person's approval (workflow " + workflow + "). It is decided on this page.",
		},
	})
}

func bounded(text string) string {
	const most = 100
	if len(text) > most {
		return ""
	}
	return text
}

// SessionEvent is the event that begins or ends a session.
func SessionEvent(start bool, server string, v Event) ([]byte, error) {
	kind := agenthook.SessionEnd
	if start {
		kind = agenthook.SessionStart
	}
	o, _ := Call{Server: server}.event(kind, v)
	delete(o, "tool_name")
	return hook.Encode(o)
}
