package correlation

// usualWords are texts that most calls have, by the code that wordCode gives them.
var usualWords = [...]string{
	protoAAEP, protoAgentHook, "tool", "handoff", "aana", "aump",
	stepRequested, stepDecided, stepInvoked, stepCompleted, stepClosed, stepTraced,
	"allow", "ask", "defer", "deny", statusPending, statusApproved, statusConsumed,
	"failed", "denied", "abandoned", "orphaned", matchEqual, matchDrift, matchInconclusive, "succeeded", "success", "error",
}

// wordCode is how a usual word is written; 0 if it is none.
func wordCode(w string) byte {
	switch w {
	case protoAAEP:
		return 1
	case protoAgentHook:
		return 2
	case "tool":
		return 3
	case "handoff":
		return 4
	case "aana":
		return 5
	case "aump":
		return 6
	case stepRequested:
		return 7
	case stepDecided:
		return 8
	case stepInvoked:
		return 9
	case stepCompleted:
		return 10
	case stepClosed:
		return 11
	case stepTraced:
		return 12
	case "allow":
		return 13
	case "ask":
		return 14
	case "defer":
		return 15
	case "deny":
		return 16
	case statusPending:
		return 17
	case statusApproved:
		return 18
	case statusConsumed:
		return 19
	case "failed":
		return 20
	case "denied":
		return 21
	case "abandoned":
		return 22
	case "orphaned":
		return 23
	case matchEqual:
		return 24
	case matchDrift:
		return 25
	case matchInconclusive:
		return 26
	case "succeeded":
		return 27
	case "success":
		return 28
	case "error":
		return 29
	}
	return 0
}

// word is a text that may be a usual one.
func word[T ~string](p *folding, s *T) {
	t := string(*s)
	if p.reading {
		*s = T(p.readText())
		return
	}
	if code := wordCode(t); code != 0 {
		p.b = append(p.b, code)
		return
	}
	p.text(&t)
}
