package correlation

import (
	"slices"
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/events"
)

// Output is one record that the correlator puts out.
type Output struct {
	Type    string           // events.TypeCall or events.TypeFinding
	State   events.CallState // of a call
	Finding *events.Finding  // nil for a call

	// What follows is there when it was encoded.
	Subject string
	ID      string // of the CloudEvent; the same in every replay
	Body    []byte // RFC 8785

	call *likeness // nil for a finding
}

// Encode writes Subject, ID and Body if they are not there yet. Until Reuse, outputs
// share nothing with the Correlator that changes, so that any goroutine may encode
// them, and several may encode copies of one.
func (o *Output) Encode() {
	if o.Body != nil {
		return
	}
	var err error
	if o.Finding != nil {
		o.Body, err = events.Encode(o.Finding)
	} else {
		o.Subject, o.ID, o.Body, err = o.call.encode()
	}
	if err != nil {
		// The records are made of texts, integers and times; all have a JSON form.
		panic("correlation: " + err.Error())
	}
}

// violation is what a finding is about, beside its rule and call.
type violation struct {
	events    []string
	seqs      []uint64
	verdict   events.Verdict
	caseOf    string
	what      string
	severity  events.Severity
	content   string // tells apart what has the same events
	withdraws string
}

// about starts a violation that these events prove.
func about(eventIDs ...string) *violation {
	v := &violation{}
	for _, id := range eventIDs {
		if id = show(id); id != "" && !slices.Contains(v.events, id) {
			v.events = append(v.events, id)
		}
	}
	return v
}

// proof adds the verdict that stood.
func (v *violation) proof(st standing) *violation {
	v.verdict = st.verdict
	if st.ledger != nil {
		v.verdict = st.ledger.verdict
		v.seqs = append(v.seqs, st.ledger.seq)
	}
	return v
}

// proven adds the sequence of a message that is none of the call's.
func (v *violation) proven(seq uint64) *violation {
	if seq != 0 {
		v.seqs = append(v.seqs, seq)
	}
	return v
}

func (v *violation) detail(caseOf string) *violation         { v.caseOf = caseOf; return v }
func (v *violation) saying(what string) *violation           { v.what = what; return v }
func (v *violation) grade(s events.Severity) *violation      { v.severity = s; return v }
func (v *violation) withdrawing(findingID string) *violation { v.withdraws = findingID; return v }
func (v *violation) distinct(content sum) *violation         { v.content = string(content[:]); return v }

// report puts a finding out, unless it was put out before, and gives its id. c
// is nil where no call is concerned. Who did it is taken from the call, else
// from the fact. What breaks a protocol's own check as well is put out under
// that check, too.
func (m *machine) report(r *Rule, c *call, f *fact, v *violation) string {
	id := m.finding(r, c, f, v)
	for _, check := range equivalents(r, c, f, v) {
		m.finding(checkRules[check], c, f, v.as(r))
	}
	return id
}

// identify gives the key and the id of a finding: the same for the same
// violation, whenever and however often it is seen.
func identify(r *Rule, c *call, f *fact, v *violation) (key sum, id string) {
	who, callID, occurrence := f.origin, f.slot, 0
	if c != nil {
		who, callID, occurrence = *c.session.origin, c.slot.key, c.occurrence
	}
	var room [16]string
	parts := append(room[:0], "finding", r.Name, v.caseOf, who.key.tenant, who.key.source, who.key.session,
		callID.id, callID.tool, itoa(occurrence), v.content, v.withdraws)
	key = sumOf(append(parts, v.events...)...)
	return key, hexID(findingPrefix, key)
}

const findingPrefix = "fnd_"

// hexID is an id in a record.
func hexID(prefix string, s sum) string {
	var room [48]byte
	return string(appendHex(append(room[:0], prefix...), &s))
}

// appendHex appends the hexadecimal form. It does for a sum what package hex does
// for any number of bytes, in a third of the time.
func appendHex(b []byte, s *sum) []byte {
	const digits = "0123456789abcdef"
	var text [2 * len(s)]byte
	for i, x := range s {
		text[2*i], text[2*i+1] = digits[x>>4], digits[x&15]
	}
	return append(b, text[:]...)
}

