package verify

import (
	"cmp"
	"crypto/ed25519"
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/signing"
)

const (
	// maxPending is how many signatures may wait for a key that comes later in the log. Further
	// ones are reported as signed with an unknown key.
	maxPending = 10_000
	// requestGeneration is the size of each of the two generations of remembered requests. A
	// decision follows its request within a few messages, and a publisher that sends many
	// requests must not fill the memory.
	requestGeneration = 1 << 17
)

// trustChecker makes the checks that need several records, in the order of the log: which
// signatures are by trusted keys, that each decision follows its own request, and the
// receipts that were handed in.
type trustChecker struct {
	rep            *Report
	checkpointKeys note.Verifiers
	noKeys         bool           // there are no checkpoint keys
	vouchedKeys    signing.KeySet // receipt keys that a checkpoint key vouches for
	hints          signing.KeySet // all keys to try signatures with, vouched for or not
	retired        map[string]retirement
	pending        map[string][]signatureClaim // signatures that wait for a key to be vouched for, by key id
	pendingCount   int
	requests       [2]map[decisionKey]requestState // the newer generation first
	receipts       map[string]string               // handed-in receipts that no decision has matched yet, by hash
	requestsFrom   uint64                          // a decision before this sequence may have its request outside the rows
}

// decisionKey names a decision. Its id is unique in its tenant.
type decisionKey struct{ tenant, id string }

// requestState is what the checker remembers of a recorded request.
type requestState struct {
	digest  secretDigest
	keyed   bool // digest is known
	decided bool
}

// retirement is the point at which a key stopped being trusted.
type retirement struct {
	seq    uint64 // of its record; 0 if not known
	record events.KeyRetirement
}

// newTrust makes a checker that trusts the receipt keys that one of known vouches for. With
// no known key no signature is checked; the caller reports that once.
func newTrust(rep *Report, known []note.Verifier, keys, hints []events.KeyRecord, receipts []string) *trustChecker {
	t := &trustChecker{rep: rep, checkpointKeys: note.VerifierList(known...), noKeys: len(known) == 0, vouchedKeys: signing.KeySet{}, hints: signing.KeySet{},
		retired: map[string]retirement{}, pending: map[string][]signatureClaim{}, requests: [2]map[decisionKey]requestState{{}, {}}, receipts: map[string]string{}}
	for _, k := range slices.Concat(hints, keys) {
		t.addHint(k)
	}
	for _, k := range keys {
		t.addVouchedKey(0, k)
	}
	for _, r := range receipts {
		hash := digest.Plain([]byte(r))
		if _, twice := t.receipts[hash]; twice {
			rep.addFinding(CodeReceiptReplayed, 0, "receipt", "the receipt with hash %.24s was handed in twice", hash)
		}
		t.receipts[hash] = r
	}
	return t
}

// recordVerifier verifies signatures with all keys known so far, vouched for or not.
func (t *trustChecker) recordVerifier() signing.RecordVerifier {
	return signing.RecordVerifier{Keys: t.hints}
}

// addHint adds a key to try signatures with. If two keys have the same id, neither is tried
// until one of them is vouched for.
func (t *trustChecker) addHint(k events.KeyRecord) {
	pub, err := signing.ReceiptKey(k)
	if err != nil {
		return
	}
	if other, taken := t.hints[k.KeyID]; taken && !other.Equal(pub) {
		pub = ed25519.PublicKey{}
	}
	t.hints[k.KeyID] = pub
}

// addRow processes what an examined row contributes to the checks of other rows.
func (t *trustChecker) addRow(x *Examined) {
	f := &x.fact
	switch f.kind {
	case factRequest:
		t.rememberRequest(decisionKey{x.key.Tenant, f.id}, requestState{digest: f.digest, keyed: f.keyed})
	case factDecision:
		t.rep.Decisions++
		t.verifySignature(f.signature)
		t.checkRequest(x)
		t.checkReceipt(x.seq, f)
	case factApproval:
		t.rep.Approvals++
		t.verifySignature(f.signature)
	case factKey:
		var k events.KeyRecord
		if json.Unmarshal(f.body, &k) == nil && k.Vouch != "" {
			t.addVouchedKey(x.seq, k)
		}
	case factRetired:
		k, err := events.DecodeRecord[events.KeyRetirement](f.body)
		if err != nil {
			k = events.KeyRetirement{}
		}
		t.retireKey(x.seq, k)
	}
}

