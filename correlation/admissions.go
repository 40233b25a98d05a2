package correlation

import (
	"slices"
	"strings"
	"time"

	hooksession "github.com/countersign-dev/countersign/correlation/agenthook"
	"github.com/countersign-dev/countersign/correlation/internal/tables"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/events/aioc"
	"github.com/countersign-dev/countersign/events/subject"
)

// What the copies of requests and the decisions on them say of admission itself:
// the verdicts must be those that the requests allow.

// Bounds of what is remembered of requests and decisions (about 100 B each).
const (
	maxFlaggedRequests = 4096   // requests without their decision, which follows at once
	maxNamedDecisions  = 65_536 // decisions that events name and that are not on the log yet
)

// requestFlags are what a request says that its verdict depends on.
type requestFlags uint8

const (
	flagReportsOnly     requestFlags = 1 << iota // it proposes nothing
	flagRuntimeRefused                           // its runtime is revoked, denied, expired or not compliant
	flagDeniedElsewhere                          // another subscriber denied it
	flagAskedElsewhere                           // another subscriber wants it asked for
	flagHooksTrusted                             // it names hooks and calls all of them trusted
)

// flaggedRequest is a request whose verdict is awaited.
type flaggedRequest struct {
	flags requestFlags
	seq   uint64
}

// ownSubscriber is the name that Countersign's own verdicts bear.
const ownSubscriber = "countersign"

// isReportOnly reports whether a request only tells of something: types that propose
// something never do, named ones that do not do unless they are said to wait, and
// unknown ones if they say so.
func isReportOnly(e *agenthook.Event) bool {
	switch {
	case agenthook.AdmissionCapable(e.EventType):
		return false
	case agenthook.IsKnownType(e.EventType):
		return e.EvidencePhase != agenthook.PhasePreCommit
	}
	return e.EvidencePhase == agenthook.PhaseObservational || e.EvidencePhase == agenthook.PhasePostHoc
}

// requestFlagsOf reads the marks of an AgentHook request. What only tells of something is
// let in whatever it tells.
func requestFlagsOf(e *agenthook.Event) (k requestFlags) {
	if isReportOnly(e) {
		return flagReportsOnly
	}
	if v, ok := e.AdmissionVerdict(); ok && v.Subscriber != ownSubscriber {
		switch v.Verdict {
		case string(events.Deny):
			k |= flagDeniedElsewhere
		case string(events.Ask):
			k |= flagAskedElsewhere
		}
	}
	if hooksession.TrustsAllHooks(e) {
		k |= flagHooksTrusted
	}
	runtime, _ := e.Metadata["managed_runtime"].(map[string]any)
	if runtime == nil {
		return k
	}
	registry, _ := runtime["device_registry"].(map[string]any)
	if runtime["registration_status"] == "revoked" || runtime["approval_status"] == "denied" || runtime["approval_status"] == "expired" ||
		registry["posture"] == "non_compliant" {
		k |= flagRuntimeRefused
	}
	return k
}

// admissions are the requests and decisions that the log holds against each other.
type admissions struct {
	findings        *findings
	history         *history
	flaggedRequests *tables.FIFO[sum, flaggedRequest] // by decision
	namedDecisions  *tables.FIFO[sum, namedDecision]  // decisions that events named first
	expectedTraces  *tables.FIFO[sum, *expectedTrace] // decisions that leave a trace event, by id
}

func newAdmissions(fs *findings, h *history) *admissions {
	return &admissions{
		findings: fs, history: h,
		flaggedRequests: tables.NewFIFO[sum, flaggedRequest](maxFlaggedRequests),
		namedDecisions:  tables.NewFIFO[sum, namedDecision](maxNamedDecisions),
		expectedTraces:  tables.NewFIFO[sum, *expectedTrace](maxTraces),
	}
}

// recordFlaggedRequest records a request that does not allow every verdict.
func (ad *admissions) recordFlaggedRequest(f *fact) {
	if f.requestFlags != 0 && f.decisionID != "" {
		ad.flaggedRequests.Put(f.ownReceiptKey(), flaggedRequest{f.requestFlags, f.seq})
	}
}

