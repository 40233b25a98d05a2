package follow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/client"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

const (
	admitter   = string(streams.RoleAdmitter)
	correlator = string(streams.RoleCorrelator)
	subscriber = string(streams.RoleSubscriber)
)

func serve(t *testing.T, n *servicetest.NATS) (stop func()) {
	t.Helper()
	js := n.JS(correlator)
	stop, err := Serve(t.Context(), js, streams.DefaultShard, subject.Space{}, zerolog.Nop())
	servicetest.OK(t, err)
	servicetest.OK(t, js.Conn().Flush())
	return stop
}

// decision is what an admitter would put on the log, as far as it matters here.
func decision(tenant, verdict, session string, i int) streams.Msg {
	return streams.Msg{Subject: subject.Space{}.Decision(tenant, verdict, session), Body: fmt.Appendf(nil, `{"n":%d,"text":"<&>"}`, i)}
}

func finding(severity, session string) streams.Msg {
	return streams.Msg{Subject: subject.Space{}.Finding(servicetest.Tenant, severity, session), Body: []byte(`{"rule":"r"}`)}
}

func ask(t *testing.T, nc *nats.Conn, tenant, body string) (p events.FollowPage) {
	t.Helper()
	reply, err := nc.Request(subject.Space{}.Follow(tenant), []byte(body), servicetest.Guard)
	servicetest.OK(t, err)
	servicetest.OK(t, json.Unmarshal(reply.Data, &p))
	return p
}

// askAll asks on until a page is empty, unless the request limits the page: a page may end before all
// that exists is in it.
func askAll(t *testing.T, nc *nats.Conn, body string) events.FollowPage {
	t.Helper()
	p := ask(t, nc, servicetest.Tenant, body)
	request := map[string]any{}
	if body == "" || json.Unmarshal([]byte(body), &request) != nil || request["max"] != nil {
		return p
	}
	delete(request, "since")
	for more := p; len(more.Outputs) > 0; {
		request["after"] = more.Next
		b, err := json.Marshal(request)
		servicetest.OK(t, err)
		if more = ask(t, nc, servicetest.Tenant, string(b)); len(more.Outputs) > 0 {
			p.Outputs, p.Next = append(p.Outputs, more.Outputs...), more.Next
		}
	}
	return p
}

func seqs(p events.FollowPage) string {
	list := make([]string, len(p.Outputs))
	for i, out := range p.Outputs {
		list[i] = fmt.Sprint(out.Seq)
	}
	return strings.Join(list, " ")
}

// A request that names a workflow gets its newest record, if it is the tenant's.
func TestNewestOfWorkflow(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	defer serve(t, n)()
	space := subject.Space{}
	for _, s := range []string{space.Approval("acme", "pending", "wf-1"), space.Approval("acme", "approved", "wf-1"), space.Approval("acme", "pending", "wf-2"), space.Approval("globex", "pending", "wf-3")} {
		n.Publish(admitter, streams.Msg{Subject: s, Body: []byte(`{"n":1}`)})
	}
	nc := n.Conn(subscriber)
	for request, want := range map[string]string{
		`{"workflow":"wf-1"}`: "1 2", `{"workflow":"wf-2"}`: "3", `{"workflow":"wf-3"}`: "", `{"workflow":"wf-4"}`: "", `{"workflow":"*"}`: "", `{"workflow":">"}`: "",
		`{"workflow":"wf-1","log":"another"}`: events.FollowReplaced, `{"workflow":"wf-1","after":0}`: events.FollowInvalid, `{"workflow":"wf-1","wait_ms":1}`: events.FollowInvalid,
		`{"workflow":"wf-1","kinds":["decisions"]}`: events.FollowInvalid, `{"workflow":"` + strings.Repeat("w", 129) + `"}`: events.FollowInvalid,
	} {
		p := ask(t, nc, servicetest.Tenant, request)
		got := seqs(p)
		if p.Error != nil {
			got = p.Error.Code
		}
		if got != want {
			t.Errorf("%s: %q, want %q", request, got, want)
		}
	}
}

