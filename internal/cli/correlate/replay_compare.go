package correlate

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"github.com/countersign-dev/countersign/correlation"
	"github.com/countersign-dev/countersign/events"
)

// replayReport is what a replay came to, for one incarnation of the log.
type replayReport struct {
	Tenant       string           `json:"tenant"`
	Session      string           `json:"session"`
	Shard        string           `json:"shard"`
	From         string           `json:"from"`
	Whole        bool             `json:"whole_shard"`
	Messages     int              `json:"messages"` // replayed
	Proved       bool             `json:"proved"`   // the records that it was read from are proved to be all
	Recorded     tally            `json:"recorded"`
	Replayed     tally            `json:"replayed"`
	Same         bool             `json:"same"`                // nothing that can be compared differs
	Differences  []outputMismatch `json:"differences"`         // what differs
	Inconclusive []outputMismatch `json:"inconclusive"`        // what seems to differ and cannot be compared
	Pending      int              `json:"not_recorded_yet"`    // came out of messages that the correlator may not have dealt with
	Reidentified int              `json:"same_but_for_the_id"` // findings whose id is made of bytes that evidence does not hold
}

type tally struct {
	Calls    int `json:"calls"` // records: a call can have several
	Findings int `json:"findings"`
}

// outputMismatch is one call record or finding that did not come out as it was
// recorded.
type outputMismatch struct {
	ID     string          `json:"id"`
	Seq    uint64          `json:"seq"` // of the record, or of the message that it came out of again
	What   string          `json:"what"`
	Kind   string          `json:"kind"` // not_recorded, not_replayed, recorded_twice, differs
	Fields []fieldMismatch `json:"fields,omitempty"`
	Why    string          `json:"why_inconclusive,omitempty"`
}

type fieldMismatch struct {
	Field    string          `json:"field"`
	Recorded json.RawMessage `json:"recorded,omitempty"`
	Replayed json.RawMessage `json:"replayed,omitempty"`
}

// blind says what the replay could not see.
type blind struct {
	noKey  bool // the keys of digests: they cannot be made
	copies bool // the messages' own bytes: evidence has their canonical form
	alone  bool // other sessions, which this one may belong to
}

// ofArguments are the rules, and the members of calls, that depend on digests of
// arguments.
var (
	ofArguments   = []string{correlation.InputDrift, correlation.ReusedToolCallID, "AH-C-080", "AAEP-C-082", "AH-C-052"}
	argumentField = []string{"match", "admitted_digest", "executed_digest", "match_reason", "differences", "more_differences"}
)

// kinField is the member of calls that depends on other sessions, and ofOthers are
// the rules that may: whose receipt it was, what is said once of a publisher, and
// what is remembered of one or of its tenant over all sessions.
const kinField = "parent"

var ofOthers = []string{
	correlation.ReceiptReused, "AAEP-C-051", "AAEP-C-053", "AAEP-C-054", "AAEP-C-112", "AH-C-043", "AH-C-071", "AH-C-122", "AH-C-127", "AH-C-129", "AH-C-165",
	"AUMP-E-002", "AUMP-E-003", "AUMP-E-005", "AUMP-E-010", "AUMP-E-011",
}

// outputView is what the comparison looks at.
type outputView struct {
	output
	members  map[string]json.RawMessage
	callID   string
	rule     string
	seqs     []uint64
	findings []string
}

func viewOf(o output) outputView {
	v := outputView{output: o}
	_ = json.Unmarshal(o.body, &v.members)
	if o.call {
		var c events.Call
		_ = json.Unmarshal(o.body, &c)
		v.callID, v.findings, v.seqs = c.CallID, c.Findings, []uint64{c.DecisionSeq, c.ExecutionSeq}
		for _, s := range c.Timeline {
			v.seqs = append(v.seqs, s.Seq)
		}
		return v
	}
	var f events.Finding
	_ = json.Unmarshal(o.body, &f)
	v.callID, v.rule, v.seqs = f.CallID, f.Rule, slices.Clone(f.Seqs)
	return v
}

// what names an output for people.
func (v outputView) what() string {
	if v.call {
		return "call " + text(v.members["call_id"]) + " " + text(v.members["state"]) + ", tool " + text(v.members["tool"])
	}
	return "finding " + v.rule
}

func text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return string(raw)
	}
	return s
}

// comparison brings together what was recorded and what came out again.
type comparison struct {
	rec    *recording
	blind  blind
	report *replayReport
	about  map[string][]uint64 // messages that a call rests on, by its id
}