// checkAdmissionDecision holds a decision against its request and against what was on record
// when the request came.
func (ad *admissions) checkAdmissionDecision(f *fact) {
	if f.protocol != protoAgentHook {
		return
	}
	if r := ad.flaggedRequests.Lookup(f.ownReceiptKey()); r != nil {
		ad.checkFlaggedVerdict(f, *r)
	}
	ad.checkEarlyVerdict(f)
}

func (ad *admissions) checkFlaggedVerdict(f *fact, r flaggedRequest) {
	v := f.decision.verdict
	say := func(check, what string) {
		b := singleEventFinding(check, what, f)
		b.Seqs = append([]uint64{r.seq}, b.Seqs...)
		ad.findings.reportSessionFinding(f, f.origin, b)
	}
	if r.flags&flagReportsOnly != 0 && (f.namesPolicies || v == events.Ask || v == events.Defer) {
		say("AH-C-085", "policies were asked about it")
	}
	if r.flags&flagRuntimeRefused != 0 && v == events.Allow {
		say("AH-C-134", "")
	}
	if r.flags&flagHooksTrusted != 0 && f.decisionExtras != nil && f.decisionExtras.otherFingerprint {
		say("AH-C-129", "its manifest expects another fingerprint")
	}
	approved := isGranted(f.decision.approval.valueOrZero().status)
	switch {
	case r.flags&flagDeniedElsewhere != 0 && v != events.Deny:
		say("AH-C-086", "another subscriber had denied the request")
	case r.flags&flagAskedElsewhere != 0 && v == events.Allow && !approved:
		say("AH-C-086", "another subscriber had asked for an approval")
	}
}

// namedDecision is the first event that named a decision.
type namedDecision struct {
	event string
	seq   uint64
}

// recordNamedDecision records that an event names a decision that is not on record: its
// publisher was told of the verdict before.
func (ad *admissions) recordNamedDecision(f *fact) {
	if f.kind == kindRequest {
		return
	}
	if ad.history.hasDecision(f.key.publisher(), f.receiptDecisionID) {
		return
	}
	if k := receiptKey(f.key.tenant, f.receiptDecisionID); ad.namedDecisions.Lookup(k) == nil {
		ad.namedDecisions.Put(k, namedDecision{f.eventID, f.seq})
	}
}

// checkEarlyVerdict: a verdict was known before its record was on the log (AH-C-071).
func (ad *admissions) checkEarlyVerdict(f *fact) {
	n := ad.namedDecisions.Lookup(f.ownReceiptKey())
	if n == nil || f.decisionID == "" {
		return
	}
	b := singleEventFinding("AH-C-071", "an event that is recorded before it names it", f)
	b.Seqs = append([]uint64{n.seq}, b.Seqs...)
	b.Events = slices.DeleteFunc([]string{n.event, f.eventID}, func(id string) bool { return id == "" })
	ad.findings.reportSessionFinding(f, f.origin, b)
}

// declaredReasons are the checks that the admitter decides by what is declared of
// publishers, which is not on the log, and records. See also fingerprintReason.
var declaredReasons = map[string]string{
	"publisher_mismatch":     "AH-C-015",
	"event_type_not_exposed": "AH-C-127",
}

// fingerprintReason is that a manifest expects another fingerprint of a hook. It breaks
// AH-C-129 if the hook calls itself trusted, which the request says.
const fingerprintReason = "hook_fingerprint_mismatch"

// decisionExtras is what few decisions say.
type decisionExtras struct {
	received, decided time.Time // by the admitter: the request, and the verdict
	mandateFlags      mandateFlags
	otherFingerprint  bool // see fingerprintReason
}

// decisionExtrasOf reads it, nil if it does not matter.
func decisionExtrasOf(d *events.Decision) *decisionExtras {
	words := mandateFlagsOf(d.Reasons)
	other := slices.ContainsFunc(d.Reasons, func(r events.Reason) bool { return r.Evaluator == protoAgentHook && r.Code == fingerprintReason })
	if words == 0 && d.Approval == nil && !other {
		return nil
	}
	return &decisionExtras{d.ReceivedAt.Time, d.DecidedAt.Time, words, other}
}

