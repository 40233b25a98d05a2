package evidence

import (
	"bytes"
	"fmt"
	"io"
	"slices"
)

// The members that the third format of a session's bundle and the second of a
// range's add. Nothing here knows how they are made: they are checked by their
// digests in the manifest, and by whoever does (BundleCheck).
const (
	// MemberTable has the records as a table for programs that analyse.
	MemberTable = "records.parquet"
	// MemberInForce has the policies and mandates that decided.
	MemberInForce = "in_force.json"
)

// sessionFormats and rangeFormats are what is read, oldest first.
var (
	sessionFormats = []string{BundleFormat, BundleFormatV2, BundleFormatV3, BundleFormatV4}
	rangeFormats   = []string{RangeFormat, RangeFormatV2, RangeFormatV3}
)

var extraNames = []string{MemberTable, MemberInForce}

// Extra makes the members that the newest formats add.
type Extra struct {
	// Table writes MemberTable from the records (BundleContents.EachRow). The same
	// records must give the same bytes.
	Table func(BundleContents, io.Writer) error
	// InForce makes MemberInForce: what decided comes from elsewhere than from the
	// records, which only name it.
	InForce func(BundleContents) ([]byte, error)
}

// attachedNames lists the members of a format that do not follow from the
// records by rules of this package.
func attachedNames(format string) []string {
	switch format {
	case BundleFormat:
		return nil
	case BundleFormatV2, RangeFormat:
		return AttachmentNames
	case BundleFormatV4, RangeFormatV3:
		return append(slices.Concat(extraNames, AttachmentNames), memberExpiries)
	}
	return slices.Concat(extraNames, AttachmentNames)
}

func hasExtra(names []string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return slices.Contains(extraNames, n) })
}

// makeMembers makes the members of a session, and tells the contents of them.
func (x *Extra) makeMembers(c *BundleContents) ([]listedMember, error) {
	if x == nil {
		return nil, nil
	}
	var table bytes.Buffer
	if err := x.Table(*c, &table); err != nil {
		return nil, fmt.Errorf("making %s: %w", MemberTable, err)
	}
	inForce, err := x.makeInForce(c)
	if err != nil {
		return nil, err
	}
	return []listedMember{newListedMember(MemberTable, table.Bytes()), inForce}, nil
}

func (x *Extra) makeInForce(c *BundleContents) (l listedMember, err error) {
	if c.InForce, err = x.InForce(*c); err != nil {
		return l, fmt.Errorf("making %s: %w", MemberInForce, err)
	}
	if len(c.InForce) > maxSmallMember {
		return l, fmt.Errorf("%w: %s has %d bytes, at most %d are read", ErrBundle, MemberInForce, len(c.InForce), maxSmallMember)
	}
	return newListedMember(MemberInForce, c.InForce), nil
}

func newListedMember(name string, data []byte) listedMember {
	return listedMember{member{name, data}, ManifestMember{Name: name, Size: len(data), SHA256: hexSHA256(data)}}
}

// readmeAttached is the end of the README, by format.
var readmeAttached = map[string]string{
	BundleFormatV2: readmeReport, RangeFormat: readmeReport, BundleFormatV3: readmeExtra + readmeReport, RangeFormatV2: readmeExtra + readmeReport,
	BundleFormatV4: readmeExtra + readmeReport, RangeFormatV3: readmeExtra + readmeReport,
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