func compareOutputs(rec *recording, again []output, b blind) *replayReport {
	c := comparison{rec: rec, blind: b, about: map[string][]uint64{},
		report: &replayReport{Recorded: tallyOf(rec.recorded), Replayed: tallyOf(again), Differences: []outputMismatch{}, Inconclusive: []outputMismatch{}}}
	recorded, replayed := c.views(rec.recorded), map[string]outputView{}
	for _, v := range c.views(again) {
		replayed[v.id] = v
	}
	seen := map[string]bool{}
	var missing []outputView
	for _, v := range recorded {
		other, there := replayed[v.id]
		switch {
		case seen[v.id]:
			c.report.Differences = append(c.report.Differences, outputMismatch{ID: v.id, Seq: v.seq, What: v.what(), Kind: "recorded_twice"})
		case !there:
			missing = append(missing, v)
		case !bytes.Equal(v.body, other.body):
			c.differs(v, other)
		}
		seen[v.id] = true
	}
	var surplus []outputView
	for _, o := range again {
		if v := replayed[o.id]; !seen[o.id] {
			surplus = append(surplus, v)
		}
	}
	c.unpaired(missing, surplus)
	c.report.Same = len(c.report.Differences) == 0
	return c.report
}

func (c *comparison) views(list []output) []outputView {
	views := make([]outputView, len(list))
	for i, o := range list {
		v := viewOf(o)
		c.about[v.callID] = append(c.about[v.callID], v.seqs...)
		views[i] = v
	}
	return views
}

func tallyOf(list []output) (t tally) {
	for _, o := range list {
		if o.call {
			t.Calls++
		} else {
			t.Findings++
		}
	}
	return t
}

// unpaired deals with what is there on one side only. Where the replay had no
// more than copies, an id may be another one and the finding the same.
func (c *comparison) unpaired(missing, surplus []outputView) {
	for _, v := range missing {
		if c.blind.copies && !v.call {
			if i := slices.IndexFunc(surplus, func(s outputView) bool { return !s.call && alike(v, s) }); i >= 0 {
				surplus = slices.Delete(surplus, i, i+1)
				c.report.Reidentified++
				continue
			}
		}
		c.note(outputMismatch{ID: v.id, Seq: v.seq, What: v.what(), Kind: "not_replayed"}, c.doubt(v, false, nil))
	}
	for _, v := range surplus {
		if v.seq > c.rec.consumed {
			c.report.Pending++
			continue
		}
		c.note(outputMismatch{ID: v.id, Seq: v.seq, What: v.what(), Kind: "not_recorded"}, c.doubt(v, false, nil))
	}
}

// alike compares findings but for their ids.
func alike(a, b outputView) bool {
	x, y := maps.Clone(a.members), maps.Clone(b.members)
	for _, m := range []map[string]json.RawMessage{x, y} {
		delete(m, "finding_id")
		delete(m, "withdraws")
	}
	return len(a.members["withdraws"]) > 0 == (len(b.members["withdraws"]) > 0) && maps.EqualFunc(x, y, func(m, n json.RawMessage) bool { return bytes.Equal(m, n) })
}

func (c *comparison) differs(recorded, replayed outputView) {
	m := outputMismatch{ID: recorded.id, Seq: recorded.seq, What: recorded.what(), Kind: "differs"}
	names := slices.Sorted(maps.Keys(recorded.members))
	for name := range replayed.members {
		if _, there := recorded.members[name]; !there {
			names = append(names, name)
		}
	}
	var other []string
	kin := false
	for _, name := range names {
		a, b := recorded.members[name], replayed.members[name]
		if bytes.Equal(a, b) {
			continue
		}
		m.Fields = append(m.Fields, fieldMismatch{name, a, b})
		switch {
		case c.blind.alone && (name == kinField || name == "findings" && onlyOf(ofOthers, recorded.findings, replayed.findings)):
			kin = true
		case slices.Contains(argumentField, name):
		case name == "findings" && onlyOf(ofArguments, recorded.findings, replayed.findings):
		default:
			other = append(other, name)
		}
	}
	why := c.doubt(recorded, true, other)
	if why == "" && kin && len(m.Fields) == 1 {
		why = restsOnOthers
	}
	c.note(m, why)
}

const restsOnOthers = "rests on other sessions (--whole reads them, too)"

// onlyOf reports whether two lists of rules differ only in those of a third.
func onlyOf(rules, a, b []string) bool {
	keep := func(list []string) []string {
		return slices.DeleteFunc(slices.Clone(list), func(r string) bool { return slices.Contains(rules, r) })
	}
	return slices.Equal(keep(a), keep(b))
}

// doubt says why a mismatch proves nothing, "" if it does. same is for an output
// that is there on both sides; other are then its members that differ and do not
// depend on digests.
func (c *comparison) doubt(v outputView, same bool, other []string) string {
	if v.hidden {
		return "its copy is redacted"
	}
	seqs := append(slices.Clone(v.seqs), c.about[v.callID]...)
	if v.callID == "" {
		seqs = v.seqs
	}
	for _, s := range seqs {
		if c.rec.hidden[s] {
			return "rests on what is redacted in the evidence"
		}
	}
	if c.blind.alone && slices.Contains(ofOthers, v.rule) {
		return restsOnOthers
	}
	if c.blind.noKey && (slices.Contains(ofArguments, v.rule) || same && len(other) == 0) {
		return "depends on digests, which need the session's key (--keys DIR with master.key, --keys-user)"
	}
	return ""
}

func (c *comparison) note(m outputMismatch, why string) {
	if m.Why = why; why != "" {
		c.report.Inconclusive = append(c.report.Inconclusive, m)
		return
	}
	c.report.Differences = append(c.report.Differences, m)
}