// mandateFlags is what a decision says of the mandate that it was made under, for
// good: no evidence can say otherwise.
type mandateFlags uint8

const (
	mandateExpired mandateFlags = 1 << iota
	mandateNotBegun
	mandateUnbounded
)

// mandateFlagsOf reads the reasons of AUMP's evaluator.
func mandateFlagsOf(reasons []events.Reason) (w mandateFlags) {
	for _, r := range reasons {
		path := strings.Replace(strings.TrimPrefix(r.Path, "$"), ".", "/", 1)
		switch {
		case r.Evaluator != protoAUMP:
		case r.Code == "mandate_expired":
			w |= mandateExpired
		case r.Code == "mandate_inactive" && path == "/issued_at":
			w |= mandateNotBegun
		case r.Code == "scope_violation" && path == "/authority":
			w |= mandateUnbounded
		}
	}
	return w
}

// traceTypes are the events that the admitter itself writes in the name of a
// publisher, by type, and their protocols: what RFC-0002 wants on the log beside
// a decision. They are signed like decisions. Only the admitter may write them.
var traceTypes = map[string]string{
	aioc.TypeToolEvaluated:    subject.ProtoTool,
	aioc.TypeHandoffEvaluated: subject.ProtoHandoff,
}

// expectedTrace is a decision that leaves a trace event.
type expectedTrace struct {
	key      sessionKey
	protocol string
	received bool
}

// expectTrace remembers a decision that leaves a trace event.
func (ad *admissions) expectTrace(d *events.Decision) {
	if d.Protocol != subject.ProtoTool && d.Protocol != subject.ProtoHandoff {
		return
	}
	id := traceKey(d.Tenant, d.DecisionID)
	if _, known := ad.expectedTraces.Get(id); !known {
		ad.expectedTraces.Put(id, &expectedTrace{key: originOf(d.Tenant, d.Source, d.Session).key, protocol: d.Protocol})
	}
}

// findTrace is the trace event that a decision leaves.
func (ad *admissions) findTrace(tenant, decisionID string) (t *expectedTrace, known bool) {
	return ad.expectedTraces.Get(traceKey(tenant, decisionID))
}

func traceKey(tenant, decisionID string) sum { return sumOf("trace", tenant, decisionID) }

// applyTrace takes a trace event. It adds nothing to its decision, which has been
// there before it, but must be what it says: signed, of a decision that is
// recorded, and under that decision's publisher and session. A second copy, which
// proves no more than the first, is a duplicate.
func (c *Correlator) applyTrace(m events.LogMessage, p subject.Parsed, f *fact) {
	if what := c.signatureDefect(&m, verifiedSignature{}); what != "" {
		c.reportForged(f, caseTrace, what)
		return
	}
	e, err := aioc.DecodePolicyEvaluated(m.Body)
	if err != nil {
		c.reportForged(f, caseTrace, decodeErrorText(err))
		return
	}
	id := m.HeaderValue(events.HeaderDecisionID)
	if named, _ := e.Metadata["decisionId"].(string); named != id {
		c.reportForged(f, caseTrace, "it names another decision than its header")
		return
	}
	t, known := c.engine.admissions.findTrace(p.Tenant, id)
	switch {
	case !known:
		c.reportForged(f, caseTrace, "the decision that it names is not recorded before it")
	case t.key != f.key || t.protocol != p.Protocol || e.Type != p.Type:
		c.reportForged(f, caseTraceSubject, "publisher, session or type differ")
	case t.received:
		c.engine.stats.Duplicates++
	default:
		t.received = true
		c.engine.calls.attachTrace(f, id)
	}
}

// attachTrace notes the event in its call's timeline. A call that its deny has
// closed was emitted before, and is not emitted again for it.
func (cs *calls) attachTrace(f *fact, decisionID string) {
	s := cs.find(f.key)
	if s == nil {
		return
	}
	if c := s.callOfDecision(decisionID); c != nil {
		c.addStep(stepTraced, f)
	}
}
