package aaep

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events/aaep"
	"github.com/countersign-dev/countersign/events/strictjson"
)

var began = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// shaken is a message about a subscription, at its place in the log.
func shaken(t testing.TB, n int, kind, members string) *Event {
	t.Helper()
	e, err := aaep.Decode([]byte(`{"type":"subscription.`+kind+`"`+members+`}`), strictjson.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	out := NewEvent(e)
	if !out.IsHandshake() {
		t.Fatalf("%s is none", kind)
	}
	out.Seq, out.At = uint64(n), began.Add(time.Duration(n)*time.Second)
	return out
}

// TestNegotiationsAreBounded: whatever a publisher publishes, little of it is
// kept, and what had to be forgotten is not judged.
func TestNegotiationsAreBounded(t *testing.T) {
	names := 4000
	if testing.Short() { // the race detector makes it ten times slower
		names = 400
	}
	long, _ := json.Marshal(strings.Split(strings.Repeat("e,", names), ","))
	n := &Negotiations{}
	for i := range 600 {
		n.Negotiate(shaken(t, i, "request", fmt.Sprintf(`,"subscriber_id":"%d","capabilities":{"languages":%s,"event_filters":{"include":%s}}`, i, long, long)))
		if i%2 == 0 {
			n.Negotiate(shaken(t, i, "accepted", fmt.Sprintf(`,"subscription_id":"sub_%d"`, i)))
		}
		n.Negotiate(shaken(t, i, "renegotiate", fmt.Sprintf(`,"subscription_id":"sub_%d","capabilities":{}`, i)))
		if len(n.openRequests) > maxOpenRequests || len(n.subscriptions) > maxSubscriptions || len(n.recentContents) > maxRecent || n.openRequests[0].capabilities.languages != nil || n.openRequests[0].capabilities.filters != nil {
			t.Fatalf("it keeps %d, %d, %d, %+v", len(n.openRequests), len(n.subscriptions), len(n.recentContents), n.openRequests[0].capabilities)
		}
	}
	if found := n.ReportOverdue(began.Add(1000 * time.Hour)); len(found) != 0 || len(n.openRequests) != 0 {
		t.Errorf("%d findings of what was forgotten, %d left", len(found), len(n.openRequests))
	}
}

// TestLateAnswer: an answer takes back what was said of the only request that had
// none, and of several nothing.
func TestLateAnswer(t *testing.T) {
	for requests, want := range map[int]int{1: 1, 2: 0} {
		n := &Negotiations{}
		n.Negotiate(shaken(t, 1, "request", `,"subscriber_id":"x"`))
		n.Negotiate(shaken(t, 2, "rejected", `,"reason_code":"unknown"`))
		for i := range requests {
			n.Negotiate(shaken(t, 3+i, "request", fmt.Sprintf(`,"subscriber_id":"%d"`, i)))
		}
		if found := n.ReportOverdue(began.Add(2 * AnswerTimeout)); len(found) != requests {
			t.Fatalf("%d requests, %d findings", requests, len(found))
		}
		if again := n.ReportOverdue(began.Add(3 * AnswerTimeout)); len(again) != 0 {
			t.Errorf("said again: %v", again)
		}
		if back := n.RetractOverdue(shaken(t, 8, "rejected", `,"reason_code":"unknown"`)); len(back) != 0 {
			t.Errorf("taken back by an answer that is delivered again: %v", back)
		}
		late := shaken(t, 9, "accepted", `,"subscription_id":"sub_1"`)
		if back := n.RetractOverdue(late); len(back) != want || want == 1 && (!back[0].RetractsOnly || back[0].Replaces == nil) {
			t.Errorf("%d requests, taken back: %v", requests, back)
		}
		if found := n.Negotiate(late); len(found) != 0 {
			t.Errorf("%v", found)
		}
	}
}

// TestNegotiationsOutliveAFlood: another tenant's publishers make none of a tenant's be forgotten
// that has few.
func TestNegotiationsOutliveAFlood(t *testing.T) {
	ng := NewNegotiationTable()
	shake := func(tenant string, i int) *publisherNegotiations {
		f := &fact.Fact{Origin: fact.OriginOf(tenant, fmt.Sprint("rt", i), "")}
		return ng.ensure(ng.negotiationKey(f.Key.Tenant, f.Key.Source), f, ownOrigin{})
	}
	first := shake("globex", 0)
	for i := range 2 * maxNegotiations {
		shake("acme", i)
	}
	if shake("globex", 0) != first || ng.byPublisher.Len() != maxNegotiations {
		t.Errorf("the negotiations are new ones, of %d", ng.byPublisher.Len())
	}
}

// ownOrigin shares no memory.
type ownOrigin struct{}

func (ownOrigin) SharedOrigin(f *fact.Fact) *fact.Origin { return &f.Origin }
