// Package otlp maps evidence to OpenTelemetry: finished calls to execute_tool spans with the attributes
// of the GenAI semantic conventions, decisions and findings to log records. The export command
// feeds a Mapper with records and sends the result. The package is pure and sends
// nothing.
//
// Only identifiers, names, verdicts, codes, digests and times are mapped: no argument, no result, no
// prompt. The input is redacted evidence; names and identifiers are also bounded in length.
//
// Traces are continued: the traceparent of a request is the parent of the call's span and the context
// of its log records. Without a traceparent, trace and span ids are derived from the call's own ids,
// so that sending something twice gives the same ids. Begin with Mapper.
package otlp

import (
	"cmp"
	"strings"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/redaction"
)

// SchemaURL identifies the version of the semantic conventions.
const SchemaURL = "https://opentelemetry.io/schemas/1.41.0"

// Scope is the name of the instrumentation scope.
const Scope = "github.com/countersign-dev/countersign"

// Names of log records (event.name).
const (
	EventDecision = "countersign.decision"
	EventFinding  = "countersign.finding"
)

// Span is one finished call.
type Span struct {
	Context    events.TraceContext // its Span is the span's own id
	Parent     [8]byte             // zero for a root
	Name       string
	Start, End time.Time
	Attributes []attribute.KeyValue
	ErrorType  string // "" if the call had no error
}

// Log is one decision or finding.
type Log struct {
	Context    events.TraceContext
	Event      string
	At         time.Time // time of the decision or detection
	Observed   time.Time // time at which the log stored it
	Severity   int       // 1 to 24
	Body       string
	Attributes []attribute.KeyValue
}

// Signals are the spans and logs of some records.
type Signals struct {
	Spans []Span
	Logs  []Log
}

// Mapper maps the records of one tenant, in the order of the log. It remembers the traces of recent
// calls, because findings do not name them.
type Mapper struct {
	traces map[string]string // traceparents by call
	order  []string
}

// maxTraces is how many calls' traces are remembered.
const maxTraces = 20_000

// NewMapper makes a mapper.
func NewMapper() *Mapper { return &Mapper{traces: map[string]string{}} }

// Add maps one record and appends the result to out. ok is false for a record of a mapped kind that
// cannot be decoded.
func (m *Mapper) Add(out *Signals, r evidence.Record) (ok bool) {
	switch r.Kind {
	case evidence.KindDecision:
		return mapRecord(r, func(d events.Decision) { out.Logs = append(out.Logs, m.mapDecision(r, d)) })
	case evidence.KindCall:
		return mapRecord(r, func(c events.Call) {
			if s, over := m.mapCall(r, c); over {
				out.Spans = append(out.Spans, s)
			}
		})
	case evidence.KindFinding:
		return mapRecord(r, func(f events.Finding) { out.Logs = append(out.Logs, m.mapFinding(r, f)) })
	}
	return true
}

func mapRecord[T any](r evidence.Record, do func(T)) bool {
	v, err := events.DecodeRecord[T](r.Body)
	if r.Reason != "" || err != nil {
		return false
	}
	do(v)
	return true
}

// rememberTrace keeps the trace of a call.
func (m *Mapper) rememberTrace(c callKey, traceparent string) {
	if _, fits := events.ParseTraceparent(traceparent); !fits {
		return
	}
	key := c.joinedKey()
	if _, known := m.traces[key]; !known {
		m.order = append(m.order, key)
		if len(m.order) > maxTraces {
			delete(m.traces, m.order[0])
			m.order = m.order[1:]
		}
	}
	m.traces[key] = traceparent
}

// contextOf is the trace context of a call: that of its request, otherwise one derived from its ids.
// given reports which.
func (m *Mapper) contextOf(c callKey, traceparent string) (x events.TraceContext, given bool) {
	if x, given = events.ParseTraceparent(traceparent); given {
		return x, true
	}
	if x, given = events.ParseTraceparent(m.traces[c.joinedKey()]); given {
		return x, true
	}
	return derivedContext(c), false
}

func (m *Mapper) mapDecision(r evidence.Record, d events.Decision) Log {
	name := callKey{d.Tenant, d.Source, d.Session, d.ToolCallID, d.DecisionID}
	m.rememberTrace(name, d.Traceparent)
	x, _ := m.contextOf(name, d.Traceparent)
	l := Log{Context: x, Event: EventDecision, At: d.DecidedAt.Time, Observed: r.BrokerTime.Time, Severity: severityOf(verdictSeverities, d.Verdict)}
	l.Body = safeText(cmp.Or(d.Tool, d.Action, "request")) + ": " + safeText(string(d.Verdict))
	var codes []string
	for _, reason := range d.Reasons {
		if reason.Action == "" && len(codes) < maxCodes {
			codes = append(codes, safeText(reason.Code))
		}
	}
	a := attributes{}
	a.addCall(d.Protocol, d.Tool, d.ToolCallID, d.Agent, d.Session)
	a.addText("countersign.decision.id", d.DecisionID, "countersign.decision.verdict", string(d.Verdict), "countersign.decision.native_verdict", d.NativeVerdict,
		"countersign.decision.mode", d.Mode, "countersign.decision.would", string(d.Would),
		"countersign.protocol", d.Protocol, "countersign.source", d.Source, "countersign.action", d.Action, "countersign.durability", d.Durability)
	a.addTexts("countersign.decision.reasons", codes)
	if d.Policy != nil {
		a.addText("countersign.policy.name", d.Policy.Name, "countersign.policy.digest", d.Policy.Digest)
	}
	if d.Mandate != nil {
		a.addText("aump.mandate_id", d.Mandate.ID, "aump.mandate_hash", d.Mandate.Hash)
	}
	if d.Approval != nil {
		a.addText("countersign.approval.workflow_id", d.Approval.WorkflowID)
	}
	l.Attributes = a.withLogPosition(r)
	return l
}