func (t *trustChecker) rememberRequest(k decisionKey, r requestState) {
	if len(t.requests[0]) >= requestGeneration {
		t.requests[0], t.requests[1] = map[decisionKey]requestState{}, t.requests[0]
	}
	t.requests[0][k] = r
}

// addVouchedKey adds a key that the checkpoint key vouches for and checks the signatures
// that waited for it.
func (t *trustChecker) addVouchedKey(seq uint64, k events.KeyRecord) {
	if t.noKeys {
		return
	}
	if !signing.CheckKeyRecord(t.checkpointKeys, k) {
		t.rep.addFinding(CodeKeyVouch, seq, "vouch", "receipt key %.32q is not vouched for by the checkpoint key", k.KeyID)
		return
	}
	pub, err := signing.ReceiptKey(k)
	if err != nil {
		return
	}
	t.vouchedKeys[k.KeyID], t.hints[k.KeyID] = pub, pub
	for _, c := range t.pending[k.KeyID] {
		t.pendingCount--
		t.verifySignature(c)
	}
	delete(t.pending, k.KeyID)
}

// retireKey ends the trust in a key from the retirement on. Only the first retirement of a
// key has an effect.
func (t *trustChecker) retireKey(seq uint64, k events.KeyRetirement) {
	if t.noKeys {
		return
	}
	if !signing.CheckRetirement(t.checkpointKeys, k) {
		t.rep.addFinding(CodeKeyVouch, seq, "vouch", "receipt key %.32q is not retired by the checkpoint key", k.KeyID)
		return
	}
	if _, already := t.retired[k.KeyID]; !already {
		t.retired[k.KeyID] = retirement{seq, k}
	}
}

// verifySignature checks a signature. If no checkpoint key vouches for its key yet, it waits.
func (t *trustChecker) verifySignature(c signatureClaim) {
	if c.masked {
		t.rep.SignaturesUnchecked++
		return
	}
	if t.noKeys || c.keyID == "" { // a claim without a key id is reported already
		return
	}
	codes := signatureCodes[c.kind]
	pub, vouched := t.vouchedKeys[c.keyID]
	switch {
	case !vouched && t.pendingCount < maxPending:
		t.pendingCount++
		t.pending[c.keyID] = append(t.pending[c.keyID], c)
		return
	case !vouched:
		t.unknownKey(c)
		return
	case c.pub == nil:
		kid, err := t.vouchedKeys.VerifyRecord(c.value, c.body)
		c.valid = err == nil && kid == c.keyID
	case !pub.Equal(c.pub):
		c.valid = false
	}
	if !c.valid {
		t.rep.addFinding(codes.forged, c.seq, signatureField, "the %s is not what key %.32q signed", codes.name, c.keyID)
		return
	}
	if r, retired := t.retired[c.keyID]; retired && r.isBefore(c.seq, c.seconds) {
		t.rep.addFinding(codes.retired, c.seq, signatureField, "signed with key %.32q, which was retired before, %s", c.keyID, r)
	}
}

// isBefore reports whether a key was retired before a record. If the position of the
// retirement in the log is not known, its own time decides.
func (r retirement) isBefore(seq uint64, seconds int64) bool {
	if r.seq == 0 {
		return seconds > r.record.RetiredAt.Unix()
	}
	return seq > r.seq
}

func (r retirement) String() string {
	if r.seq == 0 {
		return "on " + r.record.RetiredAt.String() + " by the clock of its signer: the log, whose order counts, is not here"
	}
	return "at sequence " + strconv.FormatUint(r.seq, 10)
}

func (t *trustChecker) unknownKey(c signatureClaim) {
	t.rep.addFinding(signatureCodes[c.kind].unknown, c.seq, signatureField, "signed with key %.32q, which nothing in the log vouches for", c.keyID)
}

// reportOpen reports the signatures and receipts that are still open after the last row.
func (t *trustChecker) reportOpen() {
	var open []signatureClaim
	for _, list := range t.pending {
		open = append(open, list...)
	}
	slices.SortFunc(open, func(a, b signatureClaim) int { return cmp.Compare(a.seq, b.seq) })
	for _, c := range open {
		t.unknownKey(c)
	}
	for _, hash := range slices.Sorted(maps.Keys(t.receipts)) {
		text := "no decision names the receipt with hash %.24s"
		if t.rep.Expired > 0 {
			text += "; it may be one of those whose text expired"
		}
		t.rep.addFinding(CodeReceiptLost, 0, "receipt", text, hash)
	}
}
