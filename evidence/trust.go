package evidence

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
	// maxPending is how many records may wait for their key to turn up later in
	// the log; those beyond are reported as signed with an unknown key.
	maxPending = 10_000
	// requestGeneration is how many requests are remembered twice over: a decision
	// follows its request within a few messages, and a publisher that invents
	// requests must not fill the memory.
	requestGeneration = 1 << 17
)

// trust checks in the log's order what several records say together: whose
// signatures count, that a request stands before its one decision, and the
// receipts that were handed in.
type trust struct {
	rep      *Report
	known    note.Verifiers // checkpoint keys
	blind    bool           // there are none
	keys     signing.KeySet // vouched for
	hints    signing.KeySet // what to try signatures with before anybody vouched for it
	retired  map[string]retirement
	pending  map[string][]claim // by key id
	waiting  int
	requests [2]map[SessionKey]request // by (tenant, decision id); newer first
	receipts map[string]string         // wanted, by hash
	judged   uint64                    // decisions before this sequence may have their request outside the rows
}

// request is what is remembered of a recorded request.
type request struct {
	digest  secretDigest
	keyed   bool // digest is known
	decided bool
}

// retirement is when a key stopped to count.
type retirement struct {
	seq    uint64 // of its record; 0: not known
	record events.KeyRetirement
}

// newTrust trusts receipt keys that one of known vouches for. Without any known
// key no signature is judged; the report says so once, elsewhere.
func newTrust(rep *Report, known []note.Verifier, keys, hints []events.KeyRecord, receipts []string) *trust {
	t := &trust{rep: rep, known: note.VerifierList(known...), blind: len(known) == 0, keys: signing.KeySet{}, hints: signing.KeySet{},
		retired: map[string]retirement{}, pending: map[string][]claim{}, requests: [2]map[SessionKey]request{{}, {}}, receipts: map[string]string{}}
	for _, k := range slices.Concat(hints, keys) {
		t.hint(k)
	}
	for _, k := range keys {
		t.key(0, k)
	}
	for _, r := range receipts {
		hash := digest.Plain([]byte(r))
		if _, twice := t.receipts[hash]; twice {
			rep.add(CodeReceiptReplayed, 0, "receipt", "the receipt with hash %.24s was handed in twice", hash)
		}
		t.receipts[hash] = r
	}
	return t
}

// records verifies signatures with the keys that are known so far, vouched for
// or not.
func (t *trust) records() signing.RecordVerifier { return signing.RecordVerifier{Keys: t.hints} }

// hint takes a key to try signatures with. Two keys of one id are for the
// vouched one to decide.
func (t *trust) hint(k events.KeyRecord) {
	pub, err := signing.ReceiptKey(k)
	if err != nil {
		return
	}
	if other, taken := t.hints[k.KeyID]; taken && !other.Equal(pub) {
		pub = ed25519.PublicKey{}
	}
	t.hints[k.KeyID] = pub
}

// row takes what an examined row means for others.
func (t *trust) row(x *Examined) {
	f := &x.fact
	switch f.kind {
	case factRequest:
		t.remember(SessionKey{x.key.Tenant, f.id}, request{digest: f.digest, keyed: f.keyed})
	case factDecision:
		t.rep.Decisions++
		t.claim(f.claim)
		t.request(x)
		t.receipt(x.seq, f)
	case factApproval:
		t.rep.Approvals++
		t.claim(f.claim)
	case factKey:
		var k events.KeyRecord
		if json.Unmarshal(f.body, &k) == nil && k.Vouch != "" {
			t.key(x.seq, k)
		}
	case factRetired:
		k, err := events.DecodeRecord[events.KeyRetirement](f.body)
		if err != nil {
			k = events.KeyRetirement{}
		}
		t.retire(x.seq, k)
	}
}

