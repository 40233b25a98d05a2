package evidence

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// The members that the second format adds. Calls and approvals follow from the
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

	each    func(func(Record) error) error // of a range, whose records are not held
	digests []ManifestMember               // likewise
}

// Each hands over the records in their order.
func (c BundleContents) Each(yield func(Record) error) error {
	if c.each != nil {
		return c.each(yield)
	}
	for _, r := range c.Records {
		if err := yield(r); err != nil {
			return err
		}
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

func knownFormat(format string) bool { return format == BundleFormat || format == BundleFormatV2 }

func unknownFormat(format string) error {
	return fmt.Errorf("%w: %s: format %.60q; this program reads %q, %q and %q", ErrBundle, memberManifest, format, BundleFormat, BundleFormatV2, RangeFormat)
}

func bodyMembers(format string) int {
	if format == BundleFormat {
		return 2
	}
	return len(bodies)
}

// namesOf lists the members of a format in their order.
func namesOf(format string, statement bool) []string {
	if format == BundleFormat {
		return memberNames
	}
	names := append(slices.Clone(memberNames), memberCalls, memberApprovals)
	names = append(names, AttachmentNames...)
	if statement {
		names = append(names, MemberStatement)
	}
	return names
}

// layout tells by the names of the members which ones a file should have.
func layout(r io.ReaderAt, size int64) []string {
	there, _ := zipNames(r, size)
	if !slices.ContainsFunc(there, func(n string) bool { return slices.Contains(namesOf(BundleFormatV2, true)[len(memberNames):], n) }) {
		return memberNames
	}
	return namesOf(BundleFormatV2, slices.Contains(there, MemberStatement))
}

// checkLayout compares the members with the format that the manifest names.
func (b *bundle) checkLayout() error {
	_, attached := b.files[MemberReport]
	switch {
	case b.manifest.Format == BundleFormat && attached:
		return fmt.Errorf("%w: unknown member %.80q in a bundle of format %q", ErrBundle, memberCalls, BundleFormat)
	case b.manifest.Format == BundleFormatV2 && !attached:
		return fmt.Errorf("%w: member %s is missing", ErrBundle, memberCalls)
	}
	return nil
}

// attached pairs the attachments with the manifest's entries, so that the
// manifest can be derived again; one that it does not list is named.
func (b *bundle) attached() (list []listed, unlisted []string) {
	if b.manifest.Format == BundleFormat {
		return nil, nil
	}
	for _, name := range AttachmentNames {
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
	return BundleContents{Manifest: b.manifest, Records: b.records, Checkpoint: b.checkpoint,
		CheckpointText: string(b.files[memberCheckpoint]), Keys: b.keys, Members: b.files}
}

// newerFormat says of a file that does not have the members it should have that
// it is of a format this program does not know, if that is so.
func newerFormat(r io.ReaderAt, size int64, err error) error {
	if format := formatOf(r, size); strings.HasPrefix(format, "countersign/") && !knownFormat(format) && format != RangeFormat {
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

// readmeAttached is the end of the README, by format.
var readmeAttached = map[string]string{BundleFormatV2: `
report.html is this evidence for reading: open it in a browser, it needs
nothing else. controls.json says which controls of common frameworks the
evidence bears on, what it shows of them and what it does not. Both follow from
the records; a verifier of the same version makes them again and compares.
statement.dsse.json, where it is there, is a signed in-toto statement over all
other members: it says who handed this file out.
`}

// BundleFile reads one member of a bundle, without verifying anything; nil if it
// is not there.
func BundleFile(r io.ReaderAt, size int64, name string) []byte {
	return zipMember(r, size, name, MaxBundleSize)
}
