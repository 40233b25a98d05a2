// Package conformance compares a publisher's traffic with the conformance levels
// and profiles of its protocol: AgentHook's Bronze, Silver and Gold and its
// admission-bound, action-governance and web-evidence profiles, and AAEP's levels
// 1 to 3. It says what the traffic was checked against and what came of it. It
// certifies nothing: neither protocol lets others than its own bodies do that.
//
// It is a fold over two things that are on the log anyway: the events of a
// publisher, which say what there was to judge, and the findings of package
// correlation, which say what was broken. A requirement counts as held only if
// the traffic gave it something to judge and nothing broke it. What was not
// exercised, and what no log can decide, is reported as such and never counts as
// held.
//
// It is pure: no clock, no I/O, and nothing depends on the order of a map. Begin
// reading with Tally and Profiles.
package conformance

import (
	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/correlation/checks"
)

// Outcome is what came of one requirement, or of a profile.
type Outcome string

// The outcomes of a requirement.
const (
	Held         Outcome = "held"          // there was something to judge, and nothing broke it
	Broken       Outcome = "broken"        // a finding stands
	NotExercised Outcome = "not_exercised" // the traffic had nothing to judge
	Undecidable  Outcome = "undecidable"   // no log can decide it, or its rule is switched off
	Excused      Outcome = "excused"       // the publisher declares that its runtime does not expose this, and it never appeared
)

// The outcomes of a profile.
const (
	Met      Outcome = "met"       // enough requirements held
	NotMet   Outcome = "not_met"   // so many are broken that it cannot be met any more
	NotShown Outcome = "not_shown" // nothing speaks against it, and too little was exercised or can be decided
)

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
	// Hard: the profile fails without it, whatever the score.
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

// Profiles gives every profile, in the order in which reports list them. The
// caller may change the result.
func Profiles() []Profile {
	var list []Profile
	for _, name := range protocolOrder {
		list = append(list, protocols[name].profiles...)
	}
	return list
}

// FindProfile finds a profile.
func FindProfile(name string) (Profile, bool) {
	for _, p := range Profiles() {
		if p.Name == name {
			return p, true
		}
	}
	return Profile{}, false
}

// undecidableReasons are why no log decides a check, by its id; those that are decided are
// not in it.
var undecidableReasons = func() map[string]string {
	m := map[string]string{}
	for _, c := range checks.All() {
		if c.Status == catalogue.Undecidable {
			m[c.ID] = c.Reason
		}
	}
	return m
}()

// undecidableReason says why no log decides a requirement, "" if it is decided.
func (r Requirement) undecidableReason() string {
	if r.Reason != "" || len(r.Checks) == 0 {
		return r.Reason
	}
	for _, c := range r.Checks {
		if undecidableReasons[c] == "" {
			return ""
		}
	}
	return undecidableReasons[r.Checks[0]]
}

// checkRequirement makes the requirement that one check is about.
func checkRequirement(id, text, check string, needs ...Facet) Requirement {
	return Requirement{ID: id, Text: text, Checks: []string{check}, Needs: needs}
}

// hardRequirement makes one of every event, that no score outweighs.
func hardRequirement(id, text string, checks ...string) Requirement {
	return Requirement{ID: id, Text: text, Checks: checks, Needs: []Facet{Event}, Mandatory: true}
}

// typeRequirement makes the requirement that a type of event appears.
func typeRequirement(id, text, exposes string, need Facet) Requirement {
	return Requirement{ID: id, Text: text, Needs: []Facet{need}, EventType: exposes}
}

// notWhileOpen makes a requirement one that is not held as long as something is open.
func notWhileOpen(open Facet, r Requirement) Requirement { r.Pending = open; return r }

// brokenBy makes a requirement one that is broken by what lacks what it is about.
func brokenBy(what Facet, r Requirement) Requirement { r.BrokenBy = what; return r }

// withHints makes a requirement that hints break, too.
func withHints(r Requirement) Requirement { r.Hints = true; return r }
