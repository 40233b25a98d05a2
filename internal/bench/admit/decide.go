package admit

import (
	"encoding/base64"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/admission/receipt"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/bench/callplan"
	"github.com/countersign-dev/countersign/internal/bench/measure"
)

// minimalRequest is the smallest valid PreToolUse of AgentHook.
const minimalRequest = `{"event_id":"6f1d2c1e-7a44-4a8e-9d0b-3c5a7be1f001","event_type":"PreToolUse","timestamp":"2026-11-20T09:00:00Z",` +
	`"source":"mail-agent","session_id":"s1","tool_name":"send_email","tool_input":{"to":"dana@acme.example"}}`

// governedRequest returns a request of 1.8 KB with everything in the action-governance profile.
func governedRequest() string {
	return `{"schema_version":1,"event_id":"6f1d2c1e-7a44-4a8e-9d0b-3c5a7be1f001","event_type":"PreToolUse","timestamp":"2026-11-20T09:00:00Z",` +
		`"source":"mail-agent","session_id":"s1","evidence_phase":"pre_commit","tool_name":"send_email","action":"send","resource_kind":"email",` +
		`"resource":{"mailbox":"outbox","provider":"smtp","path":"/outbox/2026/11/20"},"resource_scope":"tenant","operation_risk":"external_transfer",` +
		`"tool_input":{"to":"dana@acme.example","subject":"Quarterly report","body":"` + strings.Repeat("All figures are final. ", 18) + `"},"metadata":{"tool_call_id":"call-1"` + callplan.GovernedMetadata + `}}`
}

// decisionsPerSample is how many decisions one sample has, so that reading the clock is
// negligible.
const decisionsPerSample = 100

// decide measures the pure decision without a server: decoding, schema, all evaluators, reply.
func (b *loadBench) decide(what, body string, policies int) (measure.Latency, error) {
	set, err := policy.Compile(measure.SamplePolicies(policies))
	if err != nil {
		return measure.Latency{}, err
	}
	config := &admission.Config{Policies: set, Revision: 1}
	now := time.Now()
	req := admission.Request{Tenant: "acme", Source: "bench", Protocol: subject.ProtoAgentHook, Body: []byte(body), ReceivedAt: now}
	in := admission.Inputs{Now: now, DecisionID: uuid.NewString(), Salt: make([]byte, receipt.SaltSize),
		Nonce: base64.RawURLEncoding.EncodeToString(make([]byte, nonceSize)), TenantKey: make([]byte, 32), KnownTenant: true}
	var took []time.Duration
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for begun := time.Now(); time.Since(begun) < b.duration; {
		start := time.Now()
		for range decisionsPerSample {
			out := admission.Decide(req, config, in)
			if _, err := out.Reply(); err != nil || out.Decision.Verdict != events.Allow {
				return measure.Latency{}, fmt.Errorf("%s: %s: %w", what, out.Decision.Verdict, errors.Join(err, measure.ErrNotAllowed))
			}
		}
		took = append(took, time.Since(start)/decisionsPerSample)
	}
	runtime.ReadMemStats(&after)
	slices.Sort(took)
	n := len(took) * decisionsPerSample
	return measure.Latency{What: what, Clients: 1, Count: n, PerSecond: float64(n) / b.duration.Seconds(),
		P50: measure.Micros(took[len(took)/2]), P99: measure.Micros(took[len(took)*99/100]),
		Allocs: float64(after.Mallocs-before.Mallocs) / float64(n), Bytes: float64(after.TotalAlloc-before.TotalAlloc) / float64(n)}, nil
}

const nonceSize = 16
