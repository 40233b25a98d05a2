package gateway

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/gateway/endpoint"
)

// Every failure has a status that is no success, a message, and a code.
func TestFailuresAreErrors(t *testing.T) {
	for _, f := range Failures() {
		p := ProblemOf(f)
		if p.Status < 400 || p.Message == "" || p.Code != string(f) {
			t.Errorf("%s: %+v", f, p)
		}
		if retry := p.RetryAfter > 0; (p.Status == 429 || p.Status == 503) != retry {
			t.Errorf("%s: status %d, Retry-After %d", f, p.Status, p.RetryAfter)
		}
		for _, row := range Rows() {
			if out := row.Fail(p); out.Status != p.Status {
				t.Errorf("%s of %s: %d", f, row.Pattern, out.Status)
			}
		}
	}
}

// Who speaks is never taken from a request.
func TestMessageHeadersNameNobody(t *testing.T) {
	h := http.Header{}
	for _, name := range []string{events.HeaderPublisher, events.HeaderGateway, events.HeaderVerdict, events.HeaderReceipt, "Nats-Request-Info", "Nats-Msg-Id", "Authorization", "Reply-To"} {
		h.Set(name, "forged")
	}
	h.Set(events.HeaderSession, "s-1")
	if got := MessageHeaders(h); len(got) != 1 || got[events.HeaderSession][0] != "s-1" {
		t.Errorf("%v", got)
	}
}

// No row and no reply makes an allow of anything but an allow.
func TestReadReply(t *testing.T) {
	for _, c := range []struct {
		header map[string][]string
		status int
	}{
		{nil, 502},
		{map[string][]string{events.HeaderVerdict: {"ALLOW"}}, 502},
		{map[string][]string{events.HeaderVerdict: {"allow"}, headerErrorCode: {"500"}}, 502},
		{map[string][]string{events.HeaderVerdict: {"allow"}}, 200},
		{map[string][]string{events.HeaderVerdict: {"deny"}, headerErrorCode: {"200"}}, 502},
		{map[string][]string{events.HeaderVerdict: {"deny"}, headerErrorCode: {"413"}}, 413},
		{map[string][]string{events.HeaderVerdict: {"deny"}, headerErrorCode: {"503"}, headerError: {"quota_exceeded"}}, 429},
	} {
		if got := ReadReply(endpoint.Row{}, c.header, []byte(`{}`)); got.Status != c.status {
			t.Errorf("%v: %d, want %d", c.header, got.Status, c.status)
		}
	}
}

// Reading bodies and plans never fails on hostile bytes.
func FuzzPlans(f *testing.F) {
	f.Add([]byte(`[{"event_type":"PreToolUse"}]`), "application/json", "x:evaluateAction")
	f.Add([]byte(`{}`), "application/json", "x:present")
	f.Add([]byte(`{"specversion":"1.0"}`), "application/cloudevents+json", "agenthook")
	f.Add([]byte(`[{}]`), "application/cloudevents-batch+json", "aaep")
	f.Fuzz(func(t *testing.T, body []byte, media, target string) {
		for _, row := range Rows() {
			plan, p := row.Plan(endpoint.Request{Target: target, Header: http.Header{"Content-Type": {media}}, Body: body})
			n := 0
			for _, set := range []bool{p != nil, plan.Admit != nil, plan.Publish != nil, plan.Answer != nil, plan.Receipt != nil, plan.Mandate != nil} {
				if set {
					n++
				}
			}
			if n != 1 || p != nil && p.Status < 400 {
				t.Fatalf("%s: %+v, %+v", row.Pattern, plan, p)
			}
		}
	})
}

// The key that comes with a receipt is ASCII, and the same JSON as before.
func TestKeyHeaderIsASCII(t *testing.T) {
	record := `{"vouch":"a\n\n— name é 😀\n"}`
	out := ReadReply(endpoint.Row{}, map[string][]string{events.HeaderVerdict: {"allow"}, events.HeaderKey: {record}}, []byte("{}"))
	got := out.Header.Get(events.HeaderKey)
	var have, want map[string]string
	if json.Unmarshal([]byte(got), &have) != nil || json.Unmarshal([]byte(record), &want) != nil || have["vouch"] != want["vouch"] {
		t.Errorf("%s", got)
	}
	if strings.ContainsFunc(got, func(r rune) bool { return r > 126 }) {
		t.Errorf("not ASCII: %s", got)
	}
}
