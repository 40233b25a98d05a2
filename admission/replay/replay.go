// Package replay makes recorded decisions again, from the request in the log, the policies that
// the decision names and the other recorded inputs. The same inputs must give the same verdict
// and reasons; other policies give what they would have decided. Begin reading with Decide;
// Compare and CandidateOutcome use its result.
//
// Missing inputs are never guessed: a counter that the record lacks, a missing mandate, a
// reviewer's answer to what other policies would have asked. The result then lists the reasons
// in Unknown.
//
// The package is pure.
package replay

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/admission/approval"
	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/admission/publisher"
	"github.com/countersign-dev/countersign/admission/receipt"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aump"
	"github.com/countersign-dev/countersign/events/digest"
)

// Record is a decision with its request.
type Record struct {
	Decision events.Decision
	Header   map[string][]string
	Body     []byte
}

// Enforced is the record as of an admitter that enforces its policies. Decided again, it has the
// verdict that mode observe kept from having an effect.
func (r Record) Enforced() Record {
	r.Decision.Mode, r.Decision.Would = "", ""
	return r
}

// KnownState holds inputs from outside the record. All may be absent; a decision that needs an
// absent one cannot be replayed.
type KnownState struct {
	// Mandate returns the mandate that the decision names, nil if it is not available. The state of its signatures is
	// read from the record.
	Mandate func(tenant, id, hash string) *mandate.Mandate
	// Publishers returns the tenant's declarations, nil if they are not available. It is called
	// only for decisions that name a state of them.
	Publishers func(tenant string, ref events.SnapshotRef) publisher.Registry
	// TenantKey and Session, if set, make digests comparable: the key of the decision's
	// session, and that of the tenant where a decision has no session or is older than keys of
	// sessions.
	TenantKey []byte
	Session   *digest.Session
	// Counts, if set, is by how much the counters differ from the record before the decision, for a candidate.
	Counts *CountShift
}

// Result is a replayed decision. If Unknown is not empty, the decision depends on unknown
// inputs, and Decision is one of several possibilities.
type Result struct {
	Decision events.Decision
	Unknown  []string

	asks  []string       // what asks for an approval
	terms approval.Terms // of that approval
}

// Decide replays a decision with policies that may differ from the original ones. It leaves out
// the effect of human approvals: see Compare and CandidateOutcome.
func Decide(r Record, config *admission.Config, k KnownState) Result {
	low := r.replayWith(config, k, false, nil)
	if low.open == "" {
		return low.result
	}
	// Unknown counters matter only if they would change the outcome.
	high := r.replayWith(config, k, true, nil)
	out := low.result
	if !sameOutcome(out.Decision, high.result.Decision) {
		out.Unknown = append(out.Unknown, low.open)
	}
	return out
}

func sameOutcome(a, b events.Decision) bool {
	return a.Verdict == b.Verdict
}

// replayRun is one run.
type replayRun struct {
	r      Record
	k      KnownState
	totals policy.Totals
	high   bool // totals that are not known are as high as they can be, otherwise as low

	result Result
	open   string // why a total is not known; "" if all are
}

// Why a total is not known.
const (
	notCounted = "a limit counts something that was not counted then"
	notCertain = "a limit counts calls before it of which the outcome is not known"
)

// PolicyInput is what the policies saw of a recorded call. seen is false if they saw none, because
// the request was refused before. missing lists absent inputs that may have changed it.
func PolicyInput(r Record, k KnownState) (in policy.Input, seen bool, missing []string) {
	a := r.replayWith(admission.EvaluatorsOnly(), k, false, func(i policy.Input) { in, seen = i, true })
	return in, seen, a.result.Unknown
}

func (r Record) replayWith(config *admission.Config, k KnownState, high bool, inspect func(policy.Input)) *replayRun {
	a := &replayRun{r: r, k: k, totals: policy.RecordedTotals(r.Decision.Counts), high: high}
	d := r.Decision
	in := d.Inputs
	if in == nil {
		in = &events.DecisionInputs{}
	}
	s := *config
	s.Strict, s.Profile = in.Strict, admission.Profile(in.Profile)
	s.Observed = map[string]bool{d.Tenant: d.Mode == events.ModeObserve}
	inputs := admission.Inputs{
		Now: d.DecidedAt.Time, DecisionID: d.DecisionID, Salt: make([]byte, receipt.SaltSize), Nonce: "replay",
		TenantKey: k.TenantKey, PlainDigests: len(k.TenantKey) == 0 && k.sessionSecretFor(d) == nil, Secret: k.sessionSecretFor(d), Occurrence: d.Occurrence, Durability: d.Durability,
		KnownTenant: !hasReason(d, admission.EvaluatorName, admission.CodeUnknownTenant), Counters: a, Confirmations: recordedConfirmation{in.Confirmation},
		Mandates: a.mandateRecords(in.Mandate), Inspect: inspect,
	}
	if d.Publishers != nil {
		a.setPublishers(&inputs, *d.Publishers)
	}
	req := admission.Request{Tenant: d.Tenant, Source: d.Source, Gateway: d.Gateway, Protocol: d.Protocol, Header: r.Header, Body: r.Body, ReceivedAt: d.ReceivedAt.Time}
	out := admission.Decide(req, &s, inputs)
	a.result.Decision = out.Decision
	a.result.asks, a.result.terms = out.Asked()
	if hasReason(d, admission.EvaluatorName, admission.CodeTooLarge) {
		a.lacks("the request was so large that the log has no copy of it")
	}
	return a
}

