package admitter

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/admission/receipt"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

// bookingHook is the call that does what booking proposes, as AgentHook tells of
// it, under the same mandate.
func bookingHook(t testing.TB, hash string, amount int, call, summary string) []byte {
	t.Helper()
	var e map[string]any
	servicetest.OK(t, json.Unmarshal(file(t, "requests/pre-tool-use-external.json"), &e))
	var proposal map[string]any
	servicetest.OK(t, json.Unmarshal(booking(hash, amount), &proposal))
	action := proposal["proposed_action"].(map[string]any)
	if summary != "" {
		action["summary"] = summary
	}
	e["event_id"], e["session_id"], e["tool_name"] = uuid.NewString(), "s1", "book"
	e["tool_input"] = map[string]any{"minor": amount}
	e["metadata"] = map[string]any{
		"tool_call_id": call,
		"aump":         map[string]any{"mandate_ref": proposal["mandate_ref"], "proposed_action": action},
	}
	body, err := json.Marshal(e)
	servicetest.OK(t, err)
	return body
}

// TestAttackTwoProtocolsOneBudget: one call asked for as an AUMP action and as an
// AgentHook call under the same id has one budget: the same action is one allowance,
// of which an executor uses one receipt, and another action is money of its own.
func TestAttackTwoProtocolsOneBudget(t *testing.T) {
	n, hash := spending(t)
	put(t, n, "evaluators", []byte("apiVersion: countersign.dev/v1\nkind: AdmissionPolicy\nmetadata: {name: hooks}\nspec:\n"+
		"  match: {protocols: [agenthook]}\n  rules: [{name: all, when: 'true', verdict: allow, reason: fine}]\n"))
	serve(t, n)
	nc := n.Conn(servicetest.Runtime)
	native := func(nc *nats.Conn, call string, amount int) *nats.Msg {
		return ask(t, nc, "gov.admit.acme.aump", booking(hash, amount), events.HeaderSession, "s1", events.HeaderToolCallID, call)
	}
	hooked := func(nc *nats.Conn, call string, amount int, summary string) *nats.Msg {
		return ask(t, nc, "gov.admit.acme.agenthook", bookingHook(t, hash, amount, call, summary))
	}
	verdict := func(m *nats.Msg) string { return m.Header.Get(events.HeaderVerdict) }
	first, second := native(nc, "c1", 600), hooked(nc, "c1", 600, "")
	if verdict(first) != "allow" || verdict(second) != "allow" {
		t.Fatalf("%s\n%s", first.Data, second.Data)
	}
	if a, b := claimsOf(t, first), claimsOf(t, second); a.Nonce != b.Nonce || a.Tool == b.Tool {
		t.Errorf("two allowances of one action:\n%+v\n%+v", a, b)
	}
	if s := spent(t, n).Spend("", time.Now().UnixMilli()); s.Reserved != 600 {
		t.Errorf("%+v", s)
	}
	for name, m := range map[string]*nats.Msg{
		"another action as a hook": hooked(nc, "c1", 600, "Book another van."), "another amount": native(nc, "c1", 500), "another call": hooked(nc, "c2", 600, ""),
	} {
		if verdict(m) != "deny" {
			t.Errorf("%s: %s", name, m.Data)
		}
	}
	// Many at once, by both ways, with ids of their own and shared ones.
	var mu sync.Mutex
	var wg sync.WaitGroup
	allowances := map[string]int{claimsOf(t, first).Nonce: 600}
	for i := range 24 {
		nc := n.Conn(servicetest.Runtime)
		wg.Go(func() {
			call, m := fmt.Sprintf("p%d", i%8), (*nats.Msg)(nil)
			if i%2 == 0 {
				m = native(nc, call, 70)
			} else {
				m = hooked(nc, call, 70, []string{"", "Book another van."}[i/2%2])
			}
			if verdict(m) != "allow" {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			allowances[claimsOf(t, m).Nonce] = 70
		})
	}
	wg.Wait()
	sum := 0
	for _, amount := range allowances {
		sum += amount
	}
	if s := spent(t, n).Spend("", time.Now().UnixMilli()); sum > 1000 || s.Reserved != int64(sum) || sum < 900 {
		t.Errorf("%d of 1000 in %d allowances, reserved %d", sum, len(allowances), s.Reserved)
	}
}

// TestAttackTwoProtocolsOneApproval: what one approval allows is allowed once,
// however many ask for it, in whatever protocol.
func TestAttackTwoProtocolsOneApproval(t *testing.T) {
	o := openOffice(t, "")
	const args = `{"subject":"Quarterly figures","to":"press@newspaper.example"}`
	encoded, err := json.Marshal(args)
	servicetest.OK(t, err)
	tool := []byte(`{"agentName":"a","toolName":"send_email","rawArguments":` + string(encoded) + `,"parsedArguments":` + args + `,"turn":1,"toolCallId":"call-mail-2"}`)
	workflow := o.expect(o.call(), "ask")
	if code := o.decides("dana", "approve", workflow); code != "approved" {
		t.Fatal(code)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	got := map[string]int{}
	var receipts []receipt.Claims
	for i := range 16 {
		nc := o.n.Conn(servicetest.Runtime)
		wg.Go(func() {
			at, body := askingAt, o.call()
			if i%2 == 1 {
				at, body = "gov.admit.acme.tool", tool
			}
			m := ask(t, nc, at, body, events.HeaderSession, "sess-mail-2", events.HeaderWorkflow, workflow)
			mu.Lock()
			defer mu.Unlock()
			if got[m.Header.Get(events.HeaderVerdict)]++; m.Header.Get(events.HeaderVerdict) == "allow" {
				receipts = append(receipts, claimsOf(t, m))
			}
		})
	}
	wg.Wait()
	if got["allow"] != 1 || len(receipts) != 1 || receipts[0].ToolCallID != "call-mail-2" {
		t.Errorf("one approval: %v %+v", got, receipts)
	}
}

// TestAttackLimitWindow: what counts against a limit is every allow, once each:
// asking again under the same id counts again, what is denied takes nothing, and no
// report of a call, whatever it says, gives anything back within the window.
func TestAttackLimitWindow(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	put(t, n, "p.yaml", []byte(strings.Replace(fmt.Sprintf(atMost, 10, "3s", "source"), "  rules:\n",
		"  rules:\n    - {name: never, when: 'tool == \"delete_database\"', verdict: deny, reason: never}\n", 1)))
	serve(t, n)
	body := string(file(t, "requests/pre-tool-use.json"))
	var e map[string]any
	servicetest.OK(t, json.Unmarshal([]byte(body), &e))
	tool := e["tool_name"].(string)
	burst := func(calls int, tool string) (allowed int, first time.Time) {
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range calls {
			e["tool_name"], e["event_id"], e["session_id"] = tool, uuid.NewString(), "s1"
			e["metadata"] = map[string]any{"tool_call_id": fmt.Sprint("c", i%3)} // three ids, asked for again and again
			asked, err := json.Marshal(e)
			servicetest.OK(t, err)
			nc := n.Conn(servicetest.Runtime)
			wg.Go(func() {
				at := time.Now()
				m := ask(t, nc, "gov.admit.acme.agenthook", asked)
				mu.Lock()
				defer mu.Unlock()
				if m.Header.Get(events.HeaderVerdict) == "allow" {
					if allowed++; first.IsZero() || at.Before(first) {
						first = at
					}
				}
			})
		}
		wg.Wait()
		return allowed, first
	}
	if got, _ := burst(20, "delete_database"); got != 0 {
		t.Fatalf("%d were allowed", got)
	}
	got, first := burst(24, tool)
	at := allowedAt(t, n)
	if got < 10 || got != len(at) {
		t.Errorf("%d of 24 were allowed, %d are recorded, want 10: denied calls must take nothing", got, len(at))
	}
	for i := 10; i < len(at); i++ { // a busy machine needs more than a window for them
		if within := at[i].Sub(at[i-10]); within < 3*time.Second {
			t.Errorf("11 were allowed within %v: asking again must count", within)
		}
	}
	d := lastDecision(t, n)
	for i, state := range []events.CallState{events.CallFailed, events.CallDenied, events.CallAbandoned, events.CallOrphaned} {
		c := ended(d, 5, state)
		c.ToolCallID = fmt.Sprint("c", i%3)
		report(t, n, c)
	}
	for {
		asked := time.Now()
		allowed, _ := burst(1, tool)
		since := asked.Sub(first)
		if done := time.Since(first); allowed == 1 && done < 3*time.Second {
			t.Fatalf("allowed %s after the first of ten in 3 s", done)
		}
		if allowed == 1 {
			break
		}
		if since > servicetest.Guard {
			t.Fatal("the window does not end")
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// allowedAt is when each allow on the log was decided, in order.
func allowedAt(t *testing.T, n *servicetest.NATS) (list []time.Time) {
	t.Helper()
	for _, m := range of(n.Log(), "gov.decisions.") {
		d, err := events.DecodeRecord[events.Decision](m.Body)
		servicetest.OK(t, err)
		if d.Verdict == events.Allow {
			list = append(list, d.DecidedAt.Time)
		}
	}
	slices.SortFunc(list, time.Time.Compare)
	return list
}
