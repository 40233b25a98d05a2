package bundle

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// attachedNames lists the members that do not follow from the records by rules of the
// format, in their order: one version of this program makes them again and compares,
// any other knows them by their digests in the manifest. The list of expiry records
// is there if some record has no text.
func attachedNames(expired bool) []string {
	names := []string{MemberTable, MemberInForce, MemberReport, MemberControls}
	if expired {
		names = append(names, memberExpiries)
	}
	return names
}

func unknownFormat(format string) error {
	return fmt.Errorf("%w: %s: format %.60q; this program reads %s and %s. What a build before the first release wrote is not read: export it again",
		ErrInvalid, memberManifest, format, Format, RangeFormat)
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
		return fmt.Errorf("%w: member %s is missing, and the manifest says that %d texts expired", ErrInvalid, memberExpiries, m.Expired)
	case m.Expired == 0 && there:
		return fmt.Errorf("%w: member %s is there, and the manifest says of no text that it expired", ErrInvalid, memberExpiries)
	}
	return nil
}

// otherFormat says of a file that does not have the members it should have that
// another version of this program made it, if that is so. Builds before the first
// release gave the same names to formats without a table.
func otherFormat(r io.ReaderAt, size int64, err error) error {
	format := formatOf(r, size)
	ours := format == Format || format == RangeFormat
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
