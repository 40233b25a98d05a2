package correlation

import (
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

// What is declared of publishers, as the admitter records it, and what their
// events are against it.

// Bounds of what is remembered of one declaration.
const (
	maxSaid       = 256 // types and publishers of which something was said
	enoughUnknown = 10  // answers of "unknown" that make a habit; AHP-013 gives no number
)

// declarations are those of all tenants, as the last record has them: at most as
// many as a record holds.
type declarations struct {
	of    map[string][]*declaration // by tenant, as a token
	fails []sum                     // documents that were said to be unusable
}

// declaration is what one manifest or registration says, and what was seen of
// those that it is about.
type declaration struct {
	digest            string
	publisher, family string // publisher as a token, "" for everybody whose events name the family
	absent            map[string]bool
	closed, limited   bool
	governs           bool            // its publisher is registered for the action-governance profile
	partial           map[string]bool // types that it says it exposes in part only
	silent            bool            // it is a registration, and says nothing of the fail mode
	said              map[string]bool
	unknown           map[string]int // events that answer "unknown", by publisher
}

// publisherChange takes what is in force now.
func (c *Correlator) publisherChange(m events.LogMessage, p subject.Parsed) {
	if c.shard != "" && tokenOf(p.Shard) != subject.Escape(c.shard) {
		return
	}
	change, err := events.DecodeRecord[events.PublisherChange](m.Body)
	if err != nil {
		return
	}
	before := c.m.declared
	c.m.declared = declarations{}
	broken := map[string]bool{}
	for _, d := range change.Documents {
		if d.Error != "" {
			broken[d.Tenant] = true
			c.m.unusable(m, d, before.fails)
		}
	}
	for _, d := range change.Documents {
		if d.Declares != nil && !broken[d.Tenant] { // as the admitter has it: of such a tenant nothing is in force
			c.m.declared.add(subject.Escape(d.Tenant), before.renew(d))
		}
	}
}

// unusable reports a manifest or registration that cannot be used (AH-C-126),
// once as it is.
func (m *machine) unusable(msg events.LogMessage, d events.PublisherDocument, before []sum) {
	kind, _, _ := strings.Cut(d.Name, ".")
	if kind != "manifest" && kind != "registration" {
		return
	}
	id := sumOf(d.Tenant, d.Name, d.Digest)
	m.declared.fails = append(m.declared.fails, id)
	if slices.Contains(before, id) {
		return
	}
	f := &fact{seq: msg.Seq, at: msg.Time, protocol: protoAgentHook, origin: originOf(d.Tenant, "", "")}
	m.finding(checkRules["AH-C-126"], nil, f, about().distinct(id).saying(show(strings.TrimSuffix(d.Error, "."))))
}

// renew is a declaration, with what is known of it if it has not changed.
func (ds declarations) renew(d events.PublisherDocument) *declaration {
	next := &declaration{
		digest: d.Digest, family: d.Declares.Source,
		closed: d.Declares.FailMode == "fail_closed", limited: d.Declares.Limitations > 0,
	}
	if d.Declares.Publisher != "" {
		next.silent = d.Declares.FailMode == ""
		next.publisher = subject.Escape(d.Declares.Publisher)
	}
	next.absent, next.partial = setOf(d.Declares.Absent), setOf(d.Declares.Partial)
	next.governs = slices.Contains(d.Declares.Profiles, events.ProfileActionGovernance)
	for _, old := range ds.of[subject.Escape(d.Tenant)] {
		if old.publisher == next.publisher && old.family == next.family && old.digest == next.digest {
			next.said, next.unknown = old.said, old.unknown
		}
	}
	return next
}

// setOf is the set of names, nil of none.
func setOf(names []string) map[string]bool {
	var set map[string]bool
	for _, name := range names {
		if set == nil {
			set = map[string]bool{}
		}
		set[name] = true
	}
	return set
}

func (ds *declarations) add(tenant string, d *declaration) {
	if ds.of == nil {
		ds.of = map[string][]*declaration{}
	}
	ds.of[tenant] = append(ds.of[tenant], d)
}

// find gives the declaration for a publisher, nil if there is none: what is
// registered for it goes before what is declared of its family.
func (ds declarations) find(k sessionKey, family string) *declaration {
	registered := false
	var general *declaration
	for _, d := range ds.of[k.tenant] {
		switch {
		case d.publisher == k.source && d.family == family:
			return d
		case d.publisher == k.source:
			registered = true
		case d.publisher == "" && d.family == family:
			general = d
		}
	}
	if registered {
		return nil
	}
	return general
}

// once tells whether something is to be said now of a publisher.
func (d *declaration) once(what, source string) bool {
	key := what + " " + source
	if d.said[key] || len(d.said) >= maxSaid {
		return false
	}
	if d.said == nil {
		d.said = map[string]bool{}
	}
	d.said[key] = true
	return true
}

// asDeclared holds an event against what is declared of its publisher: its type
// (AH-C-127), how often it answers "unknown" (AH-C-043), and its fail mode
// (AH-C-072).
func (m *machine) asDeclared(w origin, f *fact) {
	if f.hook == nil || len(m.declared.of) == 0 {
		return
	}
	d := m.declared.find(f.key, f.hook.Family)
	if d == nil {
		return
	}
	if d.absent[f.hook.Type] && d.once(f.hook.Type, f.key.source) {
		m.breach(f, w, single("AH-C-127", "its type is declared not exposed or planned", f))
	}
	if f.kind == kindFailOpen && d.closed {
		b := single("AH-C-072", "a call was let pass without a verdict, and its publisher is registered to fail closed", f)
		b.Case = "fail_mode"
		m.breach(f, w, b)
	}
	if f.hook.FailMode && d.silent && !m.documented(f) && d.once("fail mode", f.key.source) {
		b := single("AH-C-165", "its registration says nothing of its fail mode", f)
		b.Severity = events.SeverityInfo
		m.breach(f, w, b)
	}
	if f.hook.Unknown && !d.limited && d.habit(f.key.source) {
		m.breach(f, w, single("AH-C-043", "ten times, and its manifest states no limitation", f))
	}
}

// governed tells an event what its publisher is registered for, before its session
// takes it.
func (m *machine) governed(f *fact) {
	if len(m.declared.of) == 0 {
		return
	}
	if d := m.declared.find(f.key, f.hook.Family); d != nil && (d.governs || d.partial[f.hook.Type]) {
		f.hook.Registered(d.governs, d.partial[f.hook.Type])
	}
}

// documented tells whether the session of a fact says what its fail mode is.
func (m *machine) documented(f *fact) bool {
	w, there := m.flows.peek(flowKey{f.key, protoAgentHook})
	return there && w.hook != nil && w.hook.Documents()
}

// habit counts an answer of "unknown", and tells when it has become a habit.
func (d *declaration) habit(source string) bool {
	if _, counted := d.unknown[source]; !counted && len(d.unknown) >= maxSaid {
		return false
	}
	if d.unknown == nil {
		d.unknown = map[string]int{}
	}
	if d.unknown[source] <= enoughUnknown {
		d.unknown[source]++
	}
	return d.unknown[source] == enoughUnknown && d.once("unknown", source)
}
