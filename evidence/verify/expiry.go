package verify

import (
	"cmp"
	"slices"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/internal/scope"
	"github.com/countersign-dev/countersign/evidence/tree"
)

// The text of a record may expire. Its row then has an empty text, and keeps its place in
// the tree and in its session's chain. Verification accepts a row without a text only if an
// events.Expiry names the row. The checkpoint key must have signed that record, and it must
// itself be evidence, with its text, later in the same log.

// ExpiryRecord is the evidence of an events.Expiry: its row and, if that row is not among
// the verified rows, the proof that it is in the newest checkpoint.
type ExpiryRecord struct {
	Row   evidence.Row
	Proof tlog.RecordProof
}

// Expiry decodes the expiry record. It reports false unless the record is signed by a known
// key, is of this shard, and names only records before it.
func (x ExpiryRecord) Expiry(shard string, space subject.Space, known note.Verifiers) (events.Expiry, bool) {
	var none events.Expiry
	if x.Row.Shard != shard || evidence.HashRecord([]byte(x.Row.Record)) != x.Row.RecordHash {
		return none, false
	}
	rec, err := evidence.ParseRecord([]byte(x.Row.Record))
	if err != nil || rec.Seq != x.Row.Seq || rec.Shard != shard || rec.Kind != evidence.KindControl {
		return none, false
	}
	if sc := scope.Of(space, rec.Subject); sc.Kind != evidence.KindControl || sc.ControlKind != events.ControlExpiry {
		return none, false
	}
	e, err := events.DecodeRecord[events.Expiry](rec.Body)
	if err != nil || e.Shard != shard || e.LastSequence() >= rec.Seq || !signing.CheckExpiry(known, e) {
		return none, false
	}
	return e, true
}

// expiryIndex holds the valid expiry records of a verification.
type expiryIndex struct {
	records    []expiryState
	spans      []expirySpan // by their first sequence
	greatestTo []uint64     // greatestTo[i] is the greatest to of spans[:i+1]
	bySeq      map[uint64]int
}

type expiryState struct {
	seq       uint64
	hash      [32]byte
	tenant    string
	policy    string
	confirmed bool // the record is shown to be in the log
	used      int  // number of rows that this record explains
}

// expirySpan is a range of sequences of one session; index is the session index of the
// first one.
type expirySpan struct {
	from, to, index uint64
	session         string
	record          int
}

func openExpiries(o Options) *expiryIndex {
	e := &expiryIndex{bySeq: map[uint64]int{}}
	known := note.VerifierList(o.Keys...)
	for _, x := range o.Expiries {
		got, ok := x.Expiry(o.Shard, o.Space, known)
		if _, twice := e.bySeq[x.Row.Seq]; !ok || twice || got.State != events.ErasureBegun {
			continue // it explains no missing text
		}
		for _, s := range got.Sessions {
			index := s.Index
			for _, span := range s.Sequences {
				e.spans = append(e.spans, expirySpan{span[0], span[1], index, s.Session, len(e.records)})
				index += span[1] - span[0] + 1
			}
		}
		e.bySeq[x.Row.Seq] = len(e.records)
		e.records = append(e.records, expiryState{seq: x.Row.Seq, hash: x.Row.RecordHash, tenant: got.Tenant, policy: got.Policy})
	}
	slices.SortFunc(e.spans, func(a, b expirySpan) int { return cmp.Compare(a.from, b.from) })
	for i, s := range e.spans {
		e.greatestTo = append(e.greatestTo, s.to)
		if i > 0 {
			e.greatestTo[i] = max(e.greatestTo[i-1], s.to)
		}
	}
	return e
}

// findSpan returns the span that contains a sequence. Of several it prefers one of the
// row's own session.
func (e *expiryIndex) findSpan(key events.SessionID, seq uint64) (found *expirySpan) {
	i, exact := slices.BinarySearchFunc(e.spans, seq, func(s expirySpan, seq uint64) int { return cmp.Compare(s.from, seq) })
	for exact && i+1 < len(e.spans) && e.spans[i+1].from == seq {
		i++
	}
	if !exact {
		i--
	}
	for ; i >= 0 && e.greatestTo[i] >= seq; i-- {
		if s := &e.spans[i]; s.to >= seq {
			if found = s; s.session == key.Session && e.records[s.record].tenant == key.Tenant {
				break
			}
		}
	}
	return found
}

