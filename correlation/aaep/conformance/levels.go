// Package conformance holds the conformance levels of AAEP, and what its messages give them to
// judge.
package conformance

import (
	"github.com/countersign-dev/countersign/correlation/conformance/profile"
	"github.com/countersign-dev/countersign/events/aaep"
	"github.com/countersign-dev/countersign/events/subject"
)

// Row is the row of AAEP in the table of conformance.
var Row = profile.Row{
	Profiles:     levels,
	AddEvent:     addEvent,
	IsLate:       isHandshake,
	LateProducer: acceptingProducer,
}

// Names of AAEP's levels.
const (
	Level1 = "level-1"
	Level2 = "level-2"
	Level3 = "level-3"
)

const checked = "AAEP 1.0.0, producer, "

// levels are those of AAEP chapter 9. A level wants all that it demands.
var levels = []profile.Profile{
	{Name: Level1, Protocol: subject.ProtoAAEP, Title: checked + "level 1 (notification)", Percent: 100, Requirements: level1},
	{Name: Level2, Protocol: subject.ProtoAAEP, Title: checked + "level 2 (interactive)", Percent: 100, Includes: Level1, Requirements: level2},
	{Name: Level3, Protocol: subject.ProtoAAEP, Title: checked + "level 3 (negotiated)", Percent: 100, Includes: Level2, Requirements: level3},
}

var level1 = []profile.Requirement{
	profile.Hard("json", "Every event is one JSON object in UTF-8 that all readers read alike.", "AAEP-C-001", "AAEP-C-021", "AAEP-C-022"),
	profile.Hard("envelope", "Every event has a full and valid envelope.", "AAEP-C-002", "AAEP-C-003", "AAEP-C-004", "AAEP-C-005", "AAEP-C-006",
		"AAEP-C-007", "AAEP-C-008", "AAEP-C-009", "AAEP-C-010", "AAEP-C-012", "AAEP-C-013", "AAEP-C-015", "AAEP-C-016", "AAEP-C-017", "AAEP-C-018", "AAEP-C-019"),
	profile.Hard("payload", "Every payload follows the schema of its type.", "AAEP-C-030", "AAEP-C-034", "AAEP-C-036"),
	profile.Check("critical", "Errors, questions and handoffs are critical.", "AAEP-C-031", Critical),
	profile.Check("agent-id", "The agent id has no version in it.", "AAEP-C-011", profile.Event),
	profile.WithHints(profile.Check("language", "Texts say what language they are in.", "AAEP-C-014", Texts)),
	profile.WithHints(profile.Check("summary", "What people will hear has a normal summary.", "AAEP-C-041", SpokenEvents)),
	profile.Check("secrets", "No text that people read holds a secret.", "AAEP-C-038", Texts),
	profile.Check("nine-steps", "Events count as valid only after all nine steps.", "AAEP-C-023"),

	profile.Check("event-ids", "An event that comes again says the same.", "AAEP-C-050", profile.RepeatedEvents),
	profile.Check("session-ids", "A session id is one session's.", "AAEP-C-051", profile.TypeOf(aaep.TypeSessionStarted)),
	profile.Check("mixed-ids", "Sessions do not mix their ids.", "AAEP-C-054", profile.FollowingEvents),
	{ID: "started", Text: "A session starts once, before anything else.", Checks: []string{"AAEP-C-060", "AAEP-C-061"}, Needs: []profile.Facet{profile.TypeOf(aaep.TypeSessionStarted)}},
	{ID: "terminal", Text: "A session ends once, after everything else.", Checks: []string{"AAEP-C-062", "AAEP-C-063", "AAEP-C-064"}, Needs: []profile.Facet{Terminal}},
	profile.Check("numbers", "Sequence numbers run from zero in steps of one.", "AAEP-C-065", Numbered),
	profile.Check("clock", "Time does not run backwards within a session.", "AAEP-C-066", profile.FollowingEvents),
	profile.WithHints(profile.Check("true-clock", "Time stamps are near the broker's.", "AAEP-C-067", profile.Event)),
	{ID: "states", Text: "Changes of state begin where the last one led.", Checks: []string{"AAEP-C-068", "AAEP-C-069"}, Needs: []profile.Facet{profile.TypeOf(aaep.TypeStateChanged)}},
	profile.WithHints(profile.Check("phases", "Calling tools and writing output are announced as states.", "AAEP-C-070", InvocationsAndOutput)),

	profile.Check("before-effect", "A tool is announced before it has an effect.", "AAEP-C-089", profile.TypeOf(aaep.TypeToolInvoked), AgentHookExecutions),
	profile.Check("call-ids", "A tool call id is one invocation's.", "AAEP-C-052", profile.CallID),
	profile.Check("invoked", "No tool completes that was not invoked.", "AAEP-C-080", profile.TypeOf(aaep.TypeToolCompleted)),
	profile.NotWhileOpen(profile.OpenCalls, profile.Check("completed", "Every invocation completes, also by error and timeout.", "AAEP-C-081", profile.TypeOf(aaep.TypeToolInvoked))),
	{ID: "pairs", Text: "Invocation and completion name one tool and one id, once.", Checks: []string{"AAEP-C-082", "AAEP-C-083", "AAEP-C-084"}, Needs: []profile.Facet{profile.TypeOf(aaep.TypeToolInvoked), profile.TypeOf(aaep.TypeToolCompleted)}},
	profile.Check("calling", "The agent calls a tool until it completes.", "AAEP-C-087", LeavesCalling),
	{ID: "output", Text: "Output grows without gaps and is closed once.", Checks: []string{"AAEP-C-140", "AAEP-C-141", "AAEP-C-142", "AAEP-C-143"}, Needs: []profile.Facet{profile.TypeOf(aaep.TypeOutputStreaming)}},
}

