package conformance

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

	OpenCalls Facet = "open: calls were announced and have not ended yet"
)

// facetList collects what an event shows.
type facetList []Facet

func (f *facetList) addIf(is bool, list ...Facet) {
	if is {
		*f = append(*f, list...)
	}
}

// addVerdict: what a verdict gives to judge, of whichever evaluator.
func (f *facetList) addVerdict(v events.Verdict) {
	f.addIf(v == events.Deny, Refusal, DenialsAndWaits)
	f.addIf(v == events.Ask || v == events.Defer, WaitingVerdicts, DenialsAndWaits)
}

// decisionFacets are those of a recorded decision.
func decisionFacets(v events.Verdict) facetList {
	f := facetList{RecordedVerdicts}
	f.addVerdict(v)
	f.addIf(v == events.Ask || v == events.Defer, RecordedWaits)
	return f
}
