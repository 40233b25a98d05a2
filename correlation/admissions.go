package correlation

import (
	"slices"

	"github.com/countersign-dev/countersign/correlation/internal/tables"
	"github.com/countersign-dev/countersign/events"
)

// What the copies of requests and the decisions on them say of admission itself:
// the verdicts must be those that the requests allow.

// Bounds of what is remembered of requests and decisions (about 100 B each).
const (
	maxFlaggedRequests = 4096   // requests without their decision, which follows at once
	maxNamedDecisions  = 65_536 // decisions that events name and that are not on the log yet
)

// flaggedRequest is a request whose verdict is awaited.
type flaggedRequest struct {
	flags requestFlags
	seq   uint64
}

// ownSubscriber is the name that Countersign's own verdicts bear.
const ownSubscriber = "countersign"

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
	if !rowOf(f.protocol).rulesApprovals {
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
