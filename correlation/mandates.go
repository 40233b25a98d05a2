package correlation

import (
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aump"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/schemas"
)

// AUMP evidence: what runtimes record of what they did under a mandate. The log
// names mandates by id and hash, in decisions and in changes of mandates, and
// decisions say what was wrong with one; that is what evidence is held against.
// What takes the mandate itself is for whoever has it (countersign mandate
// validate).

const protoAUMP = subject.ProtoAUMP

// Bounds of what is remembered of mandates.
const (
	maxMandates     = 65_536 // mandates, and sessions that were decided under some; the oldest are forgotten
	maxMandateTexts = 8      // hashes of a mandate, and mandates of a session; of more nothing is checked
)

type mandateKey struct {
	tenant string
	id     sum
}

// mandate is what the log has told of one so far.
type mandate struct {
	hashes  []string // that it had
	revoked time.Time
	last    int64  // number of its newest evidence
	hash    string // of that
	event   string // its id
	seq     uint64 // and its place
	said    []mandateSaid
}

// mandateSaid is what decisions said of the mandate as it was under one hash.
type mandateSaid struct {
	hash      string
	expired   time.Time // it had expired by then
	early     time.Time // it had not begun then
	unbounded bool
}

// evidence reads an evidence event.
func (d *Decoder) evidence(r *reading, p subject.Parsed, data []byte) {
	e, err := aump.DecodeEvidence(data, strictjson.DefaultLimits)
	if e == nil {
		r.unreadable = err
		r.fact.readNumber(data)
		return
	}
	f := &r.fact
	f.eventID, f.core, f.evidence = show(e.ID), treeSum(e.Tree), e
	what := ""
	switch vs := schemas.Default().Validate("aump/evidence-event", e.Tree); {
	case len(vs) > 0:
		what = at(vs[0].Keyword, vs[0].Path)
	case err != nil:
		what = reason(err)
	case e.Version != aump.Version:
		what = at("version", "/aump/version")
	}
	if r.wrong, f.invalid = what, what != ""; f.invalid {
		f.notes = append(f.notes, single("AUMP-E-001", what, f))
	}
	if e.EventType != "" && !sameType(p.Type, e.EventType) {
		r.contradicted = append(r.contradicted, "its type is not the event_type of the event")
	}
	if e.LeaksPrivately() {
		f.notes = append(f.notes, single("AUMP-E-008", "", f))
	}
	if !e.HashHolds() {
		f.notes = append(f.notes, single("AUMP-E-009", "", f))
	}
	r.counts = true // its session is the subject's
}

// recordedUnder judges an evidence event by what the log says of its mandate.
func (m *machine) recordedUnder(f *fact) {
	e := f.evidence
	if e.Ref.ID == "" {
		return
	}
	md := m.mandate(f.key.tenant, e.Ref.ID)
	say := func(check, what string) {
		m.breach(f, f.origin, single(check, what, f))
	}
	if under, known := m.decidedUnder.get(f.key); known && len(under) <= maxMandateTexts && !slices.Contains(under, sumOf(e.Ref.ID)) {
		say("AUMP-E-002", "")
	}
	hash, ok := aump.NormaliseHash(e.Ref.Hash)
	if n := len(md.hashes); ok && n > 0 && n <= maxMandateTexts && !slices.Contains(md.hashes, hash) {
		say("AUMP-E-003", "")
	}
	if what := md.void(e, hash, m.opts.ClockSkew); ok && what != "" {
		say("AUMP-E-005", what)
	}
	if e.Result == aump.Allowed && !md.revoked.IsZero() && e.CreatedAt.After(md.revoked.Add(m.opts.ClockSkew)) {
		say("AUMP-E-004", "")
	}
	m.numbered(md, f, say)
}

// void says why an evidence event could not say that something was allowed, as far
// as decisions before it have shown; "" if it could.
func (md *mandate) void(e *aump.Evidence, hash string, skew time.Duration) string {
	i := slices.IndexFunc(md.said, func(s mandateSaid) bool { return s.hash == hash })
	if i < 0 || e.Result != aump.Allowed || e.CreatedAt.IsZero() {
		return ""
	}
	switch s := md.said[i]; {
	case s.unbounded:
		return "it has no bounds"
	case !s.expired.IsZero() && e.CreatedAt.After(s.expired.Add(skew)):
		return "it had expired"
	case !s.early.IsZero() && e.CreatedAt.Add(skew).Before(s.early):
		return "it had not begun"
	}
	return ""
}