// sessionSecretFor is the key of a decision's digests, nil if Session is another key.
func (k KnownState) sessionSecretFor(d events.Decision) *digest.Session {
	if digest.ComparableForm(d.RequestDigest) != k.Session.Form() {
		return nil
	}
	return k.Session
}

func hasReason(d events.Decision, evaluator, code string) bool {
	return slices.ContainsFunc(d.Reasons, func(r events.Reason) bool { return r.Evaluator == evaluator && r.Code == code })
}

// Total implements policy.Counters.
func (a *replayRun) Total(key string, window time.Duration, now time.Time) (int64, bool) {
	total, recorded := a.totals[key]
	shift := shifted{0, math.MaxInt64}
	switch {
	case recorded && total < 0:
		return 0, false
	case recorded:
		if shift = a.k.Counts.of(key, now); shift.low != shift.high {
			a.open = notCertain
		}
	default:
		a.open = notCounted
	}
	if a.high {
		return total + shift.high, true
	}
	return total + shift.low, true
}

// lacks notes an input that is not known.
func (a *replayRun) lacks(format string, args ...any) {
	a.result.Unknown = append(a.result.Unknown, fmt.Sprintf(format, args...))
}

// recordedConfirmation answers from the record.
type recordedConfirmation struct{ in *events.ConfirmationInput }

// Confirmation implements call.Confirmations.
func (c recordedConfirmation) Confirmation(call.Invocation) call.Confirmation {
	if c.in == nil {
		return call.Confirmation{}
	}
	return call.Confirmation{Status: call.ConfirmationStatus(c.in.Status), ID: c.in.ID, Explicit: c.in.Explicit, Understated: c.in.Understated,
		AcceptsByDefault: c.in.AcceptsByDefault, Until: c.in.Until.Time}
}

func (a *replayRun) setPublishers(in *admission.Inputs, ref events.SnapshotRef) {
	var reg publisher.Registry
	if a.k.Publishers != nil {
		reg = a.k.Publishers(a.r.Decision.Tenant, ref)
	}
	if reg == nil {
		a.lacks("the publisher declarations of revision %d are not to be had", ref.Revision)
		return
	}
	in.Publishers = reg
}

func (a *replayRun) mandateRecords(in *events.MandateInput) mandate.Records {
	if in == nil {
		in = &events.MandateInput{}
	}
	m := mandateState{a, *in}
	return mandate.Records{Mandates: m, Revocations: m, SpendLedger: m, Approvals: m, Signatures: mandate.SignaturePolicy(in.Signatures)}
}

// mandateState answers questions about mandates from the record.
type mandateState struct {
	a  *replayRun
	in events.MandateInput
}

// Mandate implements mandate.Source. A decision that names no mandate was made
// without one.
func (m mandateState) Mandate(tenant, _, _ string) *mandate.Mandate {
	ref := m.a.r.Decision.Mandate
	if ref == nil {
		return nil
	}
	var found *mandate.Mandate
	if m.a.k.Mandate != nil {
		found = m.a.k.Mandate(tenant, ref.ID, ref.Hash)
	}
	if found == nil {
		m.a.lacks("mandate %.80s with hash %.80s is not to be had", ref.ID, ref.Hash)
		return nil
	}
	if found.Signatures == aump.SignatureNone {
		return found
	}
	asDecided := *found
	asDecided.Signatures = aump.SignatureState(m.in.SignatureState)
	return &asDecided
}

// Revoked implements mandate.Revocations.
func (m mandateState) Revoked(string, string, string) bool { return m.in.Revoked }

// Spend implements mandate.SpendLedger.
func (m mandateState) Spend(mandate.Proposal) mandate.Spend {
	return mandate.Spend{Reserved: m.in.Reserved, Settled: m.in.Settled, Full: m.in.Full, Unknown: m.in.Unknown}
}

// Consent implements mandate.PrincipalConsents.
func (m mandateState) Consent(mandate.Proposal) mandate.PrincipalConsent {
	return mandate.PrincipalConsent{TrustedUI: m.in.TrustedUI, Approved: m.in.Approved}
}
