package approval

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/subject"
)

// Action is a proposed action as approvals identify it.
type Action struct {
	Tenant, Source, Session, Protocol string
	Call                              string
	Tool, Action, Kind, Scope         string
	Resource                          any
	Dir                               string // in which relative paths of the arguments lie; "" if unknown
	Agent                             string // that proposes it
	ApprovalScope                     string // what else the request limits an approval to; "" for nothing
	FromAgent, ToAgent                string
	Args                              []byte         // RFC 8785; nil if there are none
	Does                              []byte         // RFC 8785; Args without the members that only describe the call (such as its risk); nil if it has none of these
	Event                             map[string]any // the document without claims; replaces absent arguments
	Body                              string         // digest of the request, if there is no Event either
	Mandate                           string         // its hash
	Mandated                          []byte         // RFC 8785; the action evaluated under the mandate, where that is not Args
}

// Keys are the digests under which an action's workflows are found, all made with the session's
// key, or the tenant's where there is no session (AgentHook H-09).
type Keys struct {
	Action   string // the strict key: equivalent retries have the same one
	ActionID string // a short form of it, for publishers
	Slot     string // of the action's workflow
	CallSlot string // of this call's own workflow, if Slot is another call's
	Evasion  string // of the action and the resource, whatever the tool and the arguments; "" if unknown
	Runs     string // of the tool and arguments that would run, whatever else the request says; "" without arguments
	Tool     string // of the tool, whatever the arguments; "" if unknown
}

// unknownResource is the word for a resource that could not be identified.
const unknownResource = "unknown"

// KeysOf computes the keys. keyed is the keyed digest of the session's records. Arguments are
// always part of the action; a call without any is identified by its whole document and its
// ids, so that an approval never covers a tool by name alone.
func KeysOf(a Action, keyed func([]byte) string) (Keys, error) {
	strict := map[string]any{
		"tenant": a.Tenant, "source": a.Source, "session": a.Session, "protocol": a.Protocol, "tool": a.Tool, "action": a.Action,
		"resource_kind": a.Kind, "resource_scope": a.Scope, "resource": a.Resource, "from_agent": a.FromAgent, "to_agent": a.ToAgent, "mandate": a.Mandate,
	}
	if a.Dir != "" {
		strict["dir"] = a.Dir
	}
	if a.Mandated != nil {
		strict["mandated"] = json.RawMessage(a.Mandated)
	}
	switch {
	case a.Args != nil:
		strict["args"] = json.RawMessage(a.Args)
	case a.Event != nil:
		strict["event"], strict["tool_call_id"] = a.Event, a.Call
	default:
		strict["request"], strict["tool_call_id"] = a.Body, a.Call
	}
	var k Keys
	for _, part := range []struct {
		of  func(Action, func([]byte) string) (string, error)
		key *string
	}{{evasionKey, &k.Evasion}, {runsKey, &k.Runs}, {toolKey, &k.Tool}} {
		var err error
		if *part.key, err = part.of(a, keyed); err != nil {
			return Keys{}, err
		}
	}
	if k.Runs != "" { // a call that waits or was denied is found by it, whatever these claims then say
		if a.Agent != "" {
			strict["agent"] = a.Agent
		}
		if a.ApprovalScope != "" {
			strict["approval_scope"] = a.ApprovalScope
		}
	}
	for _, part := range []struct {
		use   string
		of    map[string]any
		whole *string
		short *string
		mark  string
		size  int
	}{
		{"action", strict, &k.Action, &k.ActionID, "act-", 32},
		{"slot", strict, nil, &k.Slot, "", 64},
		{"call-slot", map[string]any{"action": strict, "call": a.Call}, nil, &k.CallSlot, "", 64},
	} {
		whole, err := keyOf(part.use, part.of, keyed)
		if err != nil {
			return Keys{}, err
		}
		sum := strings.TrimPrefix(whole, digest.ComparableForm(whole))
		if part.whole != nil {
			*part.whole = whole
		}
		*part.short = part.mark + sum[:min(part.size, len(sum))]
	}
	return k, nil
}

func evasionKey(a Action, keyed func([]byte) string) (string, error) {
	text, _ := a.Resource.(string)
	if a.Action == "" || a.Resource == nil || a.Session == "" || a.Kind == "" || a.Kind == unknownResource || a.Resource == any("") || text == unknownResource {
		return "", nil
	}
	return keyOf("evasion", map[string]any{
		"tenant": a.Tenant, "source": a.Source, "session": a.Session, "action": a.Action, "resource_kind": a.Kind, "resource": a.Resource,
	}, keyed)
}

// runsKey has the tool and the arguments, and the agent that would take over: with another one, another
// thing runs. The requester chooses everything else, such as the mandate or the stated action.
func runsKey(a Action, keyed func([]byte) string) (string, error) {
	args := a.Does
	if args == nil {
		args = a.Args
	}
	if a.Session == "" || a.Tool == "" || args == nil {
		return "", nil
	}
	return keyOf("runs", map[string]any{
		"tenant": a.Tenant, "source": a.Source, "session": a.Session, "tool": a.Tool, "to_agent": a.ToAgent, "args": json.RawMessage(args),
	}, keyed)
}

func toolKey(a Action, keyed func([]byte) string) (string, error) {
	if a.Session == "" || a.Tool == "" {
		return "", nil
	}
	return keyOf("tool", map[string]any{"tenant": a.Tenant, "source": a.Source, "session": a.Session, "tool": a.Tool}, keyed)
}

func keyOf(use string, v map[string]any, keyed func([]byte) string) (string, error) {
	canonical, err := events.Encode(map[string]any{"use": "countersign/approval/" + use + "/v1", "of": v})
	if err != nil {
		return "", fmt.Errorf("approval: the %s key: %w", use, err)
	}
	return keyed(canonical), nil
}

// StoreKey is the key under which a workflow is stored: the tenant's token and the slot. A
// store's keys cannot contain "~".
func StoreKey(tenant, slot string) string {
	token := subject.Escape(tenant)
	if rest, escaped := strings.CutPrefix(token, "~"); escaped {
		token = "=" + rest
	}
	return token + "." + slot
}
