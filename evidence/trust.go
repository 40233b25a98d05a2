package evidence

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/signing"
)

const (
	// maxPending is how many decisions may wait for their key to turn up later in
	// the log; those beyond are reported as signed with an unknown key.
	maxPending = 10_000
	// requestGeneration is how many requests are remembered twice over: a decision
	// follows its request within a few messages, and a publisher that invents
	// requests must not fill the memory.
	requestGeneration = 1 << 17
)

// trust checks decisions: signature, vouched key, request before decision, and
// the receipts that were handed in.
type trust struct {
	rep      *Report
	known    note.Verifiers // checkpoint keys
	blind    bool           // there are none
	keys     signing.KeySet
	records  signing.RecordVerifier       // of keys
	retired  map[string]uint64            // by key id: the sequence from which on it counts no more
	pending  map[string][]pendingDecision // by key id
	waiting  int
	requests [2]map[SessionKey]string // (tenant, decision id) -> digest of the request; newer first
	receipts map[string]string        // wanted, by hash
}

type pendingDecision struct {
	seq       uint64
	signature string
	body      []byte
}

// newTrust trusts receipt keys that one of known vouches for. Without any known
// key no signature is judged; the report says so once, elsewhere.
func newTrust(rep *Report, known []note.Verifier, keys []events.KeyRecord, receipts []string) *trust {
	t := &trust{rep: rep, known: note.VerifierList(known...), blind: len(known) == 0, keys: signing.KeySet{}, retired: map[string]uint64{}, pending: map[string][]pendingDecision{},
		requests: [2]map[SessionKey]string{{}, {}}, receipts: map[string]string{}}
	t.records.Keys = t.keys
	for _, k := range keys {
		t.key(0, k)
	}
	for _, r := range receipts {
		t.receipts[digest.Plain([]byte(r))] = r
	}
	return t
}

func (t *trust) row(rec Record, sc scope) {
	switch {
	case sc.kind == KindRequest:
		if id := headerValue(rec.Headers, events.HeaderDecisionID); id != "" {
			t.remember(SessionKey{rec.Tenant, id}, rec.BodyDigest)
		}
	case rec.Kind == KindDecision:
		t.decision(rec)
	case sc.kind == KindDecision:
		t.rep.add(CodeDecisionRecord, rec.Seq, "kind", "what stands on a subject of decisions could not be parsed")
	case rec.Kind == KindControl && sc.member == events.ControlKey:
		var k events.KeyRecord
		if json.Unmarshal(rec.Body, &k) == nil && k.Vouch != "" {
			t.key(rec.Seq, k)
		}
	case rec.Kind == KindControl && sc.member == events.ControlKeyRetired:
		t.retire(rec)
	}
}

// retire takes a key back from the record's place in the log on; the first one
// counts.
func (t *trust) retire(rec Record) {
	if t.blind {
		return
	}
	k, err := events.DecodeRecord[events.KeyRetirement](rec.Body)
	if err != nil || !signing.CheckRetirement(t.known, k) {
		t.rep.add(CodeKeyVouch, rec.Seq, "vouch", "receipt key %.32q is not retired by the checkpoint key", k.KeyID)
		return
	}
	if _, already := t.retired[k.KeyID]; !already {
		t.retired[k.KeyID] = rec.Seq
	}
}

func (t *trust) remember(k SessionKey, digest string) {
	if len(t.requests[0]) >= requestGeneration {
		t.requests[0], t.requests[1] = map[SessionKey]string{}, t.requests[0]
	}
	t.requests[0][k] = digest
}

// key takes a key that the checkpoint key vouches for and settles the decisions
// that waited for it.
func (t *trust) key(seq uint64, k events.KeyRecord) {
	if t.blind {
		return
	}
	if !CheckVouch(t.known, k) {
		t.rep.add(CodeKeyVouch, seq, "vouch", "receipt key %.32q is not vouched for by the checkpoint key", k.KeyID)
		return
	}
	pub, err := receiptKey(k)
	if err != nil {
		return
	}
	t.keys[k.KeyID] = pub
	for _, d := range t.pending[k.KeyID] {
		t.waiting--
		t.signature(d)
	}
	delete(t.pending, k.KeyID)
}

