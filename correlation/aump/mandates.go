// Package aump checks AUMP evidence against what the log has of its mandate.
//
// AUMP evidence is what runtimes record of actions under a mandate. The log names mandates by
// id and hash, in decisions and in changes of mandates, and decisions say what was wrong with
// a mandate. Checks that need the mandate itself are in the command countersign mandate
// validate.
package aump

import (
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/correlation/internal/tables"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aump"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/schemas"
)

// Protocol says how evidence is decoded.
var Protocol = fact.Protocol{
	Token: subject.ProtoAUMP,
	Decode: func(d *fact.Decoder, in fact.EventMessage, r *fact.DecodedEvent) {
		decodeEvidence(d, r, in.Subject, in.Data)
	},
	ReadNumber: readEvidenceNumber, ReadReason: readMandateReason,
}

// readEvidenceNumber reads the number of evidence in its mandate.
func readEvidenceNumber(f *fact.Fact, n *fact.NumberFields) {
	f.Event = &aump.Evidence{ID: n.ID, Sequence: n.Sequence, Ref: aump.Ref{ID: n.Mandate.ID}, Hashes: aump.Hashes{Event: n.Hashes.Event}}
}

// Bounds of the tables.
const (
	maxMandates     = 65_536 // mandates of which decisions and changes speak, those with evidence, and sessions with decisions under mandates
	maxAhead        = 256    // how far the number of refused evidence may be ahead
	maxMandateTexts = 8      // hashes and revocations of a mandate, and mandates of a session; beyond it nothing is checked, or the oldest revocation
)

// Mandates holds what decisions and changes say of each mandate, the newest evidence of each,
// and the mandates of each session. maxMandates bounds each table. Evidence may name any
// mandate: it is kept apart, so that no revocation is forgotten for it.
type Mandates struct {
	findings  fact.Reporter                      `snapshot:"-"` // not part of a snapshot, as is the next
	clockSkew time.Duration                      `snapshot:"-"` // how far a producer's clock may be behind
	recorded  *tables.Shared[fact.Sum, *mandate] // by the sum of the id, as is the next
	newest    *tables.Shared[fact.Sum, newestEvidence]
	ofSession *tables.Shared[fact.SourceSession, []fact.Sum]
}

// NewMandates makes the part. Configure MUST be called before its use.
func NewMandates() *Mandates {
	return &Mandates{
		recorded: tables.NewShared[fact.Sum, *mandate](maxMandates), newest: tables.NewShared[fact.Sum, newestEvidence](maxMandates),
		ofSession: tables.NewShared[fact.SourceSession, []fact.Sum](maxMandates),
	}
}

// Configure sets what is not part of a snapshot.
func (ms *Mandates) Configure(r fact.Reporter, clockSkew time.Duration) {
	ms.findings, ms.clockSkew = r, clockSkew
}

// mandate is what decisions and changes say of a mandate.
type mandate struct {
	hashes  []string     // all hashes so far
	revoked []revocation // the newest ones
	states  []mandateState
}

// revocation revokes a mandate under one hash: one that is put under the id later is not revoked.
type revocation struct {
	hash, by string // by: operator or principal; each can be deleted alone
	at       time.Time
}

// newestEvidence is the newest evidence of a mandate.
type newestEvidence struct {
	number int64
	hash   string
	event  string
	seq    uint64
}

// mandateState is what decisions said of a mandate under one hash.
type mandateState struct {
	hash      string
	expired   time.Time // a decision found it expired at this time
	notBegun  time.Time // a decision found that it had not begun at this time
	unbounded bool
}

// decodeEvidence decodes an evidence event.
func decodeEvidence(d *fact.Decoder, r *fact.DecodedEvent, p subject.Parsed, data []byte) {
	e, err := aump.DecodeEvidence(data, strictjson.DefaultLimits)
	if e == nil {
		r.ReadError = err
		r.Fact.ReadRefusedNumber(data, d.Protocols(p.Protocol))
		return
	}
	f := &r.Fact
	f.EventID, f.CoreSum, f.Event = fact.BoundID(e.ID), fact.SumOfBytes(d.FormBuffer.WriteForm(e.Doc.AppendCanonical)), e
	what := ""
	switch vs := schemas.Default().Validate("aump/evidence-event", e.Doc); {
	case len(vs) > 0:
		what = fact.CodeAtPath(vs[0].Keyword, vs[0].Path)
	case err != nil:
		what = fact.DecodeErrorText(err)
	case e.Version != aump.Version:
		what = fact.CodeAtPath("version", "/aump/version")
	}
	if r.Defect, f.Invalid = what, what != ""; f.Invalid {
		f.EventFindings = append(f.EventFindings, fact.SingleEventFinding("AUMP-E-001", what, f))
	}
	if e.EventType != "" && !fact.SameSubjectType(p.Type, e.EventType) {
		r.Contradictions = append(r.Contradictions, "its type is not the event_type of the event")
	}
	if e.LeaksPrivately() {
		f.EventFindings = append(f.EventFindings, fact.SingleEventFinding("AUMP-E-008", "", f))
	}
	if !e.HashMatches() {
		f.EventFindings = append(f.EventFindings, fact.SingleEventFinding("AUMP-E-009", "", f))
	}
	r.Applies = true // its session is the subject's
}