func (t *trust) remember(k SessionKey, r request) {
	if len(t.requests[0]) >= requestGeneration {
		t.requests[0], t.requests[1] = map[SessionKey]request{}, t.requests[0]
	}
	t.requests[0][k] = r
}

// key takes a key that the checkpoint key vouches for and settles the claims
// that waited for it.
func (t *trust) key(seq uint64, k events.KeyRecord) {
	if t.blind {
		return
	}
	if !signing.CheckVouch(t.known, k) {
		t.rep.add(CodeKeyVouch, seq, "vouch", "receipt key %.32q is not vouched for by the checkpoint key", k.KeyID)
		return
	}
	pub, err := signing.ReceiptKey(k)
	if err != nil {
		return
	}
	t.keys[k.KeyID], t.hints[k.KeyID] = pub, pub
	for _, c := range t.pending[k.KeyID] {
		t.waiting--
		t.claim(c)
	}
	delete(t.pending, k.KeyID)
}

// retire takes a key back from the record's place in the log on; the first one
// counts.
func (t *trust) retire(seq uint64, k events.KeyRetirement) {
	if t.blind {
		return
	}
	if !signing.CheckRetirement(t.known, k) {
		t.rep.add(CodeKeyVouch, seq, "vouch", "receipt key %.32q is not retired by the checkpoint key", k.KeyID)
		return
	}
	if _, already := t.retired[k.KeyID]; !already {
		t.retired[k.KeyID] = retirement{seq, k}
	}
}

// claim judges a signature. One by a key that nobody vouches for yet waits.
func (t *trust) claim(c claim) {
	if c.masked {
		t.rep.Unsigned++
		return
	}
	if t.blind || c.kid == "" { // or reported already
		return
	}
	codes := claimCodes[c.what]
	pub, vouched := t.keys[c.kid]
	switch {
	case !vouched && t.waiting < maxPending:
		t.waiting++
		t.pending[c.kid] = append(t.pending[c.kid], c)
		return
	case !vouched:
		t.unknownKey(c)
		return
	case c.pub == nil:
		kid, err := t.keys.VerifyRecord(c.value, c.body)
		c.good = err == nil && kid == c.kid
	case !pub.Equal(c.pub):
		c.good = false
	}
	if !c.good {
		t.rep.add(codes.forged, c.seq, signatureField, "the %s is not what key %.32q signed", codes.name, c.kid)
		return
	}
	if r, retired := t.retired[c.kid]; retired && r.before(c.seq, c.seconds) {
		t.rep.add(codes.retired, c.seq, signatureField, "signed with key %.32q, which was retired before, %s", c.kid, r)
	}
}

// before reports whether a key was retired before a record. Where the place of
// the retirement in the log is not known, its own time counts.
func (r retirement) before(seq uint64, seconds int64) bool {
	if r.seq == 0 {
		return seconds > r.record.RetiredAt.Unix()
	}
	return seq > r.seq
}

func (r retirement) String() string {
	if r.seq == 0 {
		return "on " + r.record.RetiredAt.String()
	}
	return "at sequence " + strconv.FormatUint(r.seq, 10)
}

func (t *trust) unknownKey(c claim) {
	t.rep.add(claimCodes[c.what].unknown, c.seq, signatureField, "signed with key %.32q, which nothing in the log vouches for", c.kid)
}

// finish reports what is still open when all rows were seen.
func (t *trust) finish() {
	var open []claim
	for _, list := range t.pending {
		open = append(open, list...)
	}
	slices.SortFunc(open, func(a, b claim) int { return cmp.Compare(a.seq, b.seq) })
	for _, c := range open {
		t.unknownKey(c)
	}
	for _, hash := range slices.Sorted(maps.Keys(t.receipts)) {
		text := "no decision names the receipt with hash %.24s"
		if t.rep.Expired > 0 {
			text += "; it may be one of those whose text expired"
		}
		t.rep.add(CodeReceiptLost, 0, "receipt", text, hash)
	}
}
