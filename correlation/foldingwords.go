package correlation

// codedWords are texts that most calls have, by the code that wordCode gives them.
var codedWords = [...]string{
	protoAAEP, protoAgentHook, "tool", "handoff", "aana", "aump",
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
	case "allow":
		return 7
	case "ask":
		return 8
	case "defer":
		return 9
	case "deny":
		return 10
	case statusPending:
		return 11
	case statusApproved:
		return 12
	case statusConsumed:
		return 13
	case "failed":
		return 14
	case "denied":
		return 15
	case "abandoned":
		return 16
	case "orphaned":
		return 17
	case matchEqual:
		return 18
	case matchDrift:
		return 19
	case matchInconclusive:
		return 20
	case "succeeded":
		return 21
	case "success":
		return 22
	case "error":
		return 23
	}
	return 0
}

// codeWord is a text that may be a usual one.
func codeWord[T ~string](p *detailsCodec, s *T) {
	t := string(*s)
	if p.reading {
		*s = T(p.readText())
		return
	}
	if code := wordCode(t); code != 0 {
		p.output = append(p.output, code)
		return
	}
	p.codeText(&t)
}