// CheckEvidence compares an evidence event with what the log has of its mandate.
func (ms *Mandates) CheckEvidence(f *fact.Fact) {
	e := evidenceOf(f)
	if e == nil || e.Ref.ID == "" {
		return
	}
	say := func(check, what string) {
		ms.findings.ReportSessionFinding(f, f.Origin, fact.SingleEventFinding(check, what, f))
	}
	// A denied request may have named any mandate: the decision has none that was not found.
	if under, known := ms.ofSession.Get(f.Key.Tenant, f.Key); known && e.Result != aump.Denied && len(under) <= maxMandateTexts && !slices.Contains(under, fact.SumOf(e.Ref.ID)) {
		say("AUMP-E-002", "")
	}
	if md, known := ms.recorded.Get(f.Key.Tenant, fact.SumOf(e.Ref.ID)); known {
		md.checkEvidence(e, ms.clockSkew, say)
	}
	ms.checkEvidenceChain(f, say)
}

// checkEvidence compares an evidence event with what decisions and changes say of its mandate.
func (md *mandate) checkEvidence(e *aump.Evidence, skew time.Duration, say func(check, what string)) {
	hash, ok := aump.NormaliseHash(e.Ref.Hash)
	if n := len(md.hashes); ok && n > 0 && n <= maxMandateTexts && !slices.Contains(md.hashes, hash) {
		say("AUMP-E-003", "")
	}
	if what := md.voidReason(e, hash, skew); ok && what != "" {
		say("AUMP-E-005", what)
	}
	if e.Result == aump.Allowed && slices.ContainsFunc(md.revoked, func(r revocation) bool { return r.hash == hash && e.CreatedAt.After(r.at.Add(skew)) }) {
		say("AUMP-E-004", "")
	}
}

// voidReason says why an evidence event cannot report an allowed action, by the decisions
// before it; "" if it can.
func (md *mandate) voidReason(e *aump.Evidence, hash string, skew time.Duration) string {
	i := slices.IndexFunc(md.states, func(s mandateState) bool { return s.hash == hash })
	if i < 0 || e.Result != aump.Allowed || e.CreatedAt.IsZero() {
		return ""
	}
	switch s := md.states[i]; {
	case s.unbounded:
		return "it has no bounds"
	case !s.expired.IsZero() && e.CreatedAt.After(s.expired.Add(skew)):
		return "it had expired"
	case !s.notBegun.IsZero() && e.CreatedAt.Add(skew).Before(s.notBegun):
		return "it had not begun"
	}
	return ""
}

// recordFlags records what a decision says of a mandate.
func (md *mandate) recordFlags(hash string, w fact.MandateFlags, at time.Time) {
	h, ok := aump.NormaliseHash(hash)
	if w == 0 || !ok || at.IsZero() {
		return
	}
	i := slices.IndexFunc(md.states, func(s mandateState) bool { return s.hash == h })
	if i < 0 {
		if len(md.states) >= maxMandateTexts {
			return
		}
		md.states = append(md.states, mandateState{hash: h})
		i = len(md.states) - 1
	}
	s := &md.states[i]
	s.unbounded = s.unbounded || w&fact.MandateUnbounded != 0
	if w&fact.MandateExpired != 0 && (s.expired.IsZero() || at.Before(s.expired)) {
		s.expired = at
	}
	if w&fact.MandateNotBegun != 0 && at.After(s.notBegun) {
		s.notBegun = at
	}
}

// checkEvidenceChain checks the numbers and hashes of a mandate's evidence.
func (ms *Mandates) checkEvidenceChain(f *fact.Fact, say func(check, what string)) {
	e := evidenceOf(f)
	last, _ := ms.newest.Get(f.Key.Tenant, fact.SumOf(e.Ref.ID))
	previous, _ := aump.NormaliseHash(e.Hashes.PreviousEvent)
	behind := func(check, what string) { ms.reportBehind(last, f, check, what) }
	switch {
	case e.Sequence < 1: // the schema reports it
		return
	case e.Sequence <= last.number:
		behind("AUMP-E-011", "a number comes again or late")
		return
	case e.Sequence > last.number+1:
		behind("AUMP-E-011", "numbers are missing")
	case previous != "" && last.number == 0:
		say("AUMP-E-010", "the first one names one before it")
	case previous != "" && last.hash != "" && previous != last.hash:
		behind("AUMP-E-010", "")
	}
	ms.recordEvidence(f, e)
}

// recordEvidence records the newest evidence of a mandate.
func (ms *Mandates) recordEvidence(f *fact.Fact, e *aump.Evidence) {
	hash, _ := aump.NormaliseHash(e.Hashes.Event)
	ms.newest.Put(f.Key.Tenant, fact.SumOf(e.Ref.ID), newestEvidence{e.Sequence, hash, fact.BoundID(e.ID), f.Seq})
}

