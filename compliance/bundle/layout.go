package bundle

import (
	"archive/zip"
	"fmt"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// attachedNames lists the members that do not follow from the records by rules of the format, in
// their order. Only the same version of this program can make them again and compare; any other
// version compares them only with their digests in the manifest. The list of expiry records is
// one of them if a record has no text.
func attachedNames(expired bool) []string {
	names := []string{MemberTable, MemberInForce, MemberReport, MemberControls}
	if expired {
		names = append(names, memberExpiries)
	}
	return names
}

func unknownFormat(format string) error {
	return fmt.Errorf("%w: %s: format %.60q; this program reads %s and %s",
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

// MemberNames lists all members that a session's bundle can have, in their order.
func MemberNames() []string { return sessionNames(true, true) }

// expiriesStated checks that the member of expiry records exists exactly if the manifest says that
// texts expired.
func expiriesStated(m Manifest, there bool) error {
	switch {
	case m.Expired > 0 && !there:
		return fmt.Errorf("%w: member %s is missing, and the manifest says that %d texts expired", ErrInvalid, memberExpiries, m.Expired)
	case m.Expired == 0 && there:
		return fmt.Errorf("%w: member %s is there, and the manifest says of no text that it expired", ErrInvalid, memberExpiries)
	}
	return nil
}

// formatOf is the format that a file's manifest names, or "".
func formatOf(z *zip.Reader) string {
	var head struct {
		Format string `json:"format"`
	}
	if strictjson.Unmarshal(zipMember(z, memberManifest, maxManifest), &head) != nil {
		return ""
	}
	return head.Format
}
