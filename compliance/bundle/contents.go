package bundle

import (
	"bytes"
	"io"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/tree"
)

// contents is what a bundle holds. Members are made from it and checked against it. While a bundle
// is being written, Manifest has no Members and no Seqs, and Members is nil.
type contents struct {
	Manifest       Manifest
	Records        []evidence.Record // of a session; callers use Each
	Checkpoint     tree.Checkpoint   // its signature is checked elsewhere
	CheckpointText string
	Keys           []events.KeyRecord
	Members        map[string][]byte      // by name, when a bundle is read; of a range: without the streamed members
	InForce        []byte                 // the member MemberInForce
	Expired        []evidence.ExpiredNote // why Manifest.Expired records are not in Records

	rows    []evidence.Row                                        // of Records
	each    func(func(evidence.Row, evidence.Record) error) error // of a range: reads the records from the file
	open    func(member string) io.ReadSeeker                     // of a range: opens a member in the file
	digests []Member                                              // of a range: the digests of the members as read
}

// Each calls yield for the records in their order, except those with an expired text.
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

// Open opens a member of a bundle that is being verified; nil if there is none.
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

// Digests lists the members that a statement must name, sorted by name.
func (c contents) Digests() []Member {
	list := slices.Clone(c.digests)
	for name, data := range c.Members {
		if name != MemberStatement && c.digests == nil {
			list = append(list, member{name, data}.manifestLine())
		}
	}
	slices.SortFunc(list, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	return list
}
