package evidence

import (
	"bytes"
	"fmt"
	"io"
)

// The members beside the records and the report. Nothing here knows how they are
// made: they are checked by their digests in the manifest, and by a BundleCheck.
const (
	// MemberTable has the records as a table for programs that analyse.
	MemberTable = "records.parquet"
	// MemberInForce has the policies and mandates that decided.
	MemberInForce = "in_force.json"
)

// Extra makes the members MemberTable and MemberInForce.
type Extra struct {
	// Table writes MemberTable from the records (BundleContents.EachRow). The same
	// records must give the same bytes.
	Table func(BundleContents, io.Writer) error
	// InForce makes MemberInForce: what decided comes from elsewhere than from the
	// records, which only name it.
	InForce func(BundleContents) ([]byte, error)
}

// attachedNames lists the members that do not follow from the records by rules of
// this package, in their order. The list of expiry records is there if some record
// has no text.
func attachedNames(expired bool) []string {
	names := append([]string{MemberTable, MemberInForce}, AttachmentNames...)
	if expired {
		names = append(names, memberExpiries)
	}
	return names
}

// whole makes the members of a session, and tells the contents of them.
func (x *Extra) whole(c *BundleContents) ([]listed, error) {
	var table bytes.Buffer
	if err := x.Table(*c, &table); err != nil {
		return nil, fmt.Errorf("making %s: %w", MemberTable, err)
	}
	inForce, err := x.inForce(c)
	if err != nil {
		return nil, err
	}
	return []listed{listedOf(MemberTable, table.Bytes()), inForce}, nil
}

func (x *Extra) inForce(c *BundleContents) (l listed, err error) {
	if c.InForce, err = x.InForce(*c); err != nil {
		return l, fmt.Errorf("making %s: %w", MemberInForce, err)
	}
	if len(c.InForce) > maxSmallMember {
		return l, fmt.Errorf("%w: %s has %d bytes, at most %d are read", ErrBundle, MemberInForce, len(c.InForce), maxSmallMember)
	}
	return listedOf(MemberInForce, c.InForce), nil
}

func listedOf(name string, data []byte) listed {
	return listed{member{name, data}, ManifestMember{Name: name, Size: len(data), SHA256: hexSum(data)}}
}

const readmeExtra = `
records.parquet has the same records as records.jsonl, in the same order, a row
each, for programs that analyse tables; record_hash is the hash of the text in
the column record. in_force.json has the policies and mandates that decided: by
digest, with their text where whoever reads this may see it.
`

const readmeReport = `
report.html is this evidence for reading: open it in a browser, it needs
nothing else. controls.json says which controls of common frameworks the
evidence bears on, what it shows of them and what it does not. Both follow from
the records; a verifier of the same version makes them again and compares.
statement.dsse.json, where it is there, is a signed in-toto statement over all
other members: it says who handed this file out.
`
