package evidence

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/events"
)

func (rw *rangeWriter) header() Manifest {
	m := BundleInput{Shard: rw.in.Shard, Tenant: rw.in.Tenant, Space: rw.in.Space}.header(rw.c)
	m.Format, m.From, m.To = RangeFormat, events.At(rw.in.From), events.At(rw.in.To)
	m.Records, m.Expired, m.Seqs = rw.count, rw.expired, []uint64{rw.first, rw.last}
	return m
}

// contents is what the attachments and the statement are made from.
func (rw *rangeWriter) contents() BundleContents {
	keys := slices.Clone(rw.in.Keys)
	slices.SortFunc(keys, func(a, b events.KeyRecord) int { return strings.Compare(a.KeyID, b.KeyID) })
	if keys == nil {
		keys = []events.KeyRecord{}
	}
	c := BundleContents{Manifest: rw.header(), Checkpoint: rw.c, CheckpointText: rw.in.Checkpoint, Keys: keys}
	records := rw.streams[memberRecords].entry()
	c.each = func(yield func(Row, Record) error) error {
		return rereadRows(records.open(), func(row Row, rec Record) error {
			if rw.in.Reread != nil {
				rw.in.Reread()
			}
			return yield(row, rec)
		})
	}
	return c
}

// extra makes the members of Extra: the table, which is a stream, and the list of
// what decided.
func (rw *rangeWriter) extra(c *BundleContents) (inForce listed, err error) {
	s := rw.streams[MemberTable]
	if err := rw.in.Extra.Table(*c, s); err != nil {
		return listed{}, fmt.Errorf("making %s: %w", MemberTable, err)
	}
	if err := s.buf.Flush(); err != nil {
		return listed{}, err
	}
	return rw.in.Extra.inForce(c)
}

// pack makes what follows from the streams, and writes it all.
func (rw *rangeWriter) pack(w io.Writer) error {
	contents := rw.contents()
	var expiries []listed
	if rw.expired > 0 {
		l, notes, err := expiriesMember(rw.in.Expiries, rw.first, rw.last)
		if err != nil {
			return err
		}
		contents.Expired, expiries = notes, []listed{l}
	}
	m := contents.Manifest
	keys, err := events.Encode(contents.Keys)
	if err != nil {
		return err
	}
	inForce, err := rw.extra(&contents)
	if err != nil {
		return err
	}
	attached, err := BundleInput{Attach: rw.in.Attach}.attach(contents)
	if err != nil {
		return err
	}
	attached = slices.Concat([]listed{inForce}, attached, expiries)
	entries := []zipEntry{whole(memberReadme, []byte(readme(m))), whole(memberCheckpoint, []byte(rw.in.Checkpoint)), whole(memberKeys, keys)}
	for _, e := range entries {
		m.Members = append(m.Members, e.listed())
	}
	for _, name := range append(slices.Clone(rangeStreams), MemberTable) {
		entries, m.Members = append(entries, rw.streams[name].entry()), append(m.Members, rw.streams[name].listed())
	}
	for _, a := range attached {
		entries, m.Members = append(entries, whole(a.name, a.data)), append(m.Members, a.entry)
	}
	manifest, err := events.Encode(m)
	if err != nil {
		return err
	}
	entries = slices.Insert(entries, 0, whole(memberManifest, manifest))
	if rw.in.Sign != nil {
		data, err := rw.in.Sign(contents, append([]ManifestMember{entries[0].listed()}, m.Members...))
		if err != nil {
			return err
		}
		entries = append(entries, whole(MemberStatement, data))
	}
	return packEntries(w, entries)
}
