package events

// Verdict is what admission says about one proposed call. The four values form
// one lattice, allow < ask < defer < deny; where several evaluators judge the
// same call the strictest verdict stands (architecture section 5).
type Verdict string

// The verdicts, from the least to the most strict.
const (
	Allow Verdict = "allow"
	Ask   Verdict = "ask"
	Defer Verdict = "defer"
	Deny  Verdict = "deny"
)

// Verdicts lists every verdict in order of strictness.
var Verdicts = []Verdict{Allow, Ask, Defer, Deny}

// Strictness places v in the lattice, 0 for allow up to 3 for deny. A value
// that is none of the four counts as deny, so that a verdict nobody knows can
// never loosen one that is known.
func (v Verdict) Strictness() int {
	for i, known := range Verdicts {
		if v == known {
			return i
		}
	}
	return len(Verdicts) - 1
}

// Valid reports whether v is one of the four verdicts.
func (v Verdict) Valid() bool {
	return v == Deny || v.Strictness() < Deny.Strictness()
}

// Strictest returns the strictest of the given verdicts, and deny when there is
// none: nothing that was not decided is allowed.
func Strictest(vs ...Verdict) Verdict {
	if len(vs) == 0 {
		return Deny
	}
	worst := 0
	for _, v := range vs {
		worst = max(worst, v.Strictness())
	}
	return Verdicts[worst]
}
