package correlation

import (
	"slices"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/correlation/internal/tables"
	"github.com/countersign-dev/countersign/events"
)

// The checks of admission itself: a decision must be one that its request permits, and must be
// on the log before an event names it.

// Bounds of the tables (about 100 B for each entry).
const (
	maxFlaggedRequests = 4096   // requests without a decision, which mostly follows at once
	maxNamedDecisions  = 65_536 // decisions that are not on the log yet
)

// flaggedRequest is a request that does not permit every verdict, and has no decision yet.
type flaggedRequest struct {
	flags fact.RequestFlags
	seq   uint64
}

// admissions holds the requests and decisions that are still to be compared.
type admissions struct {
	findings        *findings                                `snapshot:"-"` // another part, as is the next
	history         *history                                 `snapshot:"-"`
	flaggedRequests *tables.Shared[fact.Sum, flaggedRequest] // by decision
	namedDecisions  *tables.Shared[fact.Sum, namedDecision]  // decisions that events named before they were recorded
}

func newAdmissions(fs *findings, h *history) *admissions {
	return &admissions{
		findings: fs, history: h,
		flaggedRequests: tables.NewShared[fact.Sum, flaggedRequest](maxFlaggedRequests),
		namedDecisions:  tables.NewShared[fact.Sum, namedDecision](maxNamedDecisions),
	}
}

// recordFlaggedRequest records a request that does not permit every verdict.
func (ad *admissions) recordFlaggedRequest(f *fact.Fact) {
	if f.RequestFlags != 0 && f.DecisionID != "" {
		ad.flaggedRequests.Put(f.Key.Tenant, f.OwnReceiptKey(), flaggedRequest{f.RequestFlags, f.Seq})
	}
}

// checkAdmissionDecision compares a decision with its request, and with the events before it.
func (ad *admissions) checkAdmissionDecision(f *fact.Fact) {
	if !rowOf(f.Protocol).resumesByRule {
		return
	}
	if r := ad.flaggedRequests.Lookup(f.Key.Tenant, f.OwnReceiptKey()); r != nil {
		ad.checkFlaggedVerdict(f, *r)
	}
	ad.checkEarlyVerdict(f)
}

func (ad *admissions) checkFlaggedVerdict(f *fact.Fact, r flaggedRequest) {
	v := f.Decision.Verdict
	say := func(check, what string) {
		found := fact.SingleEventFinding(check, what, f)
		found.Seqs = append([]uint64{r.seq}, found.Seqs...)
		ad.findings.ReportSessionFinding(f, f.Origin, found)
	}
	if r.flags&fact.FlagReportsOnly != 0 && (f.NamesPolicies || v == events.Ask || v == events.Defer) {
		say("AH-C-085", "policies were asked about it")
	}
	if r.flags&fact.FlagRuntimeRefused != 0 && v == events.Allow {
		say("AH-C-134", "")
	}
	if r.flags&fact.FlagHooksTrusted != 0 && f.DecisionExtras != nil && f.DecisionExtras.OtherFingerprint {
		say("AH-C-129", "its manifest expects another fingerprint")
	}
	approved := isGranted(f.Decision.Approval.ValueOrZero().Status)
	switch {
	case r.flags&fact.FlagDeniedElsewhere != 0 && v != events.Deny:
		say("AH-C-086", "another subscriber had denied the request")
	case r.flags&fact.FlagAskedElsewhere != 0 && v == events.Allow && !approved:
		say("AH-C-086", "another subscriber had asked for an approval")
	}
}

// namedDecision is the first event that named a decision.
type namedDecision struct {
	event string
	seq   uint64
}

// recordNamedDecision records that an event names a decision that is not on record. Its
// publisher knew the verdict before it was recorded.
func (ad *admissions) recordNamedDecision(f *fact.Fact) {
	if f.Kind == fact.KindRequest {
		return
	}
	if ad.history.hasDecision(f.Key.Publisher(), f.ReceiptDecisionID) {
		return
	}
	if k := fact.ReceiptKey(f.Key.Tenant, f.ReceiptDecisionID); ad.namedDecisions.Lookup(f.Key.Tenant, k) == nil {
		ad.namedDecisions.Put(f.Key.Tenant, k, namedDecision{f.EventID, f.Seq})
	}
}

// checkEarlyVerdict reports a verdict that was known before it was recorded (AH-C-071).
func (ad *admissions) checkEarlyVerdict(f *fact.Fact) {
	n := ad.namedDecisions.Lookup(f.Key.Tenant, f.OwnReceiptKey())
	if n == nil || f.DecisionID == "" {
		return
	}
	found := fact.SingleEventFinding("AH-C-071", "an event that is recorded before it names it", f)
	found.Seqs = append([]uint64{n.seq}, found.Seqs...)
	found.Events = slices.DeleteFunc([]string{n.event, f.EventID}, func(id string) bool { return id == "" })
	ad.findings.ReportSessionFinding(f, f.Origin, found)
}
