package evidence

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/events"
)

func (rw *rangeWriter) manifestHeader() Manifest {
	m := BundleInput{Shard: rw.in.Shard, Tenant: rw.in.Tenant, Space: rw.in.Space}.manifestHeader(rw.checkpoint)
	m.Format, m.From, m.To = RangeFormat, events.At(rw.in.From), events.At(rw.in.To)
	if rw.in.Extra != nil {
		m.Format = RangeFormatV2
	}
	if m.Expired = rw.expired; m.Expired > 0 {
		m.Format = RangeFormatV3
	}
	m.Records, m.Seqs = rw.count, []uint64{rw.first, rw.last}
	return m
}

// contents is what the attachments and the statement are made from.
func (rw *rangeWriter) contents() BundleContents {
	keys := slices.Clone(rw.in.Keys)
	slices.SortFunc(keys, func(a, b events.KeyRecord) int { return strings.Compare(a.KeyID, b.KeyID) })
	if keys == nil {
		keys = []events.KeyRecord{}
	}
	c := BundleContents{Manifest: rw.manifestHeader(), Checkpoint: rw.checkpoint, CheckpointText: rw.in.Checkpoint, Keys: keys}
	records := rw.streams[memberRecords].toZipEntry()
	c.each = func(yield func(Row, Record) error) error {
		return rereadRows(records.open(), func(row Row, rec Record) error {
			if rw.in.OnReread != nil {
				rw.in.OnReread()
			}
			return yield(row, rec)
		})
	}
	return c
}

// writeExtra makes the members of Extra: the table is a stream, whose name is given.
func (rw *rangeWriter) writeExtra(c *BundleContents) (table []string, inForce []listedMember, err error) {
	x := rw.in.Extra
	if x == nil {
		return nil, nil, nil
	}
	s := rw.streams[MemberTable]
	if err := x.Table(*c, s); err != nil {
		return nil, nil, fmt.Errorf("making %s: %w", MemberTable, err)
	}
	if err := s.buf.Flush(); err != nil {
		return nil, nil, err
	}
	l, err := x.makeInForce(c)
	return []string{MemberTable}, []listedMember{l}, err
}

// packBundle makes what follows from the streams, and writes it all.
func (rw *rangeWriter) packBundle(w io.Writer) error {
	contents := rw.contents()
	var expiries []listedMember
	if rw.expired > 0 {
		l, notes, err := expiriesMember(rw.in.Expiries, rw.first, rw.last)
		if err != nil {
			return err
		}
		if rw.in.Extra == nil {
			return fmt.Errorf("%w: texts have expired, and only bundles of the newest format can say so", ErrBundle)
		}
		contents.Expired, expiries = notes, []listedMember{l}
	}
	m := contents.Manifest
	keys, err := events.Encode(contents.Keys)
	if err != nil {
		return err
	}
	table, inForce, err := rw.writeExtra(&contents)
	if err != nil {
		return err
	}
	attached, err := BundleInput{Attach: rw.in.Attach}.makeAttachments(contents)
	if err != nil {
		return err
	}
	attached = slices.Concat(inForce, attached, expiries)
	entries := []zipEntry{memoryEntry(memberReadme, []byte(renderReadme(m))), memoryEntry(memberCheckpoint, []byte(rw.in.Checkpoint)), memoryEntry(memberKeys, keys)}
	for _, e := range entries {
		m.Members = append(m.Members, e.manifestLine())
	}
	for _, name := range append(slices.Clone(rangeStreams), table...) {
		entries, m.Members = append(entries, rw.streams[name].toZipEntry()), append(m.Members, rw.streams[name].manifestLine())
	}
	for _, a := range attached {
		entries, m.Members = append(entries, memoryEntry(a.name, a.data)), append(m.Members, a.entry)
	}
	manifest, err := events.Encode(m)
	if err != nil {
		return err
	}
	entries = slices.Insert(entries, 0, memoryEntry(memberManifest, manifest))
	if rw.in.Sign != nil {
		data, err := rw.in.Sign(contents, append([]ManifestMember{entries[0].manifestLine()}, m.Members...))
		if err != nil {
			return err
		}
		entries = append(entries, memoryEntry(MemberStatement, data))
	}
	return packEntries(w, entries)
}