var level2 = []profile.Requirement{
	profile.Check("confirmed", "Nothing irreversible is invoked that the user has not accepted.", "AAEP-C-100", Irreversible),
	profile.Check("grave", "Nothing of high risk is invoked that the user has not accepted.", "AAEP-C-101", HighRisk),
	profile.Check("waits", "Nothing goes on while the user is being asked.", "AAEP-C-103", profile.TypeOf(aaep.TypeAwaitingConfirmation)),
	profile.Check("rejected", "What was rejected is not done.", "AAEP-C-104", Rejection),
	profile.Check("default", "Defaults are taken when their time is over, and not before.", "AAEP-C-105", profile.TypeOf(aaep.TypeAwaitingConfirmation)),
	profile.Check("noted", "A rejection is taken note of.", "AAEP-C-106", Rejection),
	profile.Check("followed", "What was accepted is done.", "AAEP-C-107", Acceptance),
	profile.Check("asked-once", "The user is not asked twice at a time about one action.", "AAEP-C-108", profile.TypeOf(aaep.TypeAwaitingConfirmation)),
	profile.Check("safe-default", "What cannot be undone is rejected by default.", "AAEP-C-032", IrreversibleAsked),
	profile.Check("tokens", "A reply token is one question's.", "AAEP-C-053", Question),
	{ID: "replies", Text: "Only a reply to an open question in its time is acted on.", Checks: []string{"AAEP-C-109", "AAEP-C-110", "AAEP-C-111", "AAEP-C-113"}, Needs: []profile.Facet{Reply}},
	profile.Check("reply-form", "Replies have the form that AAEP gives them.", "AAEP-C-024", Reply),
	profile.Check("first-reply", "The first valid reply counts.", "AAEP-C-115", Reply),
	profile.Check("entitled", "Replies come from subscribers that may reply.", "AAEP-C-112", Reply),
	profile.WithHints(profile.Check("failed-replies", "Replies that fail are ignored.", "AAEP-C-114", Reply)),
	profile.Check("modified", "A producer that does not support changed actions takes one as a rejection.", "AAEP-C-116", Reply),
	profile.WithHints(profile.Check("automatic", "No program answers for the user, as far as the log can tell allowed from not allowed.", "AAEP-C-118", Reply)),
	{ID: "clarification", Text: "Clarifications are answered with what was offered.", Checks: []string{"AAEP-C-117", "AAEP-C-034", "AAEP-C-035"}, Needs: []profile.Facet{profile.TypeOf(aaep.TypeAwaitingClarification)}},
	profile.Check("left-open", "Questions are resolved when no subscriber that could answer is left.", "AAEP-C-120"),
	{ID: "handoff", Text: "An agent that cannot finish hands over.", Reason: "Whether an agent could have finished is in no event."},
}

// level3: what it adds is between an endpoint and its subscribers. What they agree
// on is judged where it is published; what was delivered to whom is not on the log.
var level3 = []profile.Requirement{
	profile.NotWhileOpen(OpenSubscriptionRequests, profile.Check("answers", "Every subscription request is answered.", "AAEP-C-150", SubscriptionRequests, SubscriptionAnswers)),
	profile.Check("no-more", "No more is granted than was asked for.", "AAEP-C-151", SubscriptionRequests, AcceptedSubscriptions),
	profile.Check("reasons", "Refusals give a reason that exists.", "AAEP-C-152", RefusedSubscriptions),
	profile.Check("versions", "Versions are negotiated.", "AAEP-C-153", SubscriptionRequests, SubscriptionAnswers),
	profile.Check("signed", "A subscriber that wants signed manifests gets them or is refused.", "AAEP-C-154", SignedOnly, AcceptedSubscriptions),
	profile.Check("prefixes", "Two extensions with one prefix are refused.", "AAEP-C-155"),
	profile.Check("tolerant", "What is unknown breaks nothing.", "AAEP-C-156"),
	profile.Check("rate", "Events come no faster than agreed.", "AAEP-C-157"),
	profile.Check("filters", "Filters are kept.", "AAEP-C-158"),
	profile.Check("never-late", "Critical events are never held back.", "AAEP-C-159"),
	profile.NotWhileOpen(OpenSubscriptionRequests, profile.Check("renegotiation", "New terms are answered and kept.", "AAEP-C-160", Renewal, SubscriptionAnswers)),
	profile.Check("closing", "A closed subscription is quiet.", "AAEP-C-161"),
	profile.Check("apart", "Subscribers do not slow each other down.", "AAEP-C-162"),
	profile.Check("manifest", "A signed manifest is its agent's and for the version that was agreed on, as far as can be told without a key.", "AAEP-C-165", SignedManifests),
}
