package evidence

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// The members that people read, and the statement. The report and the controls are
// made by an AttachFunc, and are checked by their digests in the manifest and by a
// BundleCheck; the statement is a signature over all others and may be missing.
const (
	MemberReport    = "report.html"
	MemberControls  = "controls.json"
	MemberStatement = "statement.dsse.json"
)

// AttachmentNames are the members that an AttachFunc makes, in their order.
var AttachmentNames = []string{MemberReport, MemberControls}

// BundleMember is one member by its name.
type BundleMember struct {
	Name string
	Data []byte
}

// BundleContents is what a bundle holds, for those who make members of it or
// check them. Nobody may change it. While a bundle is written, Manifest has
// neither Members nor Seqs, and Members is nil.
type BundleContents struct {
	Manifest       Manifest
	Records        []Record   // of a session; use Each
	Checkpoint     Checkpoint // its signature is judged elsewhere
	CheckpointText string
	Keys           []events.KeyRecord
	Members        map[string][]byte // by name, when a bundle is read; of a range's, those that are not records or follow from them
	InForce        []byte            // the member MemberInForce
	Expired        []ExpiredNote     // why Manifest.Expired records are not among Records

	rows    []Row                               // of Records
	each    func(func(Row, Record) error) error // of a range, whose records are not held
	open    func(member string) io.Reader       // likewise
	digests []ManifestMember                    // likewise
}

// Each hands over the records in their order, but those whose text expired.
func (c BundleContents) Each(yield func(Record) error) error {
	return c.EachRow(func(_ Row, r Record) error { return yield(r) })
}

// EachRow is Each with the canonical text and the hash of each record.
func (c BundleContents) EachRow(yield func(Row, Record) error) error {
	if c.each != nil {
		return c.each(yield)
	}
	for i, r := range c.Records {
		var row Row
		if c.rows != nil {
			row = c.rows[i]
		} else if text, err := r.Canonical(); err == nil {
			row = Built{Record: r, Canonical: text, Hash: HashRecord(text)}.Row()
		}
		if err := yield(row, r); err != nil {
			return err
		}
	}
	return nil
}