func (m *machine) finding(r *Rule, c *call, f *fact, v *violation) string {
	m.reported++
	who := f.origin
	if c != nil {
		who = *c.session.origin
	}
	key, id := identify(r, c, f, v)
	mode := m.mode(who, r)
	if mode == ModeOff && v.withdraws == "" {
		return id
	}
	seen := m.source(sourceKey{who.key.tenant, who.key.source}).emitted
	if mode == ModeOff && !takesBack(seen, v) {
		return id
	}
	if _, again := seen.get(key); again {
		return id
	}
	seen.put(key, struct{}{})
	finding := &events.Finding{
		FindingID: id, Rule: r.Name, Severity: events.Severity(first(string(v.severity), string(r.Severity))),
		Tenant: who.tenant, Source: who.source, Session: who.session, ToolCallID: f.callID,
		EventIDs: v.events, Seqs: v.proofs(c, f), Explanation: explain(r, c, f, v), Remedy: r.Remedy,
		DetectedAt: events.At(m.shown(m.now)), Withdraws: v.withdraws,
		Enforced: mode == ModeEnforce,
	}
	if finding.EventIDs == nil {
		finding.EventIDs = []string{}
	}
	if c != nil {
		finding.CallID, finding.ToolCallID = c.callID(), c.id
		c.broke(r, finding.Severity, v)
	}
	m.stats.Findings++
	about := string(appendSubject(nil, m.prefixes.findings, string(finding.Severity), who.key))
	m.out = append(m.out, Output{Subject: about, Type: events.TypeFinding, ID: id, Finding: finding})
	return id
}

// broke notes on the call which rules it broke.
func (c *call) broke(r *Rule, severity events.Severity, v *violation) {
	switch {
	case v.withdraws != "":
		c.rules = slices.DeleteFunc(c.rules, func(name string) bool { return name == r.Name })
	case severity != events.SeverityInfo && !slices.Contains(c.rules, r.Name):
		c.rules = append(c.rules, r.Name)
	}
}

func explain(r *Rule, c *call, f *fact, v *violation) string {
	if r.check {
		return v.sentence(r)
	}
	text := r.Explanation
	if special, ok := r.Cases[v.caseOf]; ok {
		text = special
	}
	tool, id, occurrence := f.tool, f.callID, 0
	if c != nil {
		tool, id, occurrence = first(f.tool, c.tool), c.id, c.occurrence
	}
	text = fillIn(text, func(name string) string {
		switch name {
		case "tool":
			return quoted(tool, "a tool")
		case "call":
			return callName(id, occurrence)
		case "verdict":
			return string(v.verdict)
		}
		return v.what
	})
	return strings.ToUpper(text[:1]) + text[1:]
}

// fillIn replaces the names in braces.
func fillIn(text string, value func(name string) string) string {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, "{")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		var name string
		name, text, _ = strings.Cut(rest, "}")
		b.WriteString(value(name))
	}
}

// sentence is the explanation of a check's finding.
func (v *violation) sentence(r *Rule) string {
	switch {
	case v.withdraws != "":
		return "An earlier finding of this check is taken back: " + first(v.what, "the log has shown more since") + "."
	case v.what != "":
		return strings.TrimSuffix(r.Explanation, ".") + ": " + v.what + "."
	}
	return r.Explanation
}

// as is the same violation in the words of a protocol's check.
func (v *violation) as(r *Rule) *violation {
	cp := *v
	cp.what, cp.severity = "see "+r.Name, ""
	if v.withdraws != "" {
		cp.severity = events.SeverityInfo
	}
	return &cp
}

func callName(id string, occurrence int) string {
	if id == "" {
		return "a call without an id"
	}
	name := "call " + quoted(id, "")
	if occurrence > 1 {
		name += " (occurrence " + itoa(occurrence) + ")"
	}
	return name
}

// quoted shows a name that a producer chose: bounded, and without anything that
// a terminal could take for a command. Of a long name there is little: redaction does
// not know a credential by most of it.
func quoted(s, absent string) string {
	if s == "" {
		return absent
	}
	const longest, beginning = 64, 8
	if len(s) > longest {
		s = strings.ToValidUTF8(s[:beginning], "") + "…"
	}
	return strconv.QuoteToGraphic(s)
}

// emit puts a call out if there is news of it.
func (m *machine) emit(c *call) {
	again := !c.records.none()
	if again && c.open() {
		return
	}
	st := c.standing()
	now := c.now(&st)
	if again && now == c.emitted {
		return
	}
	c.emitted = now
	l := m.likenesses.next()
	l.of(c, &st)
	l.prefix, l.nth = m.prefixes.calls, c.records.add(c.state)
	m.stats.Records++
	m.out = append(m.out, Output{Type: events.TypeCall, State: c.state, call: l})
}

func appendSubject(b []byte, prefix, state string, key sessionKey) []byte {
	b = append(append(append(b, prefix...), key.tenant...), '.')
	return append(append(append(b, state...), '.'), key.session...)
}
