package correlation

import (
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/correlation/hooksession"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/agenthook"
)

// What the copies of requests and the decisions on them say of admission itself:
// the verdicts must be those that the requests allow.

// Bounds of what is remembered of requests and decisions (about 100 B each).
const (
	maxMarked = 4096   // requests without their decision, which follows at once
	maxNamed  = 65_536 // decisions that events name and that are not on the log yet
)

// marks are what a request says that its verdict depends on.
type marks uint8

const (
	markReports  marks = 1 << iota // it proposes nothing
	markRefused                    // its runtime is revoked, denied, expired or not compliant
	markDenied                     // another subscriber denied it
	markAsked                      // another subscriber wants it asked for
	markTrusting                   // it names hooks and calls all of them trusted
)

// flagged is a request whose verdict is awaited.
type flagged struct {
	marks marks
	seq   uint64
}

// ownSubscriber is the name that Countersign's own verdicts bear.
const ownSubscriber = "countersign"

// onlyReports tells whether a request only tells of something: types that propose
// something never do, named ones that do not do unless they are said to wait, and
// unknown ones if they say so.
func onlyReports(e *agenthook.Event) bool {
	switch {
	case agenthook.AdmissionCapable(e.EventType):
		return false
	case agenthook.Known(e.EventType):
		return e.EvidencePhase != agenthook.PhasePreCommit
	}
	return e.EvidencePhase == agenthook.PhaseObservational || e.EvidencePhase == agenthook.PhasePostHoc
}

// marksOf reads the marks of an AgentHook request. What only tells of something is
// let in whatever it tells.
func marksOf(e *agenthook.Event) (k marks) {
	if onlyReports(e) {
		return markReports
	}
	if v, ok := e.AdmissionVerdict(); ok && v.Subscriber != ownSubscriber {
		switch v.Verdict {
		case string(events.Deny):
			k |= markDenied
		case string(events.Ask):
			k |= markAsked
		}
	}
	if hooksession.Trusting(e) {
		k |= markTrusting
	}
	runtime, _ := e.Metadata["managed_runtime"].(map[string]any)
	if runtime == nil {
		return k
	}
	registry, _ := runtime["device_registry"].(map[string]any)
	if runtime["registration_status"] == "revoked" || runtime["approval_status"] == "denied" || runtime["approval_status"] == "expired" ||
		registry["posture"] == "non_compliant" {
		k |= markRefused
	}
	return k
}

// requested notes a request whose verdict is not free.
func (m *machine) requested(f *fact) {
	if f.marks != 0 && f.decisionID != "" {
		m.flagged.put(f.decidingSum(), flagged{f.marks, f.seq})
	}
}

// reviewed holds a decision against its request and against what was on record
// when the request came.
func (m *machine) reviewed(f *fact) {
	if f.protocol != protoAgentHook {
		return
	}
	if r := m.flagged.at(f.decidingSum()); r != nil {
		m.consistent(f, *r)
	}
	m.told(f)
	m.swallowed(f)
}

func (m *machine) consistent(f *fact, r flagged) {
	v := f.decision.verdict
	say := func(check, what string) {
		b := single(check, what, f)
		b.Seqs = append([]uint64{r.seq}, b.Seqs...)
		m.breach(f, f.origin, b)
	}
	if r.marks&markReports != 0 && (f.judgedBy || v == events.Ask || v == events.Defer) {
		say("AH-C-085", "policies were asked about it")
	}
	if r.marks&markRefused != 0 && v == events.Allow {
		say("AH-C-134", "")
	}
	if r.marks&markTrusting != 0 && f.more != nil && f.more.otherPrint {
		say("AH-C-129", "its manifest expects another fingerprint")
	}
	approved := granted(f.decision.pending.value().status)
	switch {
	case r.marks&markDenied != 0 && v != events.Deny:
		say("AH-C-086", "another subscriber had denied the request")
	case r.marks&markAsked != 0 && v == events.Allow && !approved:
		say("AH-C-086", "another subscriber had asked for an approval")
	}
}

