package catalogue

// aaepSessions are the checks over several events but for confirmations: 2.C,
// 2.D, 2.E and 2.G.
var aaepSessions = []Check{
	aaepCheck("050", "3.2.3, 8.2.4", Must, medium, ScopeSession, "events of the publisher", "One event id came with two contents.", fixIDs),
	aaepCheck("051", "3.2.4, 4.1.1", Must, medium, ScopeSession, "sessions of the publisher", "A session id is used for another session.", fixIDs),
	aaepCheck("052", "4.3.1", Must, high, ScopeSession, "invocations", "A tool call id is used for another invocation of the session.", fixIDs),
	aaepCheck("053", "6.2.2", Must, medium, ScopeSession, "questions of the publisher", "A reply token is used for another question.", fixIDs),
	aaepCheck("054", "3.2.4", Must, low, ScopeSession, "sessions of the publisher", "An event of a session that never began came in between those of another.", "Check whether the publisher mixes up its session ids."),

	aaepCheck("060", "4.1.1, 4.5.1", Must, medium, ScopeSession, "events in order", "An event came before its session had started.", fixOrder),
	aaepCheck("061", "4.1.1", Must, medium, ScopeSession, "events in order", "A session started more than once.", fixOrder),
	aaepCheck("062", "4.1, 4.1.2", Must, medium, ScopeSession, "events in order", "A session ended more than once.", fixOrder),
	aaepCheck("063", "4.5.1", Must, medium, ScopeSession, "events in order", "An event came after its session had ended.", fixOrder),
	aaepCheck("064", "9.3.1", Must, medium, ScopeSession, "events in order, log time; after 24 hours without an event", "A session fell silent and never ended.", fixOrder),
	aaepCheck("065", "3.4.1", Must, medium, ScopeSession, "events in order", "The sequence numbers of a session do not run from zero in steps of one.", fixOrder),
	aaepCheck("066", "3.2.5", Must, medium, ScopeSession, "events in order", "Time runs backwards within a session.", fixOrder),
	aaepCheck("067", "3.2.5", Must, info, ScopeEvent, "event, broker time (in a recording --now); more than 5 minutes ahead or 24 hours behind; said once a session", "A publisher's clock is far from the broker's.", "Check the publisher's clock."),
	aaepCheck("068", "4.2.1", Must, medium, ScopeSession, "events in order", "A session's first change of state does not begin at idle.", fixStates),
	aaepCheck("069", "4.2.1", Must, low, ScopeSession, "events in order", "A change of state begins elsewhere than the last one led, and nothing in between explains it.", fixStates),
	aaepCheck("070", "9.3.1", Must, info, ScopeSession, "whole session; said once", "The session did something in a state that it never announced.", fixStates),
	aaepCheck("071", "4.1.2", Derived, low, ScopeSession, "whole session; a duration that differs is a hint", "The figures that a session ends with are not those of its events.", fixText),

	aaepCheck("080", "4.5.2, 4.3.2", Must, high, ScopeSession, "invocations and completions", "A tool completed that the producer had not invoked.", fixTools),
	aaepCheck("081", "9.3.1, 4.3.2, A.3", Must, high, ScopeSession, "invocations and completions, log time", "A tool was invoked and never completed.", fixTools),
	aaepCheck("082", "4.3.2", Must, medium, ScopeSession, "invocation and completion", "Another tool completed than was invoked.", fixTools),
	aaepCheck("083", "A.3", Must, medium, ScopeSession, "invocations and completions", "An invocation completed more than once.", fixTools),
	aaepCheck("084", "4.3.1", Must, medium, ScopeSession, "invocation and completion", "Only one of invocation and completion has a tool call id.", fixTools),
	aaepCheck("085", "4.5.2", Should, low, ScopeSession, "invocations", "Invocations of one tool overlap without ids that tell them apart.", fixIDs),
	aaepCheck("086", "4.3.2", Derived, info, ScopeSession, "invocation and completion", "A tool's duration is not what its events show, or was announced.", fixText),
	aaepCheck("087", "4.3.2", Must, medium, ScopeSession, "events in order", "The agent left the state of calling a tool before the tool completed.", fixStates),
	aaepCheck("088", "4.1.1", Derived, low, ScopeSession, "session", "A tool was invoked that the session had not announced.", "List every tool in tools_available, or leave the list out."),
	aaepCheck("089", "4.3.1, 9.3.1", Must, medium, ScopeSession, "the same call as AgentHook reports it: its started_at against the time of the invocation", "A side effect began before the invocation was announced.", "Make the agent announce a tool before it runs it."),
}

// aaepStreams are the checks of streamed output: 2.G.
var aaepStreams = []Check{
	aaepCheck("140", "A.6", Must, medium, ScopeSession, "chunks of an output", "The position within an output went back.", fixStream),
	aaepCheck("141", "4.3.3", Must, medium, ScopeSession, "chunks of an output", "A chunk does not begin where the one before it ended.", fixStream),
	aaepCheck("142", "4.5.4", Must, medium, ScopeSession, "chunks of an output; a hint if the session failed or was cancelled", "An output was closed never, or more than once.", fixStream),
	aaepCheck("143", "4.5.4", Must, medium, ScopeSession, "chunks of an output", "A chunk came after its output was closed.", fixStream),
	aaepCheck("144", "4.3.3", Derived, low, ScopeSession, "chunks of a session", "Some chunks of a session say which output they are of, and some do not.", fixStream),
}
