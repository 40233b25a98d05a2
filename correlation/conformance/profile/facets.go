package profile

import (
	"github.com/countersign-dev/countersign/events"
)

// Facet is something in the traffic that gives a requirement something to judge.
type Facet string

// TypeOf is that a type of event was seen.
func TypeOf(eventType string) Facet { return Facet(eventType + " events") }

// The facets of all protocols, those of verdicts among them.
const (
	Event           Facet = "events"
	FollowingEvents Facet = "events behind another of their session"
	RepeatedEvents  Facet = "events that came more than once"
	CallID          Facet = "announcements with a tool call id"

	RecordedVerdicts Facet = "recorded verdicts"
	Refusal          Facet = "denials"
	WaitingVerdicts  Facet = "verdicts that wait for an approval"
	DenialsAndWaits  Facet = "denials and verdicts that wait"
	RecordedWaits    Facet = "recorded verdicts that wait for an approval"

	OpenCalls           Facet = "open: calls were announced and have not ended yet"
	CallsWithoutVerdict Facet = "calls that carry no verdict and report no fail mode"
)

// Facets collects what an event shows.
type Facets []Facet

// AddIf adds facets if the event shows them.
func (f *Facets) AddIf(is bool, list ...Facet) {
	if is {
		*f = append(*f, list...)
	}
}

// AddVerdict adds what a verdict gives to judge, of whichever evaluator.
func (f *Facets) AddVerdict(v events.Verdict) {
	f.AddIf(v == events.Deny, Refusal, DenialsAndWaits)
	f.AddIf(v == events.Ask || v == events.Defer, WaitingVerdicts, DenialsAndWaits)
}

// OfDecision are the facets of a recorded decision.
func OfDecision(v events.Verdict) Facets {
	f := Facets{RecordedVerdicts}
	f.AddVerdict(v)
	f.AddIf(v == events.Ask || v == events.Defer, RecordedWaits)
	return f
}
