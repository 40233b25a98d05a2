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

// The members that the later formats add. Calls and approvals follow from the
// records; the report and the controls are made by who exports, and are checked
// by their digests in the manifest and by whoever knows how they are made; the
// statement is a signature over all others and may be missing.
const (
	memberCalls     = "calls.jsonl"
	memberApprovals = "approvals.jsonl"

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
	InForce        []byte            // the member MemberInForce, of the formats that have it
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
type BundleCheck func(BundleContents) []Finding

// listedMember is a member beside what the manifest says of it.
type listedMember struct {
	member
	entry ManifestMember
}

func (in BundleInput) makeAttachments(c BundleContents) ([]listedMember, error) {
	if in.Attach == nil {
		if in.Sign != nil {
			return nil, fmt.Errorf("%w: a bundle of the first format has no statement", ErrBundle)
		}
		return nil, nil
	}
	made, err := in.Attach(c)
	if err != nil {
		return nil, err
	}
	out := make([]listedMember, 0, len(made))
	for i, m := range made {
		if i >= len(AttachmentNames) || m.Name != AttachmentNames[i] {
			return nil, fmt.Errorf("%w: member %.80q is attached, wanted are %s", ErrBundle, m.Name, strings.Join(AttachmentNames, " and "))
		}
		out = append(out, listedMember{member{m.Name, m.Data}, ManifestMember{Name: m.Name, Size: len(m.Data), SHA256: hexSHA256(m.Data)}})
	}
	if len(out) != len(AttachmentNames) {
		return nil, fmt.Errorf("%w: of %s only %d are attached", ErrBundle, strings.Join(AttachmentNames, " and "), len(out))
	}
	return out, nil
}

// addStatement adds the statement, if there is to be one.
func (in BundleInput) addStatement(c BundleContents, members []member) ([]member, error) {
	if in.Sign == nil {
		return members, nil
	}
	list := make([]ManifestMember, len(members))
	for i, m := range members {
		list[i] = ManifestMember{Name: m.name, Size: len(m.data), SHA256: hexSHA256(m.data)}
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
			list = append(list, ManifestMember{Name: name, Size: len(data), SHA256: hexSHA256(data)})
		}
	}
	slices.SortFunc(list, func(a, b ManifestMember) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func knownFormat(format string) bool { return slices.Contains(sessionFormats, format) }

func unknownFormat(format string) error {
	return fmt.Errorf("%w: %s: format %.60q; this program reads %s", ErrBundle, memberManifest, format, strings.Join(slices.Concat(sessionFormats, rangeFormats), ", "))
}

func countBodyMembers(format string) int {
	if format == BundleFormat {
		return 2
	}
	return len(kindMembers)
}

// sessionMembers lists the members of a format in their order.
func sessionMembers(format string, statement bool) []string {
	if format == BundleFormat {
		return memberNames
	}
	names := append(slices.Clone(memberNames), memberCalls, memberApprovals)
	names = append(names, attachedNames(format)...)
	if statement {
		names = append(names, MemberStatement)
	}
	return names
}

// expectedMembers tells by the names of the members which ones a file should have.
func expectedMembers(r io.ReaderAt, size int64) []string {
	there, _ := zipNames(r, size)
	if !slices.ContainsFunc(there, func(n string) bool {
		return slices.Contains(sessionMembers(BundleFormatV4, true)[len(memberNames):], n)
	}) {
		return memberNames
	}
	format := BundleFormatV2
	if hasExtra(there) {
		format = BundleFormatV3
	}
	if slices.Contains(there, memberExpiries) {
		format = BundleFormatV4
	}
	return sessionMembers(format, slices.Contains(there, MemberStatement))
}

// checkLayout compares the members with the format that the manifest names.
func (b *bundle) checkLayout() error {
	want := sessionMembers(b.manifest.Format, true)
	for _, name := range sessionMembers(BundleFormatV4, true) {
		_, there := b.files[name]
		switch {
		case there && !slices.Contains(want, name):
			return fmt.Errorf("%w: unknown member %.80q in a bundle of format %q", ErrBundle, name, b.manifest.Format)
		case !there && slices.Contains(want, name) && name != MemberStatement:
			return fmt.Errorf("%w: member %s is missing", ErrBundle, name)
		}
	}
	return nil
}

// pairAttachments pairs the attachments with the manifest's entries, so that the
// manifest can be derived again; one that it does not list is named.
func (b *bundle) pairAttachments() (list []listedMember, unlisted []string) {
	for _, name := range attachedNames(b.manifest.Format) {
		i := slices.IndexFunc(b.manifest.Members, func(m ManifestMember) bool { return m.Name == name })
		if i < 0 {
			unlisted = append(unlisted, name)
			continue
		}
		list = append(list, listedMember{member{name, b.files[name]}, b.manifest.Members[i]})
	}
	return list, unlisted
}

func (b *bundle) contents() BundleContents {
	rows, records := withText(b.rows, b.records)
	return BundleContents{Manifest: b.manifest, Records: records, Expired: b.expired, Checkpoint: b.checkpoint,
		CheckpointText: string(b.files[memberCheckpoint]), Keys: b.keys, Members: b.files, InForce: b.files[MemberInForce], rows: rows}
}

// newerFormat says of a file that does not have the members it should have that
// it is of a format this program does not know, if that is so.
func newerFormat(r io.ReaderAt, size int64, err error) error {
	if format := formatOf(r, size); strings.HasPrefix(format, "countersign/") && !knownFormat(format) && !slices.Contains(rangeFormats, format) {
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
