package evidence

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// The formats of bundles in which texts have expired. A line of records.jsonl is
// then either a record or, of one without a text, its row; and one more member has
// the expiry records that say why.
const (
	BundleFormatV4 = "countersign/bundle/v4"
	RangeFormatV3  = "countersign/range/v3"

	memberExpiries = "expiries.json"
)

// ExpiredNote says what a bundle's expiry records say, for people.
type ExpiredNote struct {
	Policy string
	At     events.Time
}

// expiredRow is a row without a text, as a line of records.jsonl.
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

// recordOf reads a row: its record or, if it has no text, what its columns say.
func recordOf(r Row) (Record, error) {
	if !r.Expired() {
		return ParseRecord([]byte(r.Record))
	}
	r.Expiry = 0
	return Record{V: Version, Shard: r.Shard, Seq: r.Seq, Tenant: r.Tenant, Session: r.Session, Kind: r.Kind, Subject: r.Subject,
		BrokerTime: events.At(r.BrokerTime), BodyDigest: r.BodyDigest, expired: &r}, nil
}

// encodeLine is what a record is in records.jsonl.
func (r Record) encodeLine() ([]byte, error) {
	if r.expired == nil {
		return r.Canonical()
	}
	return events.Encode(expiredLine{expiredRow{r.BodyDigest, r.BrokerTime, r.Kind, hex.EncodeToString(r.expired.RecordHash[:]), r.Seq, r.Session, r.Shard, r.Subject, r.Tenant}})
}

// readLine reads a line of records.jsonl.
func readLine(text []byte) (Row, Record, error) {
	if !bytes.HasPrefix(text, expiredPrefix) {
		rec, err := ParseRecord(text)
		return Built{Record: rec, Canonical: text, Hash: HashRecord(text)}.Row(), rec, err
	}
	var l expiredLine
	if err := strictjson.Unmarshal(text, &l, strictjson.RejectUnknown); err != nil {
		return Row{}, Record{}, ErrRecord
	}
	x := l.Expired
	hash, ok := hexHash([]byte(x.RecordHash))
	row := Row{Shard: x.Shard, Seq: x.Seq, Tenant: x.Tenant, Session: x.Session, Kind: x.Kind, Subject: x.Subject, BrokerTime: x.BrokerTime.Time, BodyDigest: x.BodyDigest, RecordHash: hash}
	rec, err := recordOf(row)
	if err != nil || !ok || x.Seq == 0 || x.Seq > MaxSeq {
		return Row{}, Record{}, ErrRecord
	}
	if again, err := rec.encodeLine(); err != nil || !bytes.Equal(again, text) {
		return Row{}, Record{}, ErrRecord
	}
	return row, rec, nil
}

// expiredIn counts the records without a text.
func expiredIn(records []Record) (n int) {
	for _, r := range records {
		if r.expired != nil {
			n++
		}
	}
	return n
}

// expiryEntry is one entry of expiries.json.
type expiryEntry struct {
	Path   []tlog.Hash `json:"path"` // base64, from the leaf's sibling upwards
	Record string      `json:"record"`
}

// expiriesMember makes the member of the expiry records that name one of some
// sequences.
func expiriesMember(list []ExpiryRecord, first, last uint64) (l listedMember, notes []ExpiredNote, err error) {
	entries := []expiryEntry{}
	for _, x := range list {
		e, ok := ExpiryIn(x.Row)
		if !ok || !expiryInRange(e, first, last) {
			continue
		}
		entries = append(entries, expiryEntry{append([]tlog.Hash{}, x.Proof...), x.Row.Record})
		notes = append(notes, ExpiredNote{e.Policy, e.At})
	}
	data, err := events.Encode(entries)
	if err == nil && len(data) > maxSmallMember {
		err = fmt.Errorf("%w: %s has %d bytes, at most %d are read; export a shorter range", ErrBundle, memberExpiries, len(data), maxSmallMember)
	}
	return newListedMember(memberExpiries, data), notes, err
}

// expiryInRange reports whether an expiry has a sequence in a range.
func expiryInRange(e events.Expiry, first, last uint64) bool {
	for _, s := range e.Sessions {
		if slices.ContainsFunc(s.Sequences, func(span events.Span) bool { return span[0] <= last && span[1] >= first }) {
			return true
		}
	}
	return false
}

// ExpiryIn reads the expiry record in a row, whoever wrote it.
func ExpiryIn(r Row) (e events.Expiry, ok bool) {
	rec, err := ParseRecord([]byte(r.Record))
	if err == nil {
		e, err = events.DecodeRecord[events.Expiry](rec.Body)
	}
	return e, err == nil
}

// readExpiries reads the member; what it says counts only as far as it verifies.
func readExpiries(data []byte) (list []ExpiryRecord, notes []ExpiredNote, err error) {
	var entries []expiryEntry
	if err := strictjson.Unmarshal(data, &entries, strictjson.RejectUnknown); err != nil {
		return nil, nil, fmt.Errorf("%w: %s: a member is unknown or has the wrong type", ErrBundle, memberExpiries)
	}
	if again, err := events.Encode(entries); err != nil || !bytes.Equal(again, data) {
		return nil, nil, fmt.Errorf("%w: %s: not in its canonical form", ErrBundle, memberExpiries)
	}
	for i, x := range entries {
		row, rec, err := readLine([]byte(x.Record))
		e, ok := ExpiryIn(row)
		if err != nil || rec.expired != nil || !ok {
			return nil, nil, fmt.Errorf("%w: %s: entry %d is no expiry record", ErrBundle, memberExpiries, i)
		}
		list, notes = append(list, ExpiryRecord{Row: row, Proof: x.Path}), append(notes, ExpiredNote{e.Policy, e.At})
	}
	return list, notes, nil
}

// countExpired counts the records of a session's bundle that have no text, and gives the
// member that says why.
func (in BundleInput) countExpired(c *BundleContents, records []Record) ([]listedMember, error) {
	if c.Manifest.Expired = expiredIn(records); c.Manifest.Expired == 0 {
		return nil, nil
	}
	if in.Attach == nil || in.Extra == nil {
		return nil, fmt.Errorf("%w: texts have expired, and only bundles of the newest format can say so", ErrBundle)
	}
	c.Manifest.Format = BundleFormatV4
	l, notes, err := expiriesMember(in.Expiries, records[0].Seq, records[len(records)-1].Seq)
	c.Expired = notes
	return []listedMember{l}, err
}

// withText are the records that have their text, and their rows.
func withText(rows []Row, records []Record) (r []Row, list []Record) {
	if expiredIn(records) == 0 {
		return rows, records
	}
	for i, rec := range records {
		if rec.expired == nil {
			r, list = append(r, rows[i]), append(list, rec)
		}
	}
	return r, list
}

const readmeExpired = `
%d of these records have no text any more: the retention policy of their tenant
let it go. Their lines in records.jsonl begin with {"expired": and hold what is
left: the hash, which is in the tree as before, and columns, for which nothing
vouches but the subject's own form. expiries.json has the records of the log that
say which texts expired, under which policy and when, each signed by the
checkpoint key, with the proof that it is in the same tree.
`

func expiredReadme(m Manifest) string {
	if m.Expired == 0 {
		return ""
	}
	return fmt.Sprintf(readmeExpired, m.Expired)
}
