package approval

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/strictjson"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

var policy1 = events.PolicyRef{Name: "mail", Revision: 3, Digest: "sha256:" + strings.Repeat("a", 64)}

func keyed(b []byte) string { return digest.Keyed([]byte("a key of the tenant, 32 bytes..."), b) }

// theAction is what all tests are about.
func theAction() Action {
	return Action{
		Tenant: "acme", Source: "rt1", Session: "s1", Protocol: "agenthook", Call: "c1", Tool: "send_mail", Action: "send", Kind: "email",
		Scope: "public_web", Resource: "outbox", Args: []byte(`{"to":"a@example.com"}`),
	}
}

func keysOf(t testing.TB, a Action) Keys {
	t.Helper()
	k, err := KeysOf(a, keyed)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// opened is a pending workflow of theAction for ten minutes.
func opened(t testing.TB, terms Terms) Workflow {
	t.Helper()
	k := keysOf(t, theAction())
	p := Preview{Protocol: "agenthook", Source: "rt1", Agent: "bot", Tool: "send_mail", Verdict: "ask", Reasons: []string{"external"}}
	pd, err := p.Digest(keyed)
	if err != nil {
		t.Fatal(err)
	}
	return Open(Opening{
		Slot: k.Slot, ID: "wf-1", Tenant: "acme", Source: "rt1", Session: "s1", DecisionID: "d-1", Keys: k, Policy: policy1, Terms: terms,
		Preview: p, PreviewDigest: pd, Call: "c1", Event: "e1", Now: noon, ExpiresAt: noon.Add(10 * time.Minute),
	})
}

// groups is who is in which.
type groups map[string][]string

func (g groups) member(group, user string) bool { return slices.Contains(g[group], user) }

// by is a command of a reviewer who has looked at the preview.
func by(w Workflow, user string, act Act, g groups) Command {
	return Command{Act: act, Reviewer: user, PreviewDigest: w.PreviewDigest, At: noon.Add(time.Minute), IsMember: g.member, CurrentPolicy: policy1}
}

// tree parses JSON the way requests are.
func tree(t testing.TB, text string) map[string]any {
	t.Helper()
	m, err := strictjson.ParseObject([]byte(text), strictjson.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
