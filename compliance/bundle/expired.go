package bundle

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"fmt"
	"slices"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/build"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/evidence/verify"
)

// memberExpiries holds the expiry records that explain expired texts; it exists only if there are
// any. A line of records.jsonl is a record or, for a record without its text, its row.
const memberExpiries = "expiries.json" // there exactly if the manifest has expired: why texts are missing

// expiredRow is a row without a text as a line of records.jsonl.
type expiredRow struct {
	BodyDigest string      `json:"body_digest"`
	BrokerTime events.Time `json:"broker_time"`
	Kind       string      `json:"kind"`
	RecordHash string      `json:"record_hash"` // hex
	Seq        uint64      `json:"seq"`
	Session    string      `json:"session"`
	Shard      string      `json:"shard"`
	Subject    string      `json:"subject"`
	Tenant     string      `json:"tenant"`
}

type expiredLine struct {
	Expired expiredRow `json:"expired"`
}

var expiredPrefix = []byte(`{"expired":`)

// recordOf returns the record of a row or, if the row has no text, a record made of its columns.
func recordOf(r evidence.Row) (evidence.Record, error) {
	if !r.Expired() {
		return evidence.ParseRecord([]byte(r.Record))
	}
	return evidence.Record{V: evidence.Version, Shard: r.Shard, Seq: r.Seq, Tenant: r.Tenant, Session: r.Session, Kind: r.Kind, Subject: r.Subject,
		BrokerTime: events.At(r.BrokerTime), BodyDigest: r.BodyDigest}, nil
}

// lineOf is the line of a record in records.jsonl.
func lineOf(row evidence.Row, r evidence.Record) ([]byte, error) {
	if !row.Expired() {
		return r.Canonical()
	}
	return events.Encode(expiredLine{expiredRow{r.BodyDigest, r.BrokerTime, r.Kind, hex.EncodeToString(row.RecordHash[:]), r.Seq, r.Session, r.Shard, r.Subject, r.Tenant}})
}

// readLine parses a line of records.jsonl.
func readLine(text []byte) (evidence.Row, evidence.Record, error) {
	if !bytes.HasPrefix(text, expiredPrefix) {
		rec, err := evidence.ParseRecord(text)
		return build.Built{Record: rec, Canonical: text, Hash: evidence.HashRecord(text)}.Row(), rec, err
	}
	var l expiredLine
	if err := strictjson.Unmarshal(text, &l, strictjson.RejectUnknown); err != nil {
		return evidence.Row{}, evidence.Record{}, evidence.ErrRecord
	}
	x := l.Expired
	row := evidence.Row{Shard: x.Shard, Seq: x.Seq, Tenant: x.Tenant, Session: x.Session, Kind: x.Kind, Subject: x.Subject, BrokerTime: x.BrokerTime.Time, BodyDigest: x.BodyDigest}
	hash, err := hex.DecodeString(x.RecordHash)
	if err != nil || len(hash) != len(row.RecordHash) || x.Seq == 0 || x.Seq > tree.MaxSeq {
		return evidence.Row{}, evidence.Record{}, evidence.ErrRecord
	}
	copy(row.RecordHash[:], hash)
	rec, _ := recordOf(row) // cannot fail without a text
	if again, err := lineOf(row, rec); err != nil || !bytes.Equal(again, text) {
		return evidence.Row{}, evidence.Record{}, evidence.ErrRecord
	}
	return row, rec, nil
}

// expiryEntry is one entry of expiries.json.
type expiryEntry struct {
	Path   []tlog.Hash `json:"path"` // base64, from the leaf's sibling upwards
	Record string      `json:"record"`
}

// expiriesMember makes the member with the expiry records that name a sequence from first to last.
func expiriesMember(list []verify.ExpiryRecord, first, last uint64) (m member, notes []evidence.ExpiredNote, err error) {
	entries := []expiryEntry{}
	for _, x := range list {
		e, ok := evidence.ExpiryIn(x.Row)
		if !ok || !names(e, first, last) {
			continue
		}
		entries = append(entries, expiryEntry{append([]tlog.Hash{}, x.Proof...), x.Row.Record})
		notes = append(notes, evidence.ExpiredNote{Policy: e.Policy, At: e.At})
	}
	data, err := events.Encode(entries)
	if err == nil && len(data) > maxSmallMember {
		err = fmt.Errorf("%w: %s has %d bytes, at most %d are read; export a shorter range", ErrInvalid, memberExpiries, len(data), maxSmallMember)
	}
	return member{memberExpiries, data}, notes, err
}

// names reports whether an expiry names a sequence in a range.
func names(e events.Expiry, first, last uint64) bool {
	for _, s := range e.Sessions {
		if slices.ContainsFunc(s.Sequences, func(span events.Span) bool { return span[0] <= last && span[1] >= first }) {
			return true
		}
	}
	return false
}

// readExpiries parses the member. Its content must still be verified.
func readExpiries(data []byte) (list []verify.ExpiryRecord, notes []evidence.ExpiredNote, err error) {
	var entries []expiryEntry
	if err := strictjson.Unmarshal(data, &entries, strictjson.RejectUnknown); err != nil {
		return nil, nil, fmt.Errorf("%w: %s: a member is unknown or has the wrong type", ErrInvalid, memberExpiries)
	}
	if again, err := events.Encode(entries); err != nil || !bytes.Equal(again, data) {
		return nil, nil, fmt.Errorf("%w: %s: not in its canonical form", ErrInvalid, memberExpiries)
	}
	for i, x := range entries {
		row, _, err := readLine([]byte(x.Record))
		e, ok := evidence.ExpiryIn(row)
		if err != nil || row.Expired() || !ok {
			return nil, nil, fmt.Errorf("%w: %s: entry %d is no expiry record", ErrInvalid, memberExpiries, i)
		}
		list, notes = append(list, verify.ExpiryRecord{Row: row, Proof: x.Path}), append(notes, evidence.ExpiredNote{Policy: e.Policy, At: e.At})
	}
	return list, notes, nil
}

