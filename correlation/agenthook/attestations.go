package agenthook

import (
	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/correlation/internal/tables"
)

// Attestations are what publishers said of their runtimes, over all of their sessions: the
// nonces of attestations, and the fingerprints of hooks. Each list is bounded by
// maxTokens; the oldest entries are forgotten.
type Attestations struct {
	findings         fact.Reporter `snapshot:"-"` // given anew
	nonces           *tables.FIFO[fact.TokenKey, nonceUse]
	hookFingerprints *tables.FIFO[fact.TokenKey, trustedHook]
}

// nonceUse is the event that used a nonce last.
type nonceUse struct {
	event string
	seq   uint64
}

// trustedHook is the fingerprint that a hook had when it last called itself trusted.
type trustedHook struct {
	fingerprint fact.Sum
	event       string
	seq         uint64
}

// NewAttestations makes the part; configure it before use.
func NewAttestations() *Attestations {
	return &Attestations{nonces: tables.NewFIFO[fact.TokenKey, nonceUse](maxTokens), hookFingerprints: tables.NewFIFO[fact.TokenKey, trustedHook](maxTokens)}
}

// Configure gives the part what is no state.
func (as *Attestations) Configure(r fact.Reporter) { as.findings = r }

// CheckNonce notes in which attestation a nonce was used (AH-C-122).
func (as *Attestations) CheckNonce(who fact.Origin, f *fact.Fact) {
	if EventOf(f).Nonce() == "" {
		return
	}
	key := fact.TokenKey{Tenant: f.Key.Tenant, Source: f.Key.Source, Token: fact.SumOf(EventOf(f).Nonce())}
	if before, used := as.nonces.Get(key); used && before.event != f.EventID {
		found := fact.SingleEventFinding("AH-C-122", "its nonce was used before", f)
		found.Case, found.Events, found.Seqs = "nonce", append([]string{before.event}, found.Events...), append([]uint64{before.seq}, found.Seqs...)
		as.findings.ReportSessionFinding(f, who, found)
	}
	as.nonces.Put(key, nonceUse{f.EventID, f.Seq})
}

// CheckHookFingerprints compares the hooks that a session calls trusted with what they were in
// their publisher's sessions before (AH-C-129).
func (as *Attestations) CheckHookFingerprints(who fact.Origin, f *fact.Fact) {
	for _, h := range EventOf(f).IntroducedHooks() {
		key := fact.TokenKey{Tenant: f.Key.Tenant, Source: f.Key.Source, Token: fact.SumOf(h.Hook)}
		now := trustedHook{fact.SumOf(h.Fingerprint), f.EventID, f.Seq}
		if before, known := as.hookFingerprints.Get(key); known && h.Unexpected && before.fingerprint != now.fingerprint {
			found := fact.SingleEventFinding("AH-C-129", "an earlier session knew it with another fingerprint", f)
			found.Case, found.Call = h.Hook, ""
			found.Events, found.Seqs = append([]string{before.event}, found.Events...), append([]uint64{before.seq}, found.Seqs...)
			as.findings.ReportSessionFinding(f, who, found)
		}
		as.hookFingerprints.Put(key, now)
	}
}

// maxTokens bounds the nonces and hooks that are remembered, each; the oldest are forgotten.
const maxTokens = 65_536