// Open reads a member of a bundle that is verified; nil if it is not there.
func (c BundleContents) Open(member string) io.Reader {
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

// AttachFunc makes the members of AttachmentNames. The same contents must give
// the same bytes.
type AttachFunc func(BundleContents) ([]BundleMember, error)

// BundleCheck is a check of a bundle that evidence knows nothing of. Its problems
// name the member in Field.
type BundleCheck func(BundleContents) []Problem

// listed is a member beside what the manifest says of it.
type listed struct {
	member
	entry ManifestMember
}

func (in BundleInput) attach(c BundleContents) ([]listed, error) {
	made, err := in.Attach(c)
	if err != nil {
		return nil, err
	}
	out := make([]listed, 0, len(made))
	for i, m := range made {
		if i >= len(AttachmentNames) || m.Name != AttachmentNames[i] {
			return nil, fmt.Errorf("%w: member %.80q is attached, wanted are %s", ErrBundle, m.Name, strings.Join(AttachmentNames, " and "))
		}
		out = append(out, listed{member{m.Name, m.Data}, ManifestMember{Name: m.Name, Size: len(m.Data), SHA256: hexSum(m.Data)}})
	}
	if len(out) != len(AttachmentNames) {
		return nil, fmt.Errorf("%w: of %s only %d are attached", ErrBundle, strings.Join(AttachmentNames, " and "), len(out))
	}
	return out, nil
}

// sign adds the statement, if there is to be one.
func (in BundleInput) sign(c BundleContents, members []member) ([]member, error) {
	if in.Sign == nil {
		return members, nil
	}
	list := make([]ManifestMember, len(members))
	for i, m := range members {
		list[i] = ManifestMember{Name: m.name, Size: len(m.data), SHA256: hexSum(m.data)}
	}
	c.Manifest.Records = len(in.Rows)
	data, err := in.Sign(c, list)
	if err != nil {
		return nil, err
	}
	return append(members, member{MemberStatement, data}), nil
}

// Digests lists the members that a statement must speak of, in the order of
// their names.
func (c BundleContents) Digests() []ManifestMember {
	list := slices.Clone(c.digests)
	for name, data := range c.Members {
		if name != MemberStatement && c.digests == nil {
			list = append(list, ManifestMember{Name: name, Size: len(data), SHA256: hexSum(data)})
		}
	}
	slices.SortFunc(list, func(a, b ManifestMember) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func unknownFormat(format string) error {
	return fmt.Errorf("%w: %s: format %.60q; this program reads %s and %s. What a build before the first release wrote is not read: export it again",
		ErrBundle, memberManifest, format, BundleFormat, RangeFormat)
}

// sessionNames lists the members of a session's bundle in their order.
func sessionNames(expired, statement bool) []string {
	names := []string{memberManifest, memberReadme, memberCheckpoint, memberKeys, memberRecords, memberProofs}
	for _, b := range bodies {
		names = append(names, b.name)
	}
	names = append(names, attachedNames(expired)...)
	if statement {
		names = append(names, MemberStatement)
	}
	return names
}

// layout lists the members that a file should have, with those of the optional ones
// that it has.
func layout(r io.ReaderAt, size int64) []string {
	there, _ := zipNames(r, size)
	return sessionNames(slices.Contains(there, memberExpiries), slices.Contains(there, MemberStatement))
}

// expiriesStated compares the member that says which texts expired, there or not,
// with the manifest, which says how many are.
func expiriesStated(m Manifest, there bool) error {
	switch {
	case m.Expired > 0 && !there:
		return fmt.Errorf("%w: member %s is missing, and the manifest says that %d texts expired", ErrBundle, memberExpiries, m.Expired)
	case m.Expired == 0 && there:
		return fmt.Errorf("%w: member %s is there, and the manifest says of no text that it expired", ErrBundle, memberExpiries)
	}
	return nil
}

// attached pairs the attachments with the manifest's entries, so that the
// manifest can be derived again; one that it does not list is named.
func (b *bundle) attached() (list []listed, unlisted []string) {
	for _, name := range attachedNames(b.manifest.Expired > 0) {
		i := slices.IndexFunc(b.manifest.Members, func(m ManifestMember) bool { return m.Name == name })
		if i < 0 {
			unlisted = append(unlisted, name)
			continue
		}
		list = append(list, listed{member{name, b.files[name]}, b.manifest.Members[i]})
	}
	return list, unlisted
}

func (b *bundle) contents() BundleContents {
	rows, records := withText(b.rows, b.records)
	return BundleContents{Manifest: b.manifest, Records: records, Expired: b.expired, Checkpoint: b.checkpoint,
		CheckpointText: string(b.files[memberCheckpoint]), Keys: b.keys, Members: b.files, InForce: b.files[MemberInForce], rows: rows}
}

// otherFormat says of a file that does not have the members it should have that
// another version of this program made it, if that is so. Builds before the first
// release gave the same names to formats without a table.
func otherFormat(r io.ReaderAt, size int64, err error) error {
	format := formatOf(r, size)
	ours := format == BundleFormat || format == RangeFormat
	there, _ := zipNames(r, size)
	if strings.HasPrefix(format, "countersign/") && !(ours && slices.Contains(there, MemberTable)) {
		if ours {
			return fmt.Errorf("%w. What a build before the first release wrote is not read: export it again", err)
		}
		return unknownFormat(format)
	}
	return err
}

// formatOf is the format that a file's manifest names, if it names one.
func formatOf(r io.ReaderAt, size int64) string {
	var head struct {
		Format string `json:"format"`
	}
	if strictjson.Unmarshal(zipMember(r, size, memberManifest, 1<<24), &head) != nil {
		return ""
	}
	return head.Format
}

// BundleFile reads one member of a bundle, without verifying anything; nil if it
// is not there.
func BundleFile(r io.ReaderAt, size int64, name string) []byte {
	return zipMember(r, size, name, MaxBundleSize)
}
