// Package conformance compares a publisher's traffic with the conformance levels
// and profiles of its protocol, which stand in the folders correlation/<name>/conformance.
// It says what the traffic was checked against and what came of it. It
// certifies nothing: no protocol lets others than its own bodies do that.
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
	"github.com/countersign-dev/countersign/correlation/conformance/profile"
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

// Profiles gives every profile, in the order in which reports list them. The
// caller may change the result.
func Profiles() []profile.Profile {
	var list []profile.Profile
	for _, name := range protocolOrder {
		list = append(list, protocols[name].Profiles...)
	}
	return list
}

// FindProfile finds a profile.
func FindProfile(name string) (profile.Profile, bool) {
	for _, p := range Profiles() {
		if p.Name == name {
			return p, true
		}
	}
	return profile.Profile{}, false
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
func undecidableReason(r profile.Requirement) string {
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
