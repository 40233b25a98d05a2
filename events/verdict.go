package events

// Verdict is the result of admission for one proposed call. The four values form one lattice,
// allow < ask < defer < deny; of several evaluators' verdicts the strictest counts.
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

// Strictness is the place of v in the lattice, 0 for allow up to 3 for deny. Any other value
// counts as deny, so that an unknown verdict can never loosen a known one.
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

// Strictest returns the strictest of the given verdicts, and deny if there are none: a call
// without a decision is not allowed.
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
