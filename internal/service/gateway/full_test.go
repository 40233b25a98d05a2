package gateway

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/gateway"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

// event is an AgentHook event of about n bytes.
func event(n int) []byte {
	return []byte(`{"event_type":"SessionStart","session_id":"s-7","pad":"` + strings.Repeat("x", n) + `"}`)
}

// fill publishes until the log takes nothing more, not even a small event, and returns the number of
// events that it took.
func (r *rig) fill() (stored int) {
	r.tb.Helper()
	for _, size := range []int{64 << 10, 4 << 10, 256, 0} {
		for {
			res, body := r.do("POST", "/v1/events/agenthook", "runtime", event(size))
			if res.StatusCode == 200 {
				stored++
				continue
			}
			if res.StatusCode != 503 || !bytes.Contains(body, []byte(`"not_stored"`)) || res.Header.Get("Retry-After") == "" {
				r.tb.Fatalf("the log is full: %d %s", res.StatusCode, body)
			}
			break
		}
	}
	return stored
}

// A log that is full (its stream refuses new messages) allows nothing by any endpoint. What was
// acknowledged is on the log, what was refused is not, and with room again all go on.
func TestFullLog(t *testing.T) {
	r := startOn(t, streams.Shard{MaxBytes: 512 << 10})
	r.admitter()
	requests := map[string]struct {
		path, file string
		headers    []string
		has        string // of the refusal, in the protocol's words
	}{
		"AgentHook":      {"/event", "pre-tool-use.json", nil, `"decision":"deny"`},
		"AAEP":           {"/v1/admit/aaep", "aaep-tool-invoked.json", nil, `audit_unavailable`},
		"AANA":           {"/v1/admit/aana", "aana-public-read.json", []string{events.HeaderSession, "s-1", events.HeaderToolCallID, "call-9", events.HeaderAgent, "agent-1"}, `"route":"refuse"`},
		"AANA pre-check": {"/pre-tool-check", "aana-public-read.json", []string{events.HeaderSession, "s-1", events.HeaderToolCallID, "call-9", events.HeaderAgent, "agent-1"}, `detail`},
		"AUMP":           {"/aump/mandates/aump_mnd_parcels_1:evaluateAction", "aump-action.json", nil, `"decision":"denied"`},
		"aioc tool":      {"/aioc/tool", "tool-call.json", nil, `"deny"`},
		"aioc handoff":   {"/aioc/handoff", "handoff.json", nil, `"deny"`},
	}
	allowed := func() bool {
		res, _ := r.do("POST", "/event", "runtime", example(t, "requests/pre-tool-use.json"))
		return res.StatusCode == 200 && res.Header.Get(events.HeaderVerdict) == string(events.Allow)
	}
	if !allowed() {
		t.Fatal("nothing is allowed while there is room")
	}
	stored := r.fill()
	before := r.nats.Log()
	for name, c := range requests {
		res, body := r.do("POST", c.path, "runtime", example(t, "requests/"+c.file), c.headers...)
		if res.StatusCode != 503 || !strings.Contains(string(body), c.has) {
			t.Errorf("%s: %d %s", name, res.StatusCode, body)
		}
		if v := res.Header.Get(events.HeaderVerdict); v == string(events.Allow) || res.Header.Get(events.HeaderReceipt) != "" || bytes.Contains(body, []byte(`allow"`)) {
			t.Errorf("%s: allowed without a record: %v %s", name, res.Header, body)
		}
	}
	for _, f := range stores {
		res, body := f.send(r)
		checkFailure(t, "the log is full", f, res, body, gateway.LogFull)
	}
	var taken []uint64
	for _, m := range before {
		if json.Valid(m.Body) && strings.HasPrefix(m.Subject, "gov.events.acme."+servicetest.Runtime+".agenthook.") && bytes.Contains(m.Body, []byte(`"pad"`)) {
			taken = append(taken, m.Seq)
		}
	}
	if len(taken) != stored || len(r.nats.Log()) != len(before) {
		t.Errorf("%d events were acknowledged, the log holds %d; it grew from %d to %d messages while it was full", stored, len(taken), len(before), len(r.nats.Log()))
	}
	for _, seq := range taken { // an operator makes room
		_, err := streams.Erase(t.Context(), r.nats.Conn("custodian"), streams.DefaultShard, seq)
		servicetest.OK(t, err)
	}
	servicetest.Eventually(t, "with room again requests are allowed", allowed)
	if res, body := r.do("POST", "/v1/events/agenthook", "runtime", event(0)); res.StatusCode != 200 {
		t.Errorf("an event after there is room: %d %s", res.StatusCode, body)
	}
}