// heard notes what a decision says of a mandate.
func (md *mandate) heard(hash string, w mandateWord, at time.Time) {
	h, ok := aump.NormaliseHash(hash)
	if w == 0 || !ok || at.IsZero() {
		return
	}
	i := slices.IndexFunc(md.said, func(s mandateSaid) bool { return s.hash == h })
	if i < 0 {
		if len(md.said) >= maxMandateTexts {
			return
		}
		md.said = append(md.said, mandateSaid{hash: h})
		i = len(md.said) - 1
	}
	s := &md.said[i]
	s.unbounded = s.unbounded || w&mandateUnbounded != 0
	if w&mandateExpired != 0 && (s.expired.IsZero() || at.Before(s.expired)) {
		s.expired = at
	}
	if w&mandateEarly != 0 && at.After(s.early) {
		s.early = at
	}
}

// numbered follows the numbers and hashes of a mandate's evidence.
func (m *machine) numbered(md *mandate, f *fact, say func(check, what string)) {
	e := f.evidence
	previous, _ := aump.NormaliseHash(e.Hashes.PreviousEvent)
	own, _ := aump.NormaliseHash(e.Hashes.Event)
	behind := func(check, what string) {
		b := single(check, what, f)
		if md.event != "" {
			b.Events, b.Seqs = append([]string{md.event}, b.Events...), append([]uint64{md.seq}, b.Seqs...)
		}
		m.breach(f, f.origin, b)
	}
	switch {
	case e.Sequence < 1: // the schema says so
		return
	case e.Sequence <= md.last:
		behind("AUMP-E-011", "a number comes again or late")
		return
	case e.Sequence > md.last+1:
		behind("AUMP-E-011", "numbers are missing")
	case previous != "" && md.last == 0:
		say("AUMP-E-010", "the first one names one before it")
	case previous != "" && md.hash != "" && previous != md.hash:
		behind("AUMP-E-010", "")
	}
	md.last, md.hash, md.event, md.seq = e.Sequence, own, show(e.ID), f.seq
}

// mandate finds what is known of a mandate, or begins to know it.
func (m *machine) mandate(tenant, id string) *mandate {
	key := mandateKey{tenant, sumOf(id)}
	md, known := m.mandates.get(key)
	if !known {
		md = &mandate{}
		m.mandates.put(key, md)
	}
	return md
}

// had notes a hash of a mandate. One more than can be remembered is a mark that
// there are more.
func (md *mandate) had(hash string) {
	if h, ok := aump.NormaliseHash(hash); ok && len(md.hashes) <= maxMandateTexts && !slices.Contains(md.hashes, h) {
		md.hashes = append(md.hashes, h)
	}
}

// under notes that a session's decision was made under a mandate.
func (m *machine) under(f *fact, ref *events.MandateRef) {
	if ref.ID == "" {
		return
	}
	md := m.mandate(f.key.tenant, ref.ID)
	md.had(ref.Hash)
	if f.more != nil {
		md.heard(ref.Hash, f.more.words, f.more.decided)
	}
	ids, _ := m.decidedUnder.get(f.key)
	if id := sumOf(ref.ID); len(ids) <= maxMandateTexts && !slices.Contains(ids, id) {
		m.decidedUnder.put(f.key, append(slices.Clone(ids), id))
	}
}

// mandateChange takes what changed among the mandates.
func (c *Correlator) mandateChange(m events.LogMessage, p subject.Parsed) {
	if c.shard != "" && tokenOf(p.Shard) != subject.Escape(c.shard) {
		return
	}
	change, err := events.DecodeRecord[events.MandateChange](m.Body)
	if err != nil {
		return
	}
	for _, s := range change.Changes {
		if s.MandateID == "" {
			continue
		}
		tenant := s.Tenant
		if rest, escaped := strings.CutPrefix(tenant, "="); escaped { // as keys of a bucket are written
			tenant = "~" + rest
		}
		md := c.m.mandate(tenant, s.MandateID)
		switch s.Change {
		case "put":
			md.had(s.Hash)
		case "revoked":
			md.revoked = m.Time
		case "revocation_deleted":
			md.revoked = time.Time{}
		}
	}
}
