package checks

import (
	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/events"
)

// sessionChecks are the checks over several events but for confirmations: 2.C,
// 2.D, 2.E and 2.G.
var sessionChecks = []catalogue.Check{
	specification.Check("050", "3.2.3, 8.2.4", catalogue.Must, events.SeverityMedium, catalogue.ScopeSession, "events of the publisher", "One event id came with two contents.", catalogue.FixIDs),
	specification.Check("051", "3.2.4, 4.1.1", catalogue.Must, events.SeverityMedium, catalogue.ScopeSession, "sessions of the publisher", "A session id is used for another session.", catalogue.FixIDs),
	specification.Check("052", "4.3.1", catalogue.Must, events.SeverityHigh, catalogue.ScopeSession, "invocations", "A tool call id is used for another invocation of the session.", catalogue.FixIDs),
	specification.Check("053", "6.2.2", catalogue.Must, events.SeverityMedium, catalogue.ScopeSession, "questions of the publisher", "A reply token is used for another question.", catalogue.FixIDs),
	specification.Check("054", "3.2.4", catalogue.Must, events.SeverityLow, catalogue.ScopeSession, "sessions of the publisher", "An event of a session that never began came in between those of another.", "Check whether the publisher mixes up its session ids."),

	specification.Check("060", "4.1.1, 4.5.1", catalogue.Must, events.SeverityMedium, catalogue.ScopeSession, "events in order", "An event came before its session had started.", catalogue.FixOrder),
	specification.Check("061", "4.1.1", catalogue.Must, events.SeverityMedium, catalogue.ScopeSession, "events in order", "A session started more than once.", catalogue.FixOrder),
	specification.Check("062", "4.1, 4.1.2", catalogue.Must, events.SeverityMedium, catalogue.ScopeSession, "events in order", "A session ended more than once.", catalogue.FixOrder),
	specification.Check("063", "4.5.1", catalogue.Must, events.SeverityMedium, catalogue.ScopeSession, "events in order", "An event came after its session had ended.", catalogue.FixOrder),
	specification.Check("064", "9.3.1", catalogue.Must, events.SeverityMedium, catalogue.ScopeSession, "events in order, log time; after 24 hours without an event", "A session fell silent and never ended.", catalogue.FixOrder),
	specification.Check("065", "3.4.1", catalogue.Must, events.SeverityMedium, catalogue.ScopeSession, "events in order", "The sequence numbers of a session do not run from zero in steps of one.", catalogue.FixOrder),
	specification.Check("066", "3.2.5", catalogue.Must, events.SeverityMedium, catalogue.ScopeSession, "events in order", "Time runs backwards within a session.", catalogue.FixOrder),
	specification.Check("067", "3.2.5", catalogue.Must, events.SeverityInfo, catalogue.ScopeEvent, "event, broker time (in a recording --now); more than 5 minutes ahead or 24 hours behind; said once a session", "A publisher's clock is far from the broker's.", "Check the publisher's clock."),
	specification.Check("068", "4.2.1", catalogue.Must, events.SeverityMedium, catalogue.ScopeSession, "events in order", "A session's first change of state does not begin at idle.", fixStates),
	specification.Check("069", "4.2.1", catalogue.Must, events.SeverityLow, catalogue.ScopeSession, "events in order; the last change of the agent, or of any", "A change of state begins elsewhere than the last one led, and nothing in between explains it.", fixStates),
	specification.Check("070", "9.3.1", catalogue.Must, events.SeverityInfo, catalogue.ScopeSession, "whole session; said once", "The session did something in a state that it never announced.", fixStates),
	specification.Check("071", "4.1.2", catalogue.Derived, events.SeverityLow, catalogue.ScopeSession, "whole session; a duration that differs is a hint", "The figures that a session ends with are not those of its events.", fixText),

	specification.Check("080", "4.5.2, 4.3.2", catalogue.Must, events.SeverityHigh, catalogue.ScopeSession, "invocations and completions", "A tool completed that the producer had not invoked.", catalogue.FixTools),
	specification.Check("081", "9.3.1, 4.3.2, A.3", catalogue.Must, events.SeverityHigh, catalogue.ScopeSession, "invocations and completions, log time", "A tool was invoked and never completed.", catalogue.FixTools),
	specification.Check("082", "4.3.2", catalogue.Must, events.SeverityMedium, catalogue.ScopeSession, "invocation and completion", "Another tool completed than was invoked.", catalogue.FixTools),
	specification.Check("083", "A.3", catalogue.Must, events.SeverityMedium, catalogue.ScopeSession, "invocations and completions", "An invocation completed more than once.", catalogue.FixTools),
	specification.Check("084", "4.3.1", catalogue.Must, events.SeverityMedium, catalogue.ScopeSession, "invocation and completion", "Only one of invocation and completion has a tool call id.", catalogue.FixTools),
	specification.Check("085", "4.5.2", catalogue.Should, events.SeverityLow, catalogue.ScopeSession, "invocations", "Invocations of one tool overlap without ids that tell them apart.", catalogue.FixIDs),
	specification.Check("086", "4.3.2", catalogue.Derived, events.SeverityInfo, catalogue.ScopeSession, "invocation and completion", "A tool's duration is not what its events show, or was announced.", fixText),
	specification.Check("087", "4.3.2", catalogue.Must, events.SeverityMedium, catalogue.ScopeSession, "events in order, by agent", "The agent left the state of calling a tool before the tool completed.", fixStates),
	specification.Check("088", "4.1.1", catalogue.Derived, events.SeverityLow, catalogue.ScopeSession, "session", "A tool was invoked that the session had not announced.", "List every tool in tools_available, or leave the list out."),
	specification.Check("089", "4.3.1, 9.3.1", catalogue.Must, events.SeverityMedium, catalogue.ScopeSession, "the same call as AgentHook reports it: its started_at against the time of the invocation", "A side effect began before the invocation was announced.", "Make the agent announce a tool before it runs it."),
}

// streamChecks are the checks of streamed output: 2.G.
var streamChecks = []catalogue.Check{
	specification.Check("140", "A.6", catalogue.Must, events.SeverityMedium, catalogue.ScopeSession, "chunks of an output", "The position within an output went back.", fixStream),
	specification.Check("141", "4.3.3", catalogue.Must, events.SeverityMedium, catalogue.ScopeSession, "chunks of an output", "A chunk does not begin where the one before it ended.", fixStream),
	specification.Check("142", "4.5.4", catalogue.Must, events.SeverityMedium, catalogue.ScopeSession, "chunks of an output; a hint if the session failed or was cancelled", "An output was closed never, or more than once.", fixStream),
	specification.Check("143", "4.5.4", catalogue.Must, events.SeverityMedium, catalogue.ScopeSession, "chunks of an output", "A chunk came after its output was closed.", fixStream),
	specification.Check("144", "4.3.3", catalogue.Derived, events.SeverityLow, catalogue.ScopeSession, "chunks of a session", "Some chunks of a session say which output they are of, and some do not.", fixStream),
}
