package agenthook

import (
	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/correlation/internal/tables"
)

// Attestations hold what publishers say of their runtimes in all their sessions: the nonces of
// attestations, and the fingerprints of hooks. maxTokens bounds each table.
type Attestations struct {
	findings         fact.Reporter `snapshot:"-"` // not part of a snapshot
	nonces           *tables.Shared[fact.TokenKey, nonceUse]
	hookFingerprints *tables.Shared[fact.TokenKey, trustedHook]
}

// nonceUse is the last event with a nonce, and what has the nonce: an attestation of a session.
type nonceUse struct {
	event       string
	seq         uint64
	attestation fact.Sum
}

// trustedHook is the last fingerprint under which a hook called itself trusted.
type trustedHook struct {
	fingerprint fact.Sum
	event       string
	seq         uint64
}

// NewAttestations makes the part. Configure MUST be called before its use.
func NewAttestations() *Attestations {
	return &Attestations{nonces: tables.NewShared[fact.TokenKey, nonceUse](maxTokens), hookFingerprints: tables.NewShared[fact.TokenKey, trustedHook](maxTokens)}
}

// Configure sets what is not part of a snapshot.
func (as *Attestations) Configure(r fact.Reporter) { as.findings = r }

// CheckNonce reports a nonce that another attestation used before (AH-C-122). A session may
// repeat its own.
func (as *Attestations) CheckNonce(who fact.Origin, f *fact.Fact) {
	if EventOf(f).Nonce() == "" {
		return
	}
	now := nonceUse{f.EventID, f.Seq, fact.SumOf(f.Key.Session, string(EventOf(f).attestation.content[:]))}
	key := fact.TokenKey{Tenant: f.Key.Tenant, Source: f.Key.Source, Token: fact.SumOf(EventOf(f).Nonce())}
	if before, used := as.nonces.Get(key.Tenant, key); used && before.event != f.EventID && before.attestation != now.attestation {
		found := fact.SingleEventFinding("AH-C-122", "its nonce was used before", f)
		found.Case, found.Events, found.Seqs = "nonce", append([]string{before.event}, found.Events...), append([]uint64{before.seq}, found.Seqs...)
		as.findings.ReportSessionFinding(f, who, found)
	}
	as.nonces.Put(key.Tenant, key, now)
}

// CheckHookFingerprints compares the hooks that an event calls trusted with those of the
// publisher's earlier sessions (AH-C-129).
func (as *Attestations) CheckHookFingerprints(who fact.Origin, f *fact.Fact) {
	for _, h := range EventOf(f).IntroducedHooks() {
		key := fact.TokenKey{Tenant: f.Key.Tenant, Source: f.Key.Source, Token: fact.SumOf(h.Hook)}
		now := trustedHook{fact.SumOf(h.Fingerprint), f.EventID, f.Seq}
		if before, known := as.hookFingerprints.Get(key.Tenant, key); known && h.Unexpected && before.fingerprint != now.fingerprint {
			found := fact.SingleEventFinding("AH-C-129", "an earlier session knew it with another fingerprint", f)
			found.Case, found.Call = h.Hook, ""
			found.Events, found.Seqs = append([]string{before.event}, found.Events...), append([]uint64{before.seq}, found.Seqs...)
			as.findings.ReportSessionFinding(f, who, found)
		}
		as.hookFingerprints.Put(key.Tenant, key, now)
	}
}

// maxTokens bounds the remembered nonces, and the remembered hooks.
const maxTokens = 65_536
