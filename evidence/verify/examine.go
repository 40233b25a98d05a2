package verify

import (
	"bytes"
	"crypto/sha256"
	"maps"
	"strconv"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/internal/scope"
	"github.com/countersign-dev/countersign/evidence/internal/view"
	"github.com/countersign-dev/countersign/evidence/tree"
)

// Examined is the result of checking one row alone, and what the later check against its
// neighbours needs. It does not hold the row's text.
type Examined struct {
	seq             uint64
	foreignShard    string // the shard that the row names, if it is another one
	storedHash      [32]byte
	textHash        [32]byte // hash of the text
	leaf            tlog.Hash
	key             events.SessionID // the session of the chain that the row belongs to
	readable        bool             // the text is a record
	place           chainPlace
	fact            recordFact
	findings        []Finding
	comparedWithLog bool   // CompareLog was called
	expired         bool   // the row has no text
	expiry          uint64 // sequence of the expiry record that proves why
	isControl       bool   // the expired record is a control record
}

// Key is the session that the row belongs to, as its text says, or as its columns say if
// the text cannot be read.
func (x *Examined) Key() events.SessionID { return x.key }

// SessionIndex is the row's index in its session's chain, or nil if it has none. The index
// of an expired row is known only after Verifier.Add.
func (x *Examined) SessionIndex() *uint64 {
	if !x.place.indexed {
		return nil
	}
	index := x.place.index
	return &index
}

// Expiry is the sequence of the expiry record that proves why the row has no text. It does
// not rely on the row's own column, and is known only after Verifier.Add.
func (x *Examined) Expiry() uint64 { return x.expiry }

// Examiner does the part of verification that needs only one row. An Examiner is for one
// goroutine; several of them may work at the same time.
type Examiner struct {
	shard          string
	space          subject.Space
	noKeys         bool
	recordVerifier signing.RecordVerifier
	wantedReceipts map[string]string      // receipts that were handed in, by hash
	scopes         map[string]scope.Scope // scopes of recent subjects
	buf            []byte                 // hash prefix and the row's text
	result         *Examined
}

// Examiner makes an examiner for this verification. Of the keys that signatures may name it
// knows only those in the options (KeyHints), not those that records of the log introduce.
func (v *Verifier) Examiner() *Examiner {
	return v.newExaminer(maps.Clone(v.trust.hints))
}

func (v *Verifier) newExaminer(keys signing.KeySet) *Examiner {
	return &Examiner{shard: v.opts.Shard, space: v.opts.Space, noKeys: v.trust.noKeys, recordVerifier: signing.RecordVerifier{Keys: keys},
		wantedReceipts: maps.Clone(v.trust.receipts), scopes: map[string]scope.Scope{}}
}

// Examine checks one row and overwrites x with the result. Of r it keeps only the strings
// tenant and session.
func (e *Examiner) Examine(r *evidence.Row, x *Examined) {
	*x = Examined{seq: r.Seq, storedHash: r.RecordHash, key: events.SessionID{Tenant: r.Tenant, Session: r.Session}}
	if r.Shard != e.shard {
		x.foreignShard = r.Shard
		return
	}
	e.result = x
	x.leaf = tree.LeafHash(r.RecordHash)
	if r.Expired() {
		e.examineExpired(r)
		return
	}
	e.buf = append(append(e.buf[:0], evidence.HashPrefix...), r.Record...)
	if x.textHash = sha256.Sum256(e.buf); x.textHash != r.RecordHash {
		e.addFinding(CodeHash, "record_hash", "the text hashes to %x, stored is %x", shortHash(x.textHash), shortHash(r.RecordHash))
	}
	text := e.buf[len(evidence.HashPrefix):]
	v, ok := view.ScanRecord(text)
	if !ok {
		rec, err := evidence.ParseRecord(text)
		if err != nil {
			e.addFinding(CodeNotCanonical, "record", "%v", err)
			return
		}
		v = view.OfRecord(rec)
	}
	x.readable = true
	e.checkColumns(r, &v)
	x.place = chainPosition(&v)
	sc := e.scopeOf(v.Subject)
	e.checkSubject(&v, sc)
	e.checkBody(&v)
	e.checkRedactions(text, &v)
	e.collectFacts(&v, sc)
}

// addFinding adds a finding about the current row.
func (e *Examiner) addFinding(code Code, field, format string, args ...any) {
	e.result.findings = append(e.result.findings, newFinding(code, e.result.seq, field, format, args...))
}

func shortHash(h [32]byte) []byte { return h[:8] }

