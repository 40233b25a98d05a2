package corpus

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

func cloneTree(t Tree) (c Tree) {
	b, err := json.Marshal(t)
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if err != nil {
		panic(err)
	}
	return c
}

// WithMember sets the member at a dotted path; nil removes it.
func WithMember(t Tree, path string, v any) Tree {
	c := cloneTree(t)
	node := c
	keys := strings.Split(path, ".")
	for _, k := range keys[:len(keys)-1] {
		child, ok := node[k].(map[string]any)
		if !ok {
			child = Tree{}
			node[k] = child
		}
		node = child
	}
	if last := keys[len(keys)-1]; v == nil {
		delete(node, last)
	} else {
		node[last] = v
	}
	return c
}

// UUID is the UUID with a number.
func UUID(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

// Stamp is the time a number of seconds after Epoch.
func Stamp(seconds float64) string {
	return Epoch.Add(time.Duration(seconds * float64(time.Second))).Format("2006-01-02T15:04:05.000Z07:00")
}

// AgentHookEvent is an AgentHook event of call c1.
func AgentHookEvent(n int, typ string, at float64) Tree {
	return Tree{
		"event_id": UUID(n), "event_type": typ, "timestamp": Stamp(at), "source": "courier", "session_id": "s1",
		"tool_name": "pay_invoice", "metadata": Tree{"tool_call_id": "c1"},
	}
}

// AAEPEvent is an AAEP event of session sess1.
func AAEPEvent(n int, typ string, at float64, members Tree) Tree {
	t := Tree{
		"@context": "https://aaep-protocol.org/context/v1", "type": "aaep:agent." + typ, "event_id": fmt.Sprintf("evt_%d", n),
		"session_id": "sess_1", "timestamp": Stamp(at), "producer": Tree{"agent_id": "clerk"}, "summary_normal": "A step.",
	}
	for k, v := range members {
		t[k] = v
	}
	return t
}