// reportBehind reports a finding about an evidence event and the mandate's newest one.
func (ms *Mandates) reportBehind(last newestEvidence, f *fact.Fact, check, what string) {
	found := fact.SingleEventFinding(check, what, f)
	if last.event != "" {
		found.Events, found.Seqs = append([]string{last.event}, found.Events...), append([]uint64{last.seq}, found.Seqs...)
	}
	ms.findings.ReportSessionFinding(f, f.Origin, found)
}

// ensureMandate returns the state of a mandate, and adds it if it is missing.
func (ms *Mandates) ensureMandate(tenant, id string) *mandate {
	key := fact.SumOf(id)
	md, known := ms.recorded.Get(tenant, key)
	if !known {
		md = &mandate{}
		ms.recorded.Put(tenant, key, md)
	}
	return md
}

// addHash records a hash of a mandate. One hash beyond the bound marks that there are more.
func (md *mandate) addHash(hash string) {
	if h, ok := aump.NormaliseHash(hash); ok && len(md.hashes) <= maxMandateTexts && !slices.Contains(md.hashes, h) {
		md.hashes = append(md.hashes, h)
	}
}

// RecordUse records a session's decision under a mandate.
func (ms *Mandates) RecordUse(f *fact.Fact, ref *events.MandateRef) {
	if ref.ID == "" {
		return
	}
	md := ms.ensureMandate(f.Key.Tenant, ref.ID)
	md.addHash(ref.Hash)
	if f.DecisionExtras != nil {
		md.recordFlags(ref.Hash, f.DecisionExtras.MandateFlags, f.DecisionExtras.Decided)
	}
	ids, _ := ms.ofSession.Get(f.Key.Tenant, f.Key)
	if id := fact.SumOf(ref.ID); len(ids) <= maxMandateTexts && !slices.Contains(ids, id) {
		ms.ofSession.Put(f.Key.Tenant, f.Key, append(slices.Clone(ids), id))
	}
}

// NoteNumber records the number of an invalid evidence event. A number far ahead may be what is
// wrong with the event: it does not count. No mandate begins with one above 1.
func (ms *Mandates) NoteNumber(f *fact.Fact) {
	e := evidenceOf(f)
	if e == nil || e.Ref.ID == "" {
		return
	}
	last, _ := ms.newest.Get(f.Key.Tenant, fact.SumOf(e.Ref.ID))
	switch ahead := e.Sequence - last.number; {
	case ahead < 1, ahead > maxAhead, ahead > 1 && last.number == 0:
		return
	case ahead > 1:
		ms.reportBehind(last, f, "AUMP-E-011", "numbers are missing")
	}
	ms.recordEvidence(f, e)
}

// ApplyChange records a change of a mandate from the log.
func (ms *Mandates) ApplyChange(change events.MandateChange, at time.Time) {
	for _, s := range change.Changes {
		if s.MandateID == "" {
			continue
		}
		tenant := s.Tenant
		if rest, escaped := strings.CutPrefix(tenant, "="); escaped { // escaped as in a bucket's key
			tenant = "~" + rest
		}
		md := ms.ensureMandate(tenant, s.MandateID)
		switch s.Change {
		case "put":
			md.addHash(s.Hash)
		case "revoked":
			if md.isRevoked(s) {
				continue // every admitter records it, with a later time
			}
			md.revoked = append(md.revoked, revocation{s.Hash, s.By, at})
			md.revoked = md.revoked[max(0, len(md.revoked)-maxMandateTexts):]
		case "revocation_deleted":
			md.dropRevocation(s)
		}
	}
}

func (md *mandate) isRevoked(s events.MandateStep) bool {
	return slices.ContainsFunc(md.revoked, func(r revocation) bool { return r.hash == s.Hash && r.by == s.By })
}

func (md *mandate) dropRevocation(s events.MandateStep) {
	md.revoked = slices.DeleteFunc(md.revoked, func(r revocation) bool { return r.hash == s.Hash && r.by == s.By })
}

// readMandateReason decodes a reason of AUMP's evaluator.
func readMandateReason(r *events.Reason) (x fact.ReasonsSaid) {
	path := strings.Replace(strings.TrimPrefix(r.Path, "$"), ".", "/", 1)
	switch {
	case r.Code == "mandate_expired":
		x.MandateFlags |= fact.MandateExpired
	case r.Code == "mandate_inactive" && path == "/issued_at":
		x.MandateFlags |= fact.MandateNotBegun
	case r.Code == "scope_violation" && path == "/authority":
		x.MandateFlags |= fact.MandateUnbounded
	}
	return x
}

// evidenceOf is the evidence of a fact, nil if it has none.
func evidenceOf(f *fact.Fact) *aump.Evidence {
	e, _ := f.Event.(*aump.Evidence)
	return e
}
