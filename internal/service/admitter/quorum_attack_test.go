package admitter

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/admission/approval"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
)

// TestAttackQuorum: if two of three must approve, a reviewer that votes over many connections at
// once counts once; a denial that races with the second vote ends the workflow in one way only;
// and of many callers with the approval one is allowed.
func TestAttackQuorum(t *testing.T) {
	o := openOffice(t, "  approval: {reviewers: [desk], quorum: 2, resume: retry_with_workflow_id}\n",
		"apiVersion: countersign.dev/v1\nkind: ReviewerGroup\nmetadata: {name: desk}\nspec: {members: [dana, eve]}\n")
	const crowd = 12
	open := map[string][]*nats.Conn{}
	// votes sends many of the same vote at once, over several connections.
	votes := func(done *sync.WaitGroup, codes *sync.Map, user, action, id string) {
		shown := o.says(user, approval.Request{Action: approval.CommandShow, WorkflowID: id})
		if !shown.OK {
			t.Fatalf("%+v", shown)
		}
		body, err := json.Marshal(approval.Request{Action: action, WorkflowID: id, PreviewDigest: shown.Workflow.PreviewDigest})
		servicetest.OK(t, err)
		for len(open[user]) < crowd/3 {
			open[user] = append(open[user], o.n.Conn(user))
		}
		conns := open[user]
		for i := range crowd {
			done.Go(func() {
				var r approval.Reply
				reply, err := conns[i%len(conns)].Request("gov.resolve.acme", body, servicetest.Guard)
				if err == nil {
					err = json.Unmarshal(reply.Data, &r)
				}
				if err != nil {
					t.Error(err)
					return
				}
				n, _ := codes.LoadOrStore(r.Code, new(atomic.Int64))
				n.(*atomic.Int64).Add(1)
			})
		}
	}
	count := func(codes *sync.Map, code approval.Code) int64 {
		n, there := codes.Load(code)
		if !there {
			return 0
		}
		return n.(*atomic.Int64).Load()
	}

	for round := range 6 {
		mail := fmt.Sprintf("round%d@newspaper.example", round)
		call := func(id string) []byte { return o.call("press@newspaper.example", mail, "call-mail-2", id) }
		id := o.expect(call("c1"), "ask")
		var alone sync.WaitGroup
		var first sync.Map
		votes(&alone, &first, "dana", approval.CommandApprove, id)
		alone.Wait()
		if count(&first, approval.CodeRecorded) != 1 || count(&first, approval.CodeApproved) != 0 {
			t.Fatalf("dana alone: %s", o.trail(id))
		}
		o.expect(call("c2"), "ask", events.HeaderWorkflow, id)

		var race sync.WaitGroup
		var second, against sync.Map
		votes(&race, &second, "eve", approval.CommandApprove, id)
		if round%2 == 1 {
			votes(&race, &against, "dana", approval.CommandDeny, id)
		}
		race.Wait()
		approved, denied := count(&second, approval.CodeApproved), count(&against, approval.CodeDenied)
		if approved+denied != 1 {
			t.Errorf("round %d: approved %d times and denied %d times: %s", round, approved, denied, o.trail(id))
		}
		var callers sync.WaitGroup
		var allowed atomic.Int64
		for i := range crowd {
			callers.Go(func() {
				m := nats.NewMsg(askingAt)
				m.Data = call(fmt.Sprint("c-late-", i))
				m.Header.Set(events.HeaderWorkflow, id)
				reply, err := o.runtime.RequestMsg(m, servicetest.Guard)
				if err != nil {
					t.Error(err)
				} else if reply.Header.Get(events.HeaderVerdict) == "allow" {
					allowed.Add(1)
				}
			})
		}
		callers.Wait()
		if allowed.Load() != approved {
			t.Errorf("round %d: %d callers are allowed, approved %d times", round, allowed.Load(), approved)
		}
		// A record may be there twice, under the same id, but not two ends.
		trail := o.trail(id)
		if strings.Contains(trail, "approve>approved") == strings.Contains(trail, "deny>denied") {
			t.Errorf("round %d: not one end: %s", round, trail)
		}
	}
}