// maxCodes is the greatest number of codes in a list.
const maxCodes = 32

// mapCall maps a finished call; over is false for an open one.
func (m *Mapper) mapCall(r evidence.Record, c events.Call) (s Span, over bool) {
	name := callKey{c.Tenant, c.Source, c.Session, c.ToolCallID, cmp.Or(c.DecisionID, c.CallID)}
	m.rememberTrace(name, c.Traceparent)
	if c.State == events.CallOpen {
		return s, false
	}
	x, given := m.contextOf(name, c.Traceparent)
	if given {
		s.Parent = x.Span
	}
	x.Span = spanOf(spanName(c))
	s.Context, s.ErrorType = x, safeText(errorType(c))
	s.Name = "execute_tool " + safeText(cmp.Or(c.Tool, "unknown"))
	s.Start, s.End = callTimes(r, c)
	a := attributes{attribute.String("gen_ai.operation.name", "execute_tool")}
	a.addCall(c.Protocol, c.Tool, c.ToolCallID, c.Agent, c.Session)
	a.addText("error.type", s.ErrorType, "countersign.call.id", c.CallID, "countersign.call.state", string(c.State), "countersign.call.outcome", c.Outcome,
		"countersign.call.match", c.Match, "countersign.decision.id", c.DecisionID, "countersign.decision.verdict", string(c.Verdict),
		"countersign.protocol", c.Protocol, "countersign.source", c.Source)
	a = append(a, attribute.Int("countersign.call.occurrence", c.Occurrence))
	a.addTexts("countersign.findings", c.Findings[:min(len(c.Findings), maxCodes)])
	s.Attributes = a.withLogPosition(r)
	return s, true
}

// spanName identifies the span of a call: by the call's id if it ran, and by id and state if it did
// not, because a call can be denied or abandoned and still run. Findings point to the span of the
// call that ran.
func spanName(c events.Call) string {
	switch c.State {
	case events.CallDenied, events.CallAbandoned:
		return c.CallID + "-" + string(c.State)
	}
	return c.CallID
}

// errorType says why a call did not succeed, or is "". An orphaned call may have succeeded.
func errorType(c events.Call) string {
	switch c.State {
	case events.CallCompleted, events.CallOrphaned:
		return ""
	case events.CallFailed:
		return cmp.Or(c.Outcome, string(c.State))
	}
	return string(c.State)
}

// callTimes is when a call ran, by the log's clock: from its announcement, or otherwise its admission,
// to the report of its end. A call that never ran has no length.
func callTimes(r evidence.Record, c events.Call) (start, end time.Time) {
	for _, step := range c.Timeline {
		if start.IsZero() || step.Step == "invoked" {
			start = step.At.Time
		}
		if step.At.After(end) {
			end = step.At.Time
		}
	}
	if start.IsZero() {
		start, end = r.BrokerTime.Time, r.BrokerTime.Time
	}
	if end.Before(start) {
		end = start
	}
	return start, end
}

func (m *Mapper) mapFinding(r evidence.Record, f events.Finding) Log {
	name := callKey{f.Tenant, f.Source, f.Session, f.ToolCallID, cmp.Or(f.CallID, f.FindingID)}
	x, _ := m.contextOf(name, "")
	if f.CallID != "" {
		x.Span = spanOf(f.CallID)
	}
	l := Log{Context: x, Event: EventFinding, At: f.DetectedAt.Time, Observed: r.BrokerTime.Time, Severity: severityOf(findingSeverities, f.Severity)}
	l.Body = truncateText(cmp.Or(f.Explanation, f.Rule), maxBody)
	a := attributes{}
	a.addCall("", "", f.ToolCallID, "", f.Session)
	a.addText("countersign.finding.id", f.FindingID, "countersign.finding.rule", f.Rule, "countersign.finding.severity", string(f.Severity),
		"countersign.finding.withdraws", f.Retracts, "countersign.call.id", f.CallID, "countersign.source", f.Source)
	a = append(a, attribute.Bool("countersign.finding.enforced", f.Enforced))
	l.Attributes = a.withLogPosition(r)
	return l
}

// Bounds of texts, in bytes.
const (
	maxText = 256
	maxBody = 1024
)

// safeText is a text in the form that may leave the installation. Evidence keeps the identifiers of
// service records unchanged; one that holds a detector's finding is masked here.
func safeText(s string) string {
	shown, _ := redaction.Text(s)
	return truncateText(shown, maxText)
}

// truncateText is s as valid UTF-8 of at most most bytes.
func truncateText(s string, most int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most]
}
