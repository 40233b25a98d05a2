package bundle

import (
	"io"
	"slices"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
)

func (rw *rangeWriter) manifestHeader() Manifest {
	m := Input{Shard: rw.in.Shard, Tenant: rw.in.Tenant, Space: rw.in.Space}.header(rw.checkpoint)
	m.Format, m.From, m.To = RangeFormat, events.At(rw.in.From), events.At(rw.in.To)
	m.Records, m.Expired, m.Seqs = rw.count, rw.expired, []uint64{rw.first, rw.last}
	return m
}

// contents is the input for the attached members and the statement.
func (rw *rangeWriter) contents() contents {
	c := contents{Manifest: rw.manifestHeader(), Checkpoint: rw.checkpoint, CheckpointText: rw.in.Checkpoint, Keys: sortedKeys(rw.in.Keys)}
	records := rw.streams[memberRecords].toZipEntry()
	c.each = func(yield func(evidence.Row, evidence.Record) error) error {
		return rereadRows(records.open(), func(row evidence.Row, rec evidence.Record) error {
			if rw.in.OnReread != nil {
				rw.in.OnReread()
			}
			return yield(row, rec)
		})
	}
	return c
}

// readerMembers makes the table, which is a streamed member, the list of policies and mandates, the report and
// the controls.
func (rw *rangeWriter) readerMembers(c *contents) ([]listed, error) {
	s := rw.streams[MemberTable]
	if err := writeTable(*c, s); err != nil {
		return nil, err
	}
	if err := s.buf.Flush(); err != nil {
		return nil, err
	}
	decided, err := inForceOf(c, rw.in.Decided)
	if err != nil {
		return nil, err
	}
	pages, err := pagesOf(*c)
	return append([]listed{decided}, pages...), err
}

// packBundle makes the members that follow from the streamed ones, and writes the file.
func (rw *rangeWriter) packBundle(w io.Writer) error {
	held := rw.contents()
	var expiries []listed
	if rw.expired > 0 {
		l, notes, err := expiriesMember(rw.in.Expiries, rw.first, rw.last)
		if err != nil {
			return err
		}
		held.Expired, expiries = notes, []listed{l}
	}
	m := held.Manifest
	keys, err := events.Encode(held.Keys)
	if err != nil {
		return err
	}
	attached, err := rw.readerMembers(&held)
	if err != nil {
		return err
	}
	attached = append(attached, expiries...)
	var entries []zipEntry
	for _, e := range []member{{memberReadme, []byte(renderReadme(m))}, {memberCheckpoint, []byte(rw.in.Checkpoint)}, {memberKeys, keys}} {
		entries, m.Members = append(entries, whole(e.name, e.data)), append(m.Members, e.manifestLine())
	}
	for _, name := range append(slices.Clone(rangeStreams), MemberTable) {
		entries, m.Members = append(entries, rw.streams[name].toZipEntry()), append(m.Members, rw.streams[name].manifestLine())
	}
	for _, a := range attached {
		entries, m.Members = append(entries, whole(a.name, a.data)), append(m.Members, a.entry)
	}
	manifest, err := events.Encode(m)
	if err != nil {
		return err
	}
	entries = slices.Insert(entries, 0, whole(memberManifest, manifest))
	if rw.in.SignKey != nil {
		data, err := signStatement(rw.in.SignKey, held, append([]Member{member{memberManifest, manifest}.manifestLine()}, m.Members...))
		if err != nil {
			return err
		}
		entries = append(entries, whole(MemberStatement, data))
	}
	return packEntries(w, entries)
}
