package evidence

import (
	"cmp"
	"slices"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/subject"
)

// The text of a record may expire: its row then has an empty text, and stays what
// it was in the tree and in its session's chain. That is so only of rows that an
// events.Expiry names which the checkpoint key signed, and which is evidence
// itself, behind them in the same log, with its text.

// ExpiryRecord is the evidence of an events.Expiry: its row and, where it is not
// among the rows that are verified, the proof that it is in the newest checkpoint.
type ExpiryRecord struct {
	Row   Row
	Proof tlog.RecordProof
}

// Expired reports whether a row has no text: then only its columns can be read.
func (r Row) Expired() bool { return r.Record == "" }

// Expiry reads an expiry record that counts: signed by a known key, of this shard,
// and about records before it.
func (x ExpiryRecord) Expiry(shard string, space subject.Space, known note.Verifiers) (events.Expiry, bool) {
	var none events.Expiry
	if x.Row.Shard != shard || HashRecord([]byte(x.Row.Record)) != x.Row.RecordHash {
		return none, false
	}
	rec, err := ParseRecord([]byte(x.Row.Record))
	if err != nil || rec.Seq != x.Row.Seq || rec.Shard != shard || rec.Kind != KindControl {
		return none, false
	}
	if sc := scopeOf(space, rec.Subject); sc.kind != KindControl || sc.member != events.ControlExpiry {
		return none, false
	}
	e, err := events.DecodeRecord[events.Expiry](rec.Body)
	if err != nil || e.Shard != shard || e.LastSequence() >= rec.Seq || !signing.CheckExpiry(known, e) {
		return none, false
	}
	return e, true
}

// expiryIndex are the expiry records that count.
type expiryIndex struct {
	records    []expiryState
	spans      []expirySpan // by their first sequence
	greatestTo []uint64     // reach[i] is the greatest sequence of spans[:i+1]
	bySeq      map[uint64]int
}

type expiryState struct {
	seq       uint64
	hash      [32]byte
	tenant    string
	policy    string
	confirmed bool // it is in the log
	used      int  // how many rows rest on it
}

// expirySpan is a stretch of sequences; index is the place of the first one in its
// session.
type expirySpan struct {
	from, to, index uint64
	session         string
	record          int
}

func openExpiries(o VerifyOptions) *expiryIndex {
	e := &expiryIndex{bySeq: map[uint64]int{}}
	known := note.VerifierList(o.Keys...)
	for _, x := range o.Expiries {
		got, ok := x.Expiry(o.Shard, o.Space, known)
		if _, twice := e.bySeq[x.Row.Seq]; !ok || twice || got.State != events.ErasureBegun {
			continue // it explains nothing
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

// findSpan finds the span that names a sequence; of several, one whose session is the
// row's.
func (e *expiryIndex) findSpan(key SessionID, seq uint64) (found *expirySpan) {
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

// confirmRow takes an intact row of the log.
func (e *expiryIndex) confirmRow(x *Examined) {
	if i, known := e.bySeq[x.seq]; known && !x.expired {
		r := &e.records[i]
		r.confirmed = r.confirmed || r.hash == x.storedHash && r.hash == x.textHash
	}
}

// confirmProved confirms the records that are shown to be in a signed tree.
func (e *expiryIndex) confirmProved(given []ExpiryRecord, signed Checkpoint) {
	for _, x := range given {
		if x.Proof == nil || !CheckInclusion(x.Proof, signed.Size, signed.Root, x.Row.Seq, x.Row.RecordHash) {
			continue
		}
		if i, known := e.bySeq[x.Row.Seq]; known && e.records[i].hash == x.Row.RecordHash {
			e.records[i].confirmed = true
		}
	}
}

// resolveExpired judges a row without a text, and gives it its place in its session.
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
	if key := (SessionID{r.tenant, span.session}); x.key != key {
		v.rep.addFinding(CodeColumn, x.seq, "session", "the columns hold tenant %.64q and session %.64q, the expiry record %.64q and %.64q", x.key.Tenant, x.key.Session, key.Tenant, key.Session)
		x.key = key
	}
	x.place, x.expiry = chainPlace{indexed: true, index: span.index + x.seq - span.from}, r.seq
}

// chainExpired follows a session's chain over a row without a text: what it names
// as the one before nobody can read any more, but the one behind names it.
func (v *Verifier) chainExpired(x *Examined) {
	head, known := v.heads[x.key]
	next := Head{Index: head.Index + 1, Hash: x.storedHash}
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

// reportUnconfirmed reports the expiry records that rows rest on and that are not in the log.
func (e *expiryIndex) reportUnconfirmed(rep *Report) {
	for _, r := range e.records {
		if r.used > 0 && !r.confirmed {
			rep.addFinding(CodeTextMissing, r.seq, "record", "the texts of %d records are missing, and the expiry record that names them is not shown to be in the log", r.used)
		}
	}
}

// examineExpired checks what can be checked of a row without a text.
func (e *Examiner) examineExpired(r *Row) {
	e.result.expired, e.result.isControl = true, r.Kind == KindControl
	sc := e.scopeOf([]byte(r.Subject))
	if r.Kind != sc.kind && r.Kind != KindUnparseable {
		e.addFinding(CodeSubject, "kind", "kind %.20q on a subject of kind %q", r.Kind, sc.kind)
		return
	}
	if r.Tenant != sc.key.Tenant {
		e.addFinding(CodeSubject, "tenant", "the column says %.64q, its subject %.64q", r.Tenant, sc.key.Tenant)
	}
	if sc.kind != KindApproval && r.Session != sc.key.Session { // an approval's subject does not say
		e.addFinding(CodeSubject, "session", "the column says %.64q, its subject %.64q", r.Session, sc.key.Session)
	}
}