func (t *trust) decision(rec Record) {
	t.rep.Decisions++
	d, err := events.DecodeRecord[events.Decision](rec.Body)
	if err != nil {
		t.rep.add(CodeDecisionRecord, rec.Seq, "body", "not a decision record")
		return
	}
	if tokenValue(d.Tenant) != rec.Tenant || tokenValue(d.Session) != rec.Session {
		t.rep.add(CodeDecisionRecord, rec.Seq, "body", "tenant or session are not those of its subject")
	}
	if sig := headerValue(rec.Headers, events.HeaderSignature); sig == "" {
		t.rep.add(CodeDecisionUnsigned, rec.Seq, "headers/"+events.HeaderSignature, "decision %.40q has no signature", d.DecisionID)
	} else {
		t.signature(pendingDecision{rec.Seq, sig, rec.Body})
	}
	t.request(rec, d)
	t.receipt(rec.Seq, d)
}

func (t *trust) signature(d pendingDecision) {
	if t.blind {
		return
	}
	kid, err := t.records.Verify(d.signature, d.body)
	at, retired := t.retired[kid]
	switch {
	case err == nil && retired && d.seq > at:
		t.rep.add(CodeDecisionRetired, d.seq, "headers/"+events.HeaderSignature, "signed with key %.32q, which was retired at sequence %d", kid, at)
	case err == nil:
	case errors.Is(err, signing.ErrUnknownKey) && t.waiting < maxPending:
		t.waiting++
		t.pending[kid] = append(t.pending[kid], d)
	case errors.Is(err, signing.ErrUnknownKey):
		t.unknownKey(d.seq, kid)
	default:
		t.rep.add(CodeDecisionSignature, d.seq, "headers/"+events.HeaderSignature, "the decision is not what key %.32q signed", kid)
	}
}

func (t *trust) unknownKey(seq uint64, kid string) {
	t.rep.add(CodeDecisionKey, seq, "headers/"+events.HeaderSignature, "signed with key %.32q, which nothing in the log vouches for", kid)
}

// request checks that the decision's request stands before it in the log, and,
// where both digests are keyed, that it is the one that was decided.
func (t *trust) request(rec Record, d events.Decision) {
	key := SessionKey{rec.Tenant, d.DecisionID}
	got, ok := t.requests[0][key]
	if !ok {
		got, ok = t.requests[1][key]
	}
	switch {
	case !ok:
		t.rep.add(CodeDecisionRequest, rec.Seq, "body/decision_id", "no request before it names decision %.40q", d.DecisionID)
	case hexDigest(got, digest.PrefixKeyed) && hexDigest(d.RequestDigest, digest.PrefixKeyed) && got != d.RequestDigest:
		t.rep.add(CodeRequestDigest, rec.Seq, "body/request_digest", "the recorded request of decision %.40q has another digest", d.DecisionID)
	}
}

// receipt checks a handed-in receipt against the decision that names it.
func (t *trust) receipt(seq uint64, d events.Decision) {
	token, wanted := t.receipts[d.ReceiptHash]
	if !wanted {
		return
	}
	delete(t.receipts, d.ReceiptHash)
	payload, kid, err := t.keys.Verify(signing.TypeReceipt, token)
	if err != nil {
		t.rep.add(CodeReceipt, seq, "receipt", "the receipt does not verify with key %.32q", kid)
		return
	}
	var claims struct {
		DecisionID string         `json:"decision_id"`
		Tenant     string         `json:"tenant"`
		Verdict    events.Verdict `json:"verdict"`
	}
	if json.Unmarshal(payload, &claims) != nil || claims.DecisionID != d.DecisionID || claims.Tenant != d.Tenant || claims.Verdict != d.Verdict {
		t.rep.add(CodeReceipt, seq, "receipt", "the receipt is for another decision, tenant or verdict")
	}
}

// finish reports what is still open when all rows were seen.
func (t *trust) finish() {
	var open []pendingDecision
	for kid, list := range t.pending {
		for _, d := range list {
			d.signature = kid
			open = append(open, d)
		}
	}
	slices.SortFunc(open, func(a, b pendingDecision) int { return cmp.Compare(a.seq, b.seq) })
	for _, d := range open {
		t.unknownKey(d.seq, d.signature)
	}
	for _, hash := range slices.Sorted(maps.Keys(t.receipts)) {
		t.rep.add(CodeReceiptLost, 0, "receipt", "no decision names the receipt with hash %.24s", hash)
	}
}
