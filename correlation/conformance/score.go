package conformance

import (
	"maps"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/correlation/conformance/profile"
)

// Score counts the requirements of a profile by their outcome.
type Score struct {
	Held         int `json:"held"`
	Broken       int `json:"broken"`
	NotExercised int `json:"not_exercised"`
	Undecidable  int `json:"undecidable"`
	Excused      int `json:"excused"`
	Total        int `json:"total"`
}

// RequirementResult is what came of one requirement.
type RequirementResult struct {
	ID      string   `json:"id"`
	Text    string   `json:"demands"`
	Checks  []string `json:"checks,omitempty"`
	Outcome Outcome  `json:"outcome"`
	Judged  uint64   `json:"judged"`            // how many there were of What
	What    string   `json:"what,omitempty"`    // there was, or would have to be, to judge
	Broke   []string `json:"broke,omitempty"`   // the rules that were broken
	Count   int      `json:"findings"`          // that stand
	Seqs    []uint64 `json:"seqs,omitempty"`    // that prove them, the first few
	Reason  string   `json:"reason,omitempty"`  // why it is undecidable
	Hard    bool     `json:"hard,omitempty"`    // no score outweighs it
	Partial bool     `json:"partial,omitempty"` // a session was too large for all of it to be remembered
}

// Report is what came of a profile for a publisher or a session.
type Report struct {
	Judged
	Profile        string              `json:"profile"`
	CheckedAgainst string              `json:"checked_against"`
	Outcome        Outcome             `json:"outcome"`
	Certification  bool                `json:"certification"` // never true
	Percent        int                 `json:"percent"`       // of the requirements that are not excused must hold
	Score          Score               `json:"score"`
	Includes       *Report             `json:"includes,omitempty"` // the profile that must be met as well
	Results        []RequirementResult `json:"requirements"`
}

const maxSeqs = 8

// Report judges a subject by a profile. notExposed are the event types that the
// publisher declares its runtime not to expose; what appeared nonetheless is not
// excused.
func (t *Tally) Report(p profile.Profile, s Judged, notExposed map[string]bool) Report {
	view := t.viewOf(p.Protocol, s)
	r := Report{Judged: s, Profile: p.Name, CheckedAgainst: p.Title, Percent: p.Percent}
	for _, q := range p.Requirements {
		l := t.judgeRequirement(q, view, notExposed)
		r.Results = append(r.Results, l)
		r.Score.addOutcome(l.Outcome)
	}
	r.Outcome = r.ownOutcome()
	if lower, ok := FindProfile(p.Includes); ok {
		below := t.Report(lower, s, notExposed)
		r.Includes = &below
		r.Outcome = worseOutcome(r.Outcome, below.Outcome)
	}
	return r
}

// Claims tells whether a subject shows a sign of claiming a profile.
func (t *Tally) Claims(p profile.Profile, s Judged) bool {
	v := t.viewOf(p.Protocol, s)
	return len(p.ClaimSigns) == 0 || slices.ContainsFunc(p.ClaimSigns, func(f profile.Facet) bool { return v.counts[f] > 0 })
}

// subjectView is all that was seen of a subject.
type subjectView struct {
	counts           map[profile.Facet]uint64
	standingFindings map[string][]standingFinding
	partial          bool
}

func (t *Tally) viewOf(protocol string, s Judged) subjectView {
	v := subjectView{counts: map[profile.Facet]uint64{}, standingFindings: map[string][]standingFinding{}}
	sessions := t.sessionsOf(protocol)
	for p, o := range sessions.All() {
		if !s.coversSession(p) {
			continue
		}
		for f, n := range o.Counts {
			v.counts[f] += n
		}
		for _, b := range protocols[protocol].borrowed {
			if other := t.sessionsOf(b.protocol).Find(p); other != nil {
				v.counts[b.as] += other.Counts[b.facet]
			}
		}
		v.partial = v.partial || o.IsPartial()
		o.AddOpenCounts(v.counts)
	}
	if complete := protocols[protocol].CompleteView; complete != nil {
		complete(v.counts)
	}
	for p, at := range t.findingsBySession {
		if !s.coversSession(p) {
			continue
		}
		for rule, list := range at.standing {
			if isOwnRule(rule) && sessions.Find(p) == nil {
				continue // it is about the other protocol's calls
			}
			for _, id := range slices.Sorted(maps.Keys(list)) {
				if !at.retracted[id] {
					v.standingFindings[rule] = append(v.standingFindings[rule], list[id])
				}
			}
		}
	}
	return v
}

