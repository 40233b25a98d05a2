package correlation

import "github.com/countersign-dev/countersign/correlation/internal/tables"

// attestations are what publishers said of their runtimes, over all of their sessions: the
// nonces of attestations, and the fingerprints of hooks. Each list is bounded by
// maxTokens; the oldest entries are forgotten.
type attestations struct {
	findings         *findings
	nonces           *tables.FIFO[tokenKey, nonceUse]
	hookFingerprints *tables.FIFO[tokenKey, hookFingerprint]
}

// nonceUse is the event that used a nonce last.
type nonceUse struct {
	event string
	seq   uint64
}

// hookFingerprint is the fingerprint that a hook had when it last called itself trusted.
type hookFingerprint struct {
	fingerprint sum
	event       string
	seq         uint64
}

func newAttestations(fs *findings) *attestations {
	return &attestations{findings: fs, nonces: tables.NewFIFO[tokenKey, nonceUse](maxTokens), hookFingerprints: tables.NewFIFO[tokenKey, hookFingerprint](maxTokens)}
}

// checkNonce notes in which attestation a nonce was used (AH-C-122).
func (as *attestations) checkNonce(w *protocolSession, f *fact) {
	if f.hook.Nonce() == "" {
		return
	}
	key := tokenKey{f.key.tenant, f.key.source, sumOf(f.hook.Nonce())}
	if before, used := as.nonces.Get(key); used && before.event != f.eventID {
		b := singleEventFinding("AH-C-122", "its nonce was used before", f)
		b.Case, b.Events, b.Seqs = "nonce", append([]string{before.event}, b.Events...), append([]uint64{before.seq}, b.Seqs...)
		as.findings.reportSessionFinding(f, *w.origin, b)
	}
	as.nonces.Put(key, nonceUse{f.eventID, f.seq})
}

// checkHookFingerprints compares the hooks that a session calls trusted with what they were in
// their publisher's sessions before (AH-C-129).
func (as *attestations) checkHookFingerprints(w *protocolSession, f *fact) {
	for _, h := range f.hook.IntroducedHooks() {
		key := tokenKey{f.key.tenant, f.key.source, sumOf(h.Hook)}
		now := hookFingerprint{sumOf(h.Fingerprint), f.eventID, f.seq}
		if before, known := as.hookFingerprints.Get(key); known && h.Unexpected && before.fingerprint != now.fingerprint {
			b := singleEventFinding("AH-C-129", "an earlier session knew it with another fingerprint", f)
			b.Case, b.Call = h.Hook, ""
			b.Events, b.Seqs = append([]string{before.event}, b.Events...), append([]uint64{before.seq}, b.Seqs...)
			as.findings.reportSessionFinding(f, *w.origin, b)
		}
		as.hookFingerprints.Put(key, now)
	}
}