func TestPages(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	defer serve(t, n)()
	n.Publish(admitter, decision("acme", "allow", "s1", 1), decision("acme", "deny", "s1", 2), decision("globex", "deny", "s1", 3), decision("acme", "deny", "s 2", 4))
	n.Publish(correlator, finding("high", "s1"), finding("low", "s 2"))
	n.Publish(admitter, decision("globex", "allow", "s1", 7))
	nc := n.Conn(subscriber)
	for _, tc := range []struct{ name, request, want string }{
		{"from the beginning", `{"after":0}`, "1 2 4 5 6 next 6"},
		{"from now", ``, " next 7"},
		{"from now, in words", `{}`, " next 7"},
		{"after one", `{"after":2}`, "4 5 6 next 6"},
		{"after the last of ours", `{"after":6}`, " next 7"},
		{"page by page", `{"after":0,"max":2}`, "1 2 next 2"},
		{"a kind", `{"after":0,"kinds":["decisions"]}`, "1 2 4 next 4"},
		{"a verdict, all findings", `{"after":0,"kinds":["decisions","findings"],"states":{"decisions":"allow"}}`, "1 5 6 next 6"},
		{"a severity", `{"after":0,"kinds":["findings"],"states":{"findings":"low"}}`, "6 next 6"},
		{"a session with a blank", `{"after":0,"session":"s 2"}`, "4 6 next 6"},
		{"approvals of a session", `{"after":0,"session":"s1","kinds":["approvals"]}`, " next 0"},
		{"since long ago", `{"since":"2020-01-01T00:00:00Z"}`, "1 2 4 5 6 next 6"},
		{"since tomorrow", `{"since":"` + time.Now().Add(24*time.Hour).UTC().Format(time.RFC3339) + `"}`, " next 7"},
		{"a wildcard as a session", `{"after":0,"session":"*"}`, " next 7"},
		{"all of everybody as a session", `{"after":0,"session":">"}`, " next 7"},
		{"another class by its state", `{"after":0,"kinds":["decisions"],"states":{"decisions":"deny.s1"}}`, " next 7"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := askAll(t, nc, tc.request)
			if got := fmt.Sprintf("%s next %d", seqs(p), p.Next); got != tc.want || p.Error != nil || p.End != 7 {
				t.Errorf("%s (%v), want %s", got, p.Error, tc.want)
			}
		})
	}
	p := ask(t, nc, servicetest.Tenant, `{"after":0,"max":1}`)
	if got := p.Outputs[0]; string(got.Record) != `{"n":1,"text":"<&>"}` || got.Subject != "gov.decisions.acme.allow.s1" || got.At.IsZero() {
		t.Errorf("%+v", got)
	}
}

func TestRefusals(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	defer serve(t, n)()
	nc := n.Conn(subscriber)
	n.Publish(admitter, decision("acme", "allow", "s1", 1))
	for request, code := range map[string]string{
		`{"after":2}`: events.FollowBeyond,
		`{"after":0,"log":"GOV@20200101T000000.000000000Z"}`: events.FollowReplaced,
		`{"after":0,"since":"2020-01-01T00:00:00Z"}`:         events.FollowInvalid,
		`{"max":501}`:                       events.FollowInvalid,
		`{"max":-1}`:                        events.FollowInvalid,
		`{"wait_ms":30001}`:                 events.FollowInvalid,
		`{"kinds":["findings","findings"]}`: events.FollowInvalid,
		`{"kinds":["control"]}`:             events.FollowInvalid,
		`{"kinds":["findings"],"states":{"decisions":"deny"}}`: events.FollowInvalid,
		`{"tenant":"globex"}`: events.FollowInvalid,
		`[]`:                  events.FollowInvalid,
		`{"after":-1}`:        events.FollowInvalid,
		`{"session":"` + strings.Repeat("x", 5000) + `"}`: events.FollowInvalid,
		"\xff": events.FollowInvalid,
	} {
		if p := ask(t, nc, servicetest.Tenant, request); p.Error == nil || p.Error.Code != code || p.Error.Message == "" || len(p.Outputs) > 0 {
			t.Errorf("%.60s: %+v, want %s", request, p.Error, code)
		}
	}
}

// TestAttackWaitingRequests: a user with all the requests that it may have waiting takes no place of its tenant's gateway.
func TestAttackWaitingRequests(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	defer serve(t, n)()
	nc := n.Conn(subscriber)
	answers, err := nc.SubscribeSync(nc.NewInbox())
	servicetest.OK(t, err)
	for range perUser + 1 {
		servicetest.OK(t, nc.PublishMsg(&nats.Msg{Subject: "gov.follow.acme", Reply: answers.Subject, Data: []byte(`{"session":"none","wait_ms":30000}`)}))
	}
	refused, err := answers.NextMsg(servicetest.Guard) // the others wait
	servicetest.OK(t, err)
	if !strings.Contains(string(refused.Data), events.FollowBusy) {
		t.Errorf("%s", refused.Data)
	}
	for _, body := range []string{`{"workflow":"wf_1"}`, `{"after":0}`, `{"after":0,"kinds":["aaep"]}`} {
		if p := ask(t, n.Conn(servicetest.Gateway), servicetest.Tenant, body); p.Error != nil {
			t.Errorf("the gateway: %s: %v", body, p.Error)
		}
	}
}