// isOwnRule tells rules that hold in every protocol from a protocol's checks.
func isOwnRule(rule string) bool { return strings.ToLower(rule) == rule }

func (t *Tally) judgeRequirement(q profile.Requirement, v subjectView, notExposed map[string]bool) RequirementResult {
	l := RequirementResult{ID: q.ID, Text: q.Text, Checks: q.Checks, Hard: q.Mandatory, Partial: v.partial}
	for _, need := range q.Needs {
		if l.Judged, l.What = v.counts[need], string(need); l.Judged == 0 {
			break
		}
	}
	for _, check := range q.Checks {
		l.addFindings(check, v.standingFindings[check], q.Hints)
	}
	if n := v.counts[q.BrokenBy]; q.BrokenBy != "" && n > 0 {
		l.Broke, l.Count = append(l.Broke, string(q.BrokenBy)), l.Count+int(n)
	}
	slices.Sort(l.Seqs)
	l.Seqs = slices.Compact(l.Seqs)
	l.Seqs = l.Seqs[:min(len(l.Seqs), maxSeqs)]
	off := slices.ContainsFunc(q.Checks, func(c string) bool { return t.rulesOff[c] })
	switch {
	case l.Count > 0:
		l.Outcome = Broken
	case undecidableReason(q) != "":
		l.Outcome, l.Reason = Undecidable, undecidableReason(q)
	case off:
		l.Outcome, l.Reason = Undecidable, "A rule that it takes is, or was, switched off for this tenant."
	case l.Judged > 0 && v.counts[q.Pending] > 0:
		l.Outcome, l.Reason = NotExercised, "Some of it is still "+string(q.Pending)+"."
	case l.Judged > 0:
		l.Outcome = Held
	case q.EventType != "" && notExposed[q.EventType]:
		l.Outcome = Excused
	default:
		l.Outcome = NotExercised
	}
	return l
}

// addFindings adds the findings of a rule.
func (l *RequirementResult) addFindings(rule string, list []standingFinding, hints bool) {
	n := 0
	for _, f := range list {
		if f.hint && !hints {
			continue
		}
		n++
		l.Seqs = append(l.Seqs, f.seqs...)
	}
	if n > 0 {
		l.Broke, l.Count = append(l.Broke, rule), l.Count+n
	}
}

func (s *Score) addOutcome(o Outcome) {
	s.Total++
	switch o {
	case Held:
		s.Held++
	case Broken:
		s.Broken++
	case NotExercised:
		s.NotExercised++
	case Undecidable:
		s.Undecidable++
	case Excused:
		s.Excused++
	}
}

// ownOutcome is that of the profile's own requirements. It is met if enough held,
// not met if not enough could hold any more, and otherwise not shown.
func (r Report) ownOutcome() Outcome {
	asked := r.Score.Total - r.Score.Excused
	shown := true
	for _, l := range r.Results {
		if l.Hard && l.Outcome == Broken {
			return NotMet
		}
		shown = shown && (!l.Hard || l.Outcome == Held)
	}
	switch {
	case (asked-r.Score.Broken)*100 < r.Percent*asked:
		return NotMet
	case shown && asked > 0 && r.Score.Held*100 >= r.Percent*asked:
		return Met
	}
	return NotShown
}

var outcomeOrder = []Outcome{Met, NotShown, NotMet}

func worseOutcome(a, b Outcome) Outcome {
	return outcomeOrder[max(slices.Index(outcomeOrder, a), slices.Index(outcomeOrder, b))]
}
