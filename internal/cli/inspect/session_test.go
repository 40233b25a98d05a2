package inspect

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/internal/evidencereader"
	"github.com/countersign-dev/countersign/storage/records"
)

// TestOverviewCountsStandingFindings: a finding stands unless one of severity info under its rule
// retracts it.
func TestOverviewCountsStandingFindings(t *testing.T) {
	finding := func(body string) step { return step{Kind: evidence.KindFinding, Body: json.RawMessage(body)} }
	steps := []step{
		finding(`{"finding_id":"f1","rule":"executed_despite_deny","severity":"critical"}`),
		finding(`{"finding_id":"f2","rule":"executed_despite_deny","severity":"critical"}`),
		finding(`{"finding_id":"r1","rule":"executed_despite_deny","severity":"info","withdraws":"f1"}`),
		finding(`{"finding_id":"r2","rule":"quota_exceeded","severity":"info","withdraws":"f2"}`),
	}
	if got := overview(steps); got != "0 decisions, 0 calls, 1 finding" {
		t.Error(got)
	}
	steps = append(steps, finding(`{"finding_id":"r3","rule":"executed_despite_deny","severity":"medium","withdraws":"f2"}`))
	if got := overview(steps); got != "0 decisions, 0 calls, 2 findings" {
		t.Error(got)
	}
}

// TestOverviewOfExpired: what expired has no text to count by.
func TestOverviewOfExpired(t *testing.T) {
	gone := func(kind string) step { return step{Kind: kind, Expired: "expired"} }
	steps := []step{gone(evidence.KindDecision)}
	if got := overview(steps); got != "0 decisions, 0 calls, 0 findings; not counted: 1 expired record" {
		t.Error(got)
	}
	steps = append(steps, gone(evidence.KindCall), gone(evidence.KindCall), gone(evidence.KindFinding))
	if got := overview(steps); got != "0 decisions, 0 calls, 0 findings; not counted: 4 expired records" {
		t.Error(got)
	}
	steps = append(steps, step{Kind: evidence.KindCall, Body: json.RawMessage(`{"call_id":"c"}`)})
	if got := overview(steps); got != "0 decisions, 1 call, 0 findings; not counted: 4 expired records" {
		t.Error(got)
	}
}

// TestStepNamesPublisher: a printed event names the sender as the broker knows it, whatever its
// body says, so that check can match it with its decision.
func TestStepNamesPublisher(t *testing.T) {
	steps := stepsOf(evidencereader.Session{Rows: []evidence.Row{
		{Seq: 1, Kind: evidence.KindEvent, Subject: "eu.gov.events.acme.rt1.agenthook.s1.PreToolUse"},
		{Seq: 2, Kind: evidence.KindDecision, Subject: "eu.gov.decisions.acme.allow.s1"},
	}}, subject.Space{Prefix: "eu.gov"}, nil)
	if s := steps[0]; s.Publisher != "rt1" || s.Protocol != "agenthook" {
		t.Errorf("%+v", s)
	}
	if s := steps[1]; s.Publisher != "" || s.Protocol != "" {
		t.Errorf("%+v", s)
	}
}

// TestFamily: a session's family is its own, however many other linked sessions the tenant has, and
// is bounded.
func TestFamily(t *testing.T) {
	link := func(session, parent string) records.SessionParent {
		return records.SessionParent{Session: session, Parent: events.CallParent{Session: parent}}
	}
	var list []records.SessionParent
	for i := range 10 * treeShown {
		list = append(list, link(fmt.Sprint("other", i), "stranger"))
	}
	list = append(list, link("kid", "top"), link("grandkid", "kid"), link("top", "grandkid"))
	tree := sessionTree{top: "top", children: map[string][]records.SessionParent{}}
	tree.addFamily("kid", list)
	if len(tree.children) != 2 || tree.children["top"][0].Session != "kid" || tree.children["kid"][0].Session != "grandkid" || tree.more {
		t.Errorf("%+v", tree)
	}
	tree = sessionTree{top: "stranger", children: map[string][]records.SessionParent{}}
	list = append(list, link("last", "stranger"), link("lastkid", "last"))
	tree.addFamily("last", list)
	if n := len(tree.children["stranger"]); n != treeShown-1 || !tree.more || tree.children["stranger"][0].Session != "last" || len(tree.children["last"]) != 1 {
		t.Errorf("%d sessions, more %t", n, tree.more)
	}
}
