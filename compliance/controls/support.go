package controls

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/evidence"
)

// maxRules bounds the distinct names that are counted, because a log can contain any names.
const maxRules = 1000

// Counts counts records and findings for the control index.
type Counts struct {
	kinds, control, rules map[string]int
	index                 map[string]bool // every rule and check that an entry names
}

// NewCounts makes empty counts.
func NewCounts() *Counts {
	s := &Counts{kinds: map[string]int{}, control: map[string]int{}, rules: map[string]int{}, index: map[string]bool{}}
	for _, e := range parseIndex().Entries {
		for _, r := range slices.Concat(e.From.Rules, e.From.Checks) {
			s.index[r] = true
		}
	}
	return s
}

// Add counts one record. CountFinding counts what a finding says.
func (s *Counts) Add(r evidence.Record) {
	s.kinds[r.Kind]++
	if kind := r.Subject[strings.LastIndexByte(r.Subject, '.')+1:]; r.Kind == evidence.KindControl && len(s.control) < maxRules {
		s.control[kind]++
	}
}

// CountFinding adds n findings of a rule; n is -1 for one that is retracted.
func (s *Counts) CountFinding(rule string, n int) {
	if s.index[rule] {
		s.rules[rule] += n
	}
}

// Support says which entries of the index some evidence bears on.
type Support struct {
	Format     string `json:"format"`
	Edition    string `json:"edition"`
	Disclaimer string `json:"disclaimer"`
	// Entries are the entries with records, and how many.
	Entries []SupportedEntry `json:"entries"`
	// Without lists the entries that could have records but have none here.
	Without []Missing `json:"no_records_here"`
	// NotCovered lists the entries that no evidence of this kind can show.
	NotCovered []Missing `json:"not_covered"`
}

// SupportedEntry is an entry with the counts of its evidence.
type SupportedEntry struct {
	Entry
	Records  map[string]int `json:"records"`  // by kind of record
	Findings map[string]int `json:"findings"` // that stand, by rule; only the rules of this entry
}

// Missing is an entry without evidence.
type Missing struct {
	ID    string `json:"id"`
	Title string `json:"title"`
}

// Support compares the counts with the index.
func (s *Counts) Support() Support {
	all := parseIndex()
	out := Support{Format: Format, Edition: all.Edition, Disclaimer: all.Disclaimer, Entries: []SupportedEntry{}, Without: []Missing{}, NotCovered: []Missing{}}
	for _, e := range all.Entries {
		b := SupportedEntry{Entry: e, Records: map[string]int{}, Findings: map[string]int{}}
		copyCounts(b.Records, e.From.Kinds, s.kinds)
		copyCounts(b.Records, e.From.Control, s.control)
		copyCounts(b.Findings, e.From.Rules, s.rules)
		copyCounts(b.Findings, e.From.Checks, s.rules)
		switch {
		case e.Coverage == None:
			out.NotCovered = append(out.NotCovered, Missing{e.ID, e.Title})
		case len(b.Records)+len(b.Findings) == 0:
			out.Without = append(out.Without, Missing{e.ID, e.Title})
		default:
			out.Entries = append(out.Entries, b)
		}
	}
	return out
}

func copyCounts(into map[string]int, wanted []string, counts map[string]int) {
	for _, w := range wanted {
		if n := counts[w]; n > 0 {
			into[w] = n
		}
	}
}

// Encode encodes the member controls.json: the same bytes for equal Supports.
func (s Support) Encode() ([]byte, error) {
	out, err := json.MarshalIndent(s, "", "  ") // sorts the keys of maps
	if err != nil {
		return nil, err
	}
	return append(out, '\n'), nil
}