// checkExpiries reports entries of expiries.json that are no expiry records of the log, or that name
// no record from first to last. They explain nothing, but the report would state them as reasons.
func checkExpiries(rep *verify.Report, list []verify.ExpiryRecord, c tree.Checkpoint, space subject.Space, key note.Verifier, first, last uint64) {
	known := note.VerifierList(key)
	for i, x := range list {
		e, signed := x.Expiry(c.Shard, space, known)
		wrong := ""
		switch {
		case !signed || e.State != events.ErasureBegun:
			wrong = "not what the checkpoint key signed when texts expired"
		case !tree.CheckInclusion(x.Proof, c.Size, c.Root, x.Row.Seq, x.Row.RecordHash):
			wrong = "not proved to be in the checkpoint"
		case !names(e, first, last):
			wrong = "about no record of this bundle"
		default:
			continue
		}
		add(rep, verify.CodeMember, x.Row.Seq, memberExpiries, "entry %d is %s", i, wrong)
	}
}

// expiryTally counts, of each session that an expiry names, the records with and without their text. All
// their texts go together, so a bundle in which only some are gone hides records as expired.
type expiryTally struct {
	sessions map[events.SessionID][]*namedTexts
	inOrder  []*namedTexts
}

// namedTexts are the records of a session that one expiry names.
type namedTexts struct {
	session    string
	spans      []events.Span // in order, without overlaps
	gone, kept int
	firstGone  uint64
}

// newExpiryTally makes a tally for expiries, which can consist of several records.
func newExpiryTally(list []events.Expiry) *expiryTally {
	t := &expiryTally{sessions: map[events.SessionID][]*namedTexts{}}
	type part struct {
		expiry string
		events.SessionID
	}
	parts := map[part]*namedTexts{}
	for _, e := range list {
		for _, s := range e.Sessions {
			key := part{e.ExpiryID, events.SessionID{Tenant: e.Tenant, Session: s.Session}}
			if parts[key] == nil {
				parts[key] = &namedTexts{session: s.Session}
				t.sessions[key.SessionID] = append(t.sessions[key.SessionID], parts[key])
				t.inOrder = append(t.inOrder, parts[key])
			}
			parts[key].spans = append(parts[key].spans, s.Sequences...)
		}
	}
	for _, n := range t.inOrder {
		if len(n.spans) == 0 {
			continue
		}
		slices.SortFunc(n.spans, func(a, b events.Span) int { return cmp.Compare(a[0], b[0]) })
		joined := n.spans[:1]
		for _, s := range n.spans[1:] {
			if last := &joined[len(joined)-1]; s[0] <= last[1] {
				last[1] = max(last[1], s[1]) // an attempt that was not completed named it, too
			} else {
				joined = append(joined, s)
			}
		}
		n.spans = joined
	}
	return t
}

func (t *expiryTally) addRow(r evidence.Row) {
	for _, n := range t.sessions[events.SessionID{Tenant: r.Tenant, Session: r.Session}] {
		i, exact := slices.BinarySearchFunc(n.spans, r.Seq, func(s events.Span, seq uint64) int { return cmp.Compare(s[0], seq) })
		if !exact && (i == 0 || n.spans[i-1][1] < r.Seq) {
			continue
		}
		if !r.Expired() {
			n.kept++
		} else if n.gone++; n.gone == 1 {
			n.firstGone = r.Seq
		}
	}
}

// partial lists the sessions of which an expiry has taken some texts and left others.
func (t *expiryTally) partial() (list []*namedTexts) {
	for _, n := range t.inOrder {
		if n.gone > 0 && n.kept > 0 {
			list = append(list, n)
		}
	}
	return list
}

// expiring returns an error for an exporter that read texts while an expiry was deleting them.
func (t *expiryTally) expiring() error {
	list := t.partial()
	if len(list) == 0 {
		return nil
	}
	return fmt.Errorf("%w: the texts of session %.64q are expiring now, %d of %d are gone: try again once the auditor has finished", ErrInvalid, list[0].session, list[0].gone, list[0].gone+list[0].kept)
}

// report reports hidden records in a bundle.
func (t *expiryTally) report(rep *verify.Report) {
	for _, n := range t.partial() {
		add(rep, verify.CodeTextMissing, n.firstGone, memberRecords, "of the records of session %.64q that one expiry names, %d are here without their text and %d with it: texts of a session expire together",
			n.session, n.gone, n.kept)
	}
}

// namedBy decodes expiry records that the exporter has verified.
func namedBy(list []verify.ExpiryRecord) (out []events.Expiry) {
	for _, x := range list {
		if e, ok := evidence.ExpiryIn(x.Row); ok {
			out = append(out, e)
		}
	}
	return out
}

// signedExpiries decodes the expiry records that the checkpoint key signed.
func signedExpiries(list []verify.ExpiryRecord, shard string, space subject.Space, key note.Verifier) (out []events.Expiry) {
	for _, x := range list {
		if e, signed := x.Expiry(shard, space, note.VerifierList(key)); signed {
			out = append(out, e)
		}
	}
	return out
}
