package hookcmd

// goesOn are events of agents that do not stop, but answer once more, if a hook of the event ends with some exit codes.
var goesOn = map[string]bool{"Stop": true, "SubagentStop": true, "AfterAgent": true}

// stopping is the gate's command line for goesOn: a gate that dies or is missing ends with an exit code that
// every agent only shows.
func stopping(command string) string { return command + " || exit 1" }

// commandOf is the gate's command line for an event.
func commandOf(command, event string) string {
	if goesOn[event] {
		return stopping(command)
	}
	return command
}