func (e *Examiner) checkColumns(r *evidence.Row, v *view.Record) {
	for _, col := range [...]struct {
		name, row string
		rec       []byte
	}{
		{"tenant", r.Tenant, v.Tenant},
		{"session", r.Session, v.Session},
		{"kind", r.Kind, v.Kind},
		{"subject", r.Subject, v.Subject},
		{"body_digest", r.BodyDigest, v.BodyDigest},
		{"shard", r.Shard, v.Shard},
	} {
		if col.row != string(col.rec) {
			e.addFinding(CodeColumn, col.name, "the column holds %.80q, the record %.80q", col.row, col.rec)
		}
	}
	if r.Seq != v.Seq {
		e.addFinding(CodeColumn, "seq", "the column holds %q, the record %q", strconv.FormatUint(r.Seq, 10), strconv.FormatUint(v.Seq, 10))
	}
	if !r.BrokerTime.Equal(v.BrokerTime) {
		e.addFinding(CodeColumn, "broker_time", "the column holds %q, the record %q", events.At(r.BrokerTime), events.At(v.BrokerTime))
	}
	e.result.key = events.SessionID{Tenant: r.Tenant, Session: r.Session}
	if r.Tenant != string(v.Tenant) || r.Session != string(v.Session) {
		e.result.key = events.SessionID{Tenant: string(v.Tenant), Session: string(v.Session)}
	}
}

// scopeOf caches its results, because the records of a session share few subjects.
func (e *Examiner) scopeOf(subj []byte) scope.Scope {
	if sc, known := e.scopes[string(subj)]; known {
		return sc
	}
	if len(e.scopes) >= scope.MaxCached {
		clear(e.scopes)
	}
	sc := scope.Of(e.space, string(subj))
	e.scopes[string(subj)] = sc
	return sc
}

// checkSubject checks that kind, tenant, session and the severity of a finding agree with the
// subject: a service may publish findings of some severities only.
func (e *Examiner) checkSubject(v *view.Record, sc scope.Scope) {
	kind := string(v.Kind)
	if kind != sc.Kind && kind != evidence.KindUnparseable {
		e.addFinding(CodeSubject, "kind", "kind %.20q on a subject of kind %q", kind, sc.Kind)
		return
	}
	want := sc.Key
	if kind == evidence.KindApproval {
		want.Session = scope.RecordName(approvalOf(v.Body).Session)
	}
	if string(v.Tenant) != want.Tenant {
		e.addFinding(CodeSubject, "tenant", "the record says %.64q, its subject %.64q", v.Tenant, want.Tenant)
	}
	if string(v.Session) != want.Session && !(kind == evidence.KindApproval && redactedAt(v.Redactions, "/body/session")) {
		e.addFinding(CodeSubject, "session", "the record says %.64q, its subject %.64q", v.Session, want.Session)
	}
	if kind != evidence.KindFinding || len(v.Reason) > 0 { // a withheld body states no severity
		return
	}
	if severity := severityOf(v.Body); severity != sc.State {
		e.addFinding(CodeSubject, "body/severity", "the finding says %.20q, its subject %.20q", severity, sc.State)
	}
}

// checkBody checks that body, reason, kind and the form of the digest agree.
func (e *Examiner) checkBody(v *view.Record) {
	switch {
	case len(v.Reason) > 0 && !bytes.Equal(v.Body, []byte("null")):
		e.addFinding(CodeBody, "reason", "there is a reason for having no body, and a body")
	case string(v.Kind) == evidence.KindUnparseable && len(v.Reason) == 0:
		e.addFinding(CodeBody, "reason", "unparseable without a reason")
	}
	if len(v.Redactions) == 0 && len(v.Reason) == 0 {
		if _, ok := digestValue(v.BodyDigest, digest.PrefixPlain); !ok {
			e.addFinding(CodeBody, "body_digest", "not of the form %s<64 hex digits>", digest.PrefixPlain)
		}
		return
	}
	if _, ok := keyedDigest(v.BodyDigest); !ok {
		e.addFinding(CodeBody, "body_digest", "not of the form %s<64 hex digits> or %s<16>:<64 hex digits>", digest.PrefixKeyed, digest.PrefixSession)
	}
}

// secretDigest is a keyed digest. Two of them can be compared only if key is equal: it is
// the id of the session's key, or zero for the tenant's key.
type secretDigest struct {
	key [2 * digest.KeyIDSize]byte // hex digits
	sum [32]byte
}

func keyedDigest(text []byte) (d secretDigest, ok bool) {
	const key, end = len(digest.PrefixSession), len(digest.PrefixSession) + len(d.key)
	if len(text) <= end || string(text[:key]) != digest.PrefixSession {
		d.sum, ok = digestValue(text, digest.PrefixKeyed)
		return d, ok
	}
	copy(d.key[:], text[key:end])
	d.sum, ok = hexHash(text[end+1:])
	return d, ok && text[end] == ':' && lowerDigits(d.key[:])
}

// digestValue parses a digest with the given prefix.
func digestValue(text []byte, prefix string) (value [32]byte, ok bool) {
	if len(text) < len(prefix) || string(text[:len(prefix)]) != prefix {
		return value, false
	}
	return hexHash(text[len(prefix):])
}

func hexDigest(s, prefix string) bool {
	_, ok := digestValue([]byte(s), prefix)
	return ok
}