// namedDecision is the first event that named a decision.
type namedDecision struct {
	event string
	seq   uint64
}

// names notes that an event names a decision that is not on record: whoever sent
// it was told of the verdict before.
func (m *machine) names(f *fact) {
	if f.kind == kindRequest {
		return
	}
	if s, there := m.sources.peek(sourceKey{f.key.tenant, f.key.source}); there && s.seen.at(sumOf("decision", f.receiptOf)) != nil {
		return
	}
	if k := receiptKey(f.key.tenant, f.receiptOf); m.named.at(k) == nil {
		m.named.put(k, namedDecision{f.eventID, f.seq})
	}
}

// told: a verdict was known before its record was on the log (AH-C-071).
func (m *machine) told(f *fact) {
	n := m.named.at(f.decidingSum())
	if n == nil || f.decisionID == "" {
		return
	}
	b := single("AH-C-071", "an event that is recorded before it names it", f)
	b.Seqs = append([]uint64{n.seq}, b.Seqs...)
	b.Events = slices.DeleteFunc([]string{n.event, f.eventID}, func(id string) bool { return id == "" })
	m.breach(f, f.origin, b)
}

// swallowed: a request came when its approval had been on record for long, and
// was told to wait for that very approval (AH-C-051). What is asked for again
// while a reviewer decides may cross the decision.
func (m *machine) swallowed(f *fact) {
	waits := f.decision.pending.value()
	if waits.workflow == "" || waits.status != statusPending || f.more == nil || f.more.received.IsZero() {
		return
	}
	w, known := m.ledger.get(workflowKey{f.key.tenant, sumOf(waits.workflow)})
	if known && w.status == statusApproved && f.more.received.After(w.at.Add(slowVerdict)) {
		m.breach(f, f.origin, single("AH-C-051", "", f))
	}
}

// declaredReasons are the checks that the admitter decides by what is declared of
// publishers, which is not on the log, and records. See also printReason.
var declaredReasons = map[string]string{
	"publisher_mismatch":     "AH-C-015",
	"event_type_not_exposed": "AH-C-127",
}

// printReason is that a manifest expects another fingerprint of a hook. It breaks
// AH-C-129 if the hook calls itself trusted, which the request says.
const printReason = "hook_fingerprint_mismatch"

// onDecision is what few decisions say.
type onDecision struct {
	received, decided time.Time // by the admitter: the request, and the verdict
	words             mandateWord
	otherPrint        bool // see printReason
}

// moreOf reads it, nil if it does not matter.
func moreOf(d *events.Decision) *onDecision {
	words := mandateWords(d.Reasons)
	other := slices.ContainsFunc(d.Reasons, func(r events.Reason) bool { return r.Evaluator == protoAgentHook && r.Code == printReason })
	if words == 0 && d.Approval == nil && !other {
		return nil
	}
	return &onDecision{d.ReceivedAt.Time, d.DecidedAt.Time, words, other}
}

// mandateWord is what a decision says of the mandate that it was made under, for
// good: no evidence can say otherwise.
type mandateWord uint8

const (
	mandateExpired mandateWord = 1 << iota
	mandateEarly
	mandateUnbounded
)

// mandateWords reads the reasons of AUMP's evaluator.
func mandateWords(reasons []events.Reason) (w mandateWord) {
	for _, r := range reasons {
		path := strings.Replace(strings.TrimPrefix(r.Path, "$"), ".", "/", 1)
		switch {
		case r.Evaluator != protoAUMP:
		case r.Code == "mandate_expired":
			w |= mandateExpired
		case r.Code == "mandate_inactive" && path == "/issued_at":
			w |= mandateEarly
		case r.Code == "scope_violation" && path == "/authority":
			w |= mandateUnbounded
		}
	}
	return w
}
