package bundle

import (
	"bytes"
	"io"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
)

// contents is what a bundle holds, for what makes members of it or checks them.
// While a bundle is written, Manifest has neither Members nor Seqs, and Members is
// nil.
type contents struct {
	Manifest       Manifest
	Records        []evidence.Record   // of a session; use Each
	Checkpoint     evidence.Checkpoint // its signature is judged elsewhere
	CheckpointText string
	Keys           []events.KeyRecord
	Members        map[string][]byte      // by name, when a bundle is read; of a range's, those that are not records or follow from them
	InForce        []byte                 // the member MemberInForce
	Expired        []evidence.ExpiredNote // why Manifest.Expired records are not among Records

	rows    []evidence.Row                                        // of Records
	each    func(func(evidence.Row, evidence.Record) error) error // of a range, whose records are not held
	open    func(member string) io.ReadSeeker                     // likewise
	digests []Member                                              // likewise
}

// Each hands over the records in their order, but those whose text expired.
func (c contents) Each(yield func(evidence.Record) error) error {
	return c.EachRow(func(_ evidence.Row, r evidence.Record) error { return yield(r) })
}

// EachRow is Each with the canonical text and the hash of each record.
func (c contents) EachRow(yield func(evidence.Row, evidence.Record) error) error {
	if c.each != nil {
		return c.each(yield)
	}
	for i, r := range c.Records {
		if err := yield(c.rows[i], r); err != nil {
			return err
		}
	}
	return nil
}

// Open reads a member of a bundle that is verified; nil if it is not there.
func (c contents) Open(member string) io.ReadSeeker {
	if c.open != nil {
		if r := c.open(member); r != nil {
			return r
		}
	}
	if data, there := c.Members[member]; there {
		return bytes.NewReader(data)
	}
	return nil
}

// Digests lists the members that a statement must speak of, in the order of
// their names.
func (c contents) Digests() []Member {
	list := slices.Clone(c.digests)
	for name, data := range c.Members {
		if name != MemberStatement && c.digests == nil {
			list = append(list, Member{Name: name, Size: len(data), SHA256: hexSum(data)})
		}
	}
	slices.SortFunc(list, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	return list
}
