// Package profile holds what conformance takes of a protocol: its levels and profiles, and how its
// traffic is read into what gives them something to judge. The folders correlation/<name>/conformance
// fill it for their protocol, and package conformance judges by it.
package profile

// Requirement is one thing that a profile demands.
type Requirement struct {
	ID   string // unique within its profile
	Text string // what is demanded, one sentence
	// Checks are the rules of which a standing finding breaks it.
	Checks []string
	// Hints: findings of level info break it as well. They are violations of
	// no publisher that does not claim this profile.
	Hints bool
	// Needs is what the traffic must have held, all of it, for the requirement to be
	// exercised. The last one is what is counted.
	Needs []Facet
	// BrokenBy is a facet that breaks it, beside findings.
	BrokenBy Facet
	// Pending: while the traffic shows this facet, the requirement is not decided.
	Pending Facet
	// Mandatory: the profile fails without it, whatever the score.
	Mandatory bool
	// EventType is the event type that a publisher may declare absent.
	EventType string
	// Reason says why no log decides it; then the rest is empty.
	Reason string
}

// Profile is a level or profile of a protocol.
type Profile struct {
	Name     string // as the command line takes it
	Protocol string
	Title    string // what the traffic is checked against
	Includes string // the profile that must be met as well; "" if none
	// ClaimSigns are what a publisher that claims the profile shows; without any of them
	// it does not claim it, as far as can be seen. Empty: every publisher is judged.
	ClaimSigns []Facet
	// Percent of the requirements that are not excused must hold.
	Percent      int
	Requirements []Requirement
}

// Check makes the requirement that one check is about.
func Check(id, text, check string, needs ...Facet) Requirement {
	return Requirement{ID: id, Text: text, Checks: []string{check}, Needs: needs}
}

// Hard makes one of every event, that no score outweighs.
func Hard(id, text string, checks ...string) Requirement {
	return Requirement{ID: id, Text: text, Checks: checks, Needs: []Facet{Event}, Mandatory: true}
}

// Type makes the requirement that a type of event appears.
func Type(id, text, exposes string, need Facet) Requirement {
	return Requirement{ID: id, Text: text, Needs: []Facet{need}, EventType: exposes}
}

// NotWhileOpen makes a requirement one that is not held as long as something is open.
func NotWhileOpen(open Facet, r Requirement) Requirement { r.Pending = open; return r }

// BrokenBy makes a requirement one that is broken by what lacks what it is about.
func BrokenBy(what Facet, r Requirement) Requirement { r.BrokenBy = what; return r }

// WithHints makes a requirement that hints break, too.
func WithHints(r Requirement) Requirement { r.Hints = true; return r }

// Row is what conformance takes of a protocol.
type Row struct {
	Profiles []Profile
	// AddEvent takes an event of a publisher, and reports whether it can be read.
	AddEvent func(s *Sessions, source string, raw []byte) bool
	// ReadRequest reads the admitter's copy of a request; nil if nothing is judged of it.
	ReadRequest func(raw []byte) (session string, f Facets, ok bool)
	// IsLate reports, in a recording, whether a message names no publisher and is taken when
	// all publishers are known; nil if the protocol has none.
	IsLate func(line []byte) bool
	// Identify reads of a recorded event what answers name it by; nil if they name their session.
	Identify func(line []byte) (id Identity, ok bool)
	// ReadReply reads a recorded reply that is no decision; nil if the protocol has none.
	ReadReply func(line []byte) (event string, f Facets, ok bool)
	// LateProducer reads the producer that a late message names; nil if none does.
	LateProducer func(line []byte) (producer string, named bool)
	// CompleteView adds to all that was seen of a subject what only the whole shows; nil if nothing.
	CompleteView func(counts map[Facet]uint64)
}

// Identity is what an event says of itself.
type Identity struct{ Source, Session, Event, Call string }