// The server's word for the account counts, not the subject.
func TestWhoAsks(t *testing.T) {
	stamp := func(account string) nats.Header {
		return nats.Header{"Nats-Request-Info": {`{"acc":"` + account + `","user":"s"}`}}
	}
	for _, c := range []struct {
		name, subject string
		header        nats.Header
		theirs        bool
	}{
		{"the tenant", "gov.follow.acme", stamp("tenant-acme:s"), true},
		{"another tenant", "gov.follow.acme", stamp("tenant-globex:s"), false},
		{"the services", "gov.follow.acme", stamp("COUNTERSIGN"), false},
		{"another user's account", "gov.follow.acme", stamp("tenant-acme:t"), false},
		{"nobody", "gov.follow.acme", nil, false},
		{"two stamps", "gov.follow.acme", nats.Header{"Nats-Request-Info": {`{"acc":"tenant-acme:s","user":"s"}`, `{"acc":"tenant-acme:s","user":"s"}`}}, false},
		{"no tenant", "gov.follow", stamp("tenant-acme:s"), false},
	} {
		if _, theirs := (&server{}).callerOf(&nats.Msg{Subject: c.subject, Header: c.header}); theirs != c.theirs {
			t.Errorf("%s: %t", c.name, theirs)
		}
	}
}

// A request waits for what comes, and not longer than it was told.
func TestWaiting(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	defer serve(t, n)()
	nc := n.Conn(subscriber)
	got := make(chan events.FollowPage)
	go func() { got <- ask(t, nc, servicetest.Tenant, `{"after":0,"wait_ms":30000}`) }()
	n.Publish(admitter, decision("globex", "allow", "s1", 1), decision("acme", "allow", "s1", 2))
	if p := <-got; seqs(p) != "2" || p.Next != 2 {
		t.Errorf("%+v", p)
	}
	if p := ask(t, nc, servicetest.Tenant, `{"after":2,"wait_ms":50}`); seqs(p) != "" || p.Next != 2 || p.Error != nil {
		t.Errorf("%+v", p)
	}
}

// Nothing is missing and nothing comes twice, though the server and the service
// go away again and again, and the follower too.
func TestFollowLosesNothing(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	stop := serve(t, n)
	nc := n.Conn(subscriber)
	const rounds, each = 5, 40
	var at client.Position
	var records []string
	disturb := func() {}
	follow := func(until int) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), servicetest.Guard)
		defer cancel()
		enough := errors.New("enough")
		err := client.Follow(ctx, nc, client.FollowOptions{Tenant: servicetest.Tenant, From: at, Since: time.Unix(0, 0)}, func(page []events.Output, next client.Position) error {
			for _, out := range page {
				records = append(records, string(out.Record))
			}
			at = next
			disturb()
			disturb = func() {}
			if len(records) >= until {
				return enough
			}
			return nil
		})
		if !errors.Is(err, enough) {
			t.Fatalf("%d of %d: %v", len(records), until, err)
		}
	}
	var want []string
	publish := func(some int) {
		for range some {
			m := decision(servicetest.Tenant, "allow", "s1", len(want))
			n.Publish(admitter, m)
			want = append(want, string(m.Body))
		}
	}
	for round := range rounds {
		publish(each / 2)
		disturb = func() {
			switch round {
			case 1:
				n.Stop()
				n.Restart()
			case 3:
				stop()
				stop = serve(t, n)
			}
			publish(each / 2)
		}
		follow((round+1)*each - each/4) // it may stop anywhere
	}
	follow(len(want))
	stop()
	if d := cmp.Diff(want, records); d != "" {
		t.Error(d)
	}
}

// A recreated log is a different log: a follower must not continue in it by accident.
func TestFollowNoticesAnotherLog(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	stop := serve(t, n)
	n.Publish(admitter, decision(servicetest.Tenant, "allow", "s1", 1))
	at := client.Position{Log: ask(t, n.Conn(subscriber), servicetest.Tenant, "").Log, After: 1}
	stop()
	n.Stop()
	n.Recreate()
	defer serve(t, n)()
	err := client.Follow(t.Context(), n.Conn(subscriber), client.FollowOptions{Tenant: servicetest.Tenant, From: at}, nil)
	var refused *events.FollowError
	if !errors.As(err, &refused) || refused.Code != events.FollowReplaced {
		t.Errorf("%v", err)
	}
}

func TestNobodyServes(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	err := client.Follow(t.Context(), n.Conn(subscriber), client.FollowOptions{Tenant: servicetest.Tenant}, nil)
	if err == nil || !strings.Contains(err.Error(), "is the correlator running?") {
		t.Errorf("%v", err)
	}
}
