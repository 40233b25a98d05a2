package bundle

import (
	"io"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/tree"
)

// contents is what a bundle holds. Members are made from it and checked against it. While a bundle
// is being written, Manifest has no Members, and Members, Open and Digests are not set.
type contents struct {
	Manifest       Manifest
	Checkpoint     tree.Checkpoint // its signature is checked elsewhere
	CheckpointText string
	Keys           []events.KeyRecord
	Members        map[string][]byte      // by name, those that are not streamed
	InForce        []byte                 // the member MemberInForce
	Expired        []evidence.ExpiredNote // why Manifest.Expired records are not among the rows
	Digests        []Member               // of all members but the statement, as read

	// EachRow calls yield for the records in their order, except those with an expired text, each
	// with its canonical text and its hash.
	EachRow func(yield func(evidence.Row, evidence.Record) error) error
	// Open opens a member.
	Open func(member string) io.ReadSeeker
}

// Each is EachRow without the rows.
func (c contents) Each(yield func(evidence.Record) error) error {
	return c.EachRow(func(_ evidence.Row, r evidence.Record) error { return yield(r) })
}