// confirmRow confirms the expiry record in an intact row of the log.
func (e *expiryIndex) confirmRow(x *Examined) {
	if i, known := e.bySeq[x.seq]; known && !x.expired {
		r := &e.records[i]
		r.confirmed = r.confirmed || r.hash == x.storedHash && r.hash == x.textHash
	}
}

// confirmProved confirms the expiry records that are proved to be in a signed tree.
func (e *expiryIndex) confirmProved(given []ExpiryRecord, signed tree.Checkpoint) {
	for _, x := range given {
		if x.Proof == nil || !tree.CheckInclusion(x.Proof, signed.Size, signed.Root, x.Row.Seq, x.Row.RecordHash) {
			continue
		}
		if i, known := e.bySeq[x.Row.Seq]; known && e.records[i].hash == x.Row.RecordHash {
			e.records[i].confirmed = true
		}
	}
}

// resolveExpired checks that an expiry record explains a row without a text, and sets the
// row's place in its session.
func (v *Verifier) resolveExpired(x *Examined) {
	if !x.expired {
		return
	}
	span := v.expiries.findSpan(x.key, x.seq)
	if span == nil || x.isControl {
		v.rep.addFinding(CodeTextMissing, x.seq, "record", "the text is missing, and no expiry record of the log that the checkpoint key signed names it")
		return
	}
	r := &v.expiries.records[span.record]
	r.used++
	v.rep.Expired++
	if v.rep.ExpiredBy == nil {
		v.rep.ExpiredBy = map[string]int{}
	}
	v.rep.ExpiredBy[r.policy]++
	if key := (events.SessionID{Tenant: r.tenant, Session: span.session}); x.key != key {
		v.rep.addFinding(CodeColumn, x.seq, "session", "the columns hold tenant %.64q and session %.64q, the expiry record %.64q and %.64q", x.key.Tenant, x.key.Session, key.Tenant, key.Session)
		x.key = key
	}
	x.place, x.expiry = chainPlace{indexed: true, index: span.index + x.seq - span.from}, r.seq
}

// chainExpired continues a session's chain over a row without a text. Its previous hash
// cannot be read any more, but the next record of the session names its hash.
func (v *Verifier) chainExpired(x *Examined) {
	head, known := v.heads[x.key]
	next := evidence.Head{Index: head.Index + 1, Hash: x.storedHash}
	if x.place.indexed {
		if (known || v.opts.Part == nil) && x.place.index != next.Index {
			v.rep.addFinding(CodeChain, x.seq, "session_index", "session %.64q: index %d follows %d", x.key.Session, x.place.index, head.Index)
		}
		next.Index = x.place.index
	}
	if x.key.Session != "" {
		v.heads[x.key] = next
	}
}

// reportUnconfirmed reports the expiry records that explain rows but are not shown to be in
// the log.
func (e *expiryIndex) reportUnconfirmed(rep *Report) {
	for _, r := range e.records {
		if r.used > 0 && !r.confirmed {
			rep.addFinding(CodeTextMissing, r.seq, "record", "the texts of %d records are missing, and the expiry record that names them is not shown to be in the log", r.used)
		}
	}
}

// examineExpired checks the columns of a row without a text against its subject.
func (e *Examiner) examineExpired(r *evidence.Row) {
	e.result.expired, e.result.isControl = true, r.Kind == evidence.KindControl
	sc := e.scopeOf([]byte(r.Subject))
	if r.Kind != sc.Kind && r.Kind != evidence.KindUnparseable {
		e.addFinding(CodeSubject, "kind", "kind %.20q on a subject of kind %q", r.Kind, sc.Kind)
		return
	}
	if r.Tenant != sc.Key.Tenant {
		e.addFinding(CodeSubject, "tenant", "the column says %.64q, its subject %.64q", r.Tenant, sc.Key.Tenant)
	}
	if sc.Kind != evidence.KindApproval && r.Session != sc.Key.Session { // the subject of an approval names no session
		e.addFinding(CodeSubject, "session", "the column says %.64q, its subject %.64q", r.Session, sc.Key.Session)
	}
}
