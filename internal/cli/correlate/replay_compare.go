package correlate

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"github.com/countersign-dev/countersign/correlation"
	"github.com/countersign-dev/countersign/events"
)

// replayReport is the result of a replay, for one incarnation of the log.
type replayReport struct {
	Tenant       string           `json:"tenant"`
	Session      string           `json:"session"`
	Shard        string           `json:"shard"`
	From         string           `json:"from"`
	Whole        bool             `json:"whole_shard"`
	Messages     int              `json:"messages"` // replayed
	Proved       bool             `json:"proved"`   // the records that were read are proved complete
	Recorded     tally            `json:"recorded"`
	Replayed     tally            `json:"replayed"`
	Erased       []uint64         `json:"erased,omitempty"`    // sequences of the erasure records that name the session
	Same         bool             `json:"same"`                // no difference in what can be compared
	Differences  []outputMismatch `json:"differences"`         // outputs that differ
	Inconclusive []outputMismatch `json:"inconclusive"`        // apparent differences that cannot be compared
	Pending      int              `json:"not_recorded_yet"`    // from messages that the correlator may not have handled yet
	Reidentified int              `json:"same_but_for_the_id"` // findings with an id over bytes that evidence does not hold
}

type tally struct {
	Calls    int `json:"calls"` // records: a call can have several
	Findings int `json:"findings"`
}

// outputMismatch is one call record or finding that differs from its replay.
type outputMismatch struct {
	ID     string          `json:"id"`
	Seq    uint64          `json:"seq"` // of the record, or of the input of the replayed output
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

// blind lists what the replay could not see.
type blind struct {
	noKey  bool // no digest keys: digests cannot be made
	copies bool // not the messages' own bytes: evidence has their canonical form
	alone  bool // not the other sessions, which this one may be linked to
}

// ofArguments are the rules, and argumentField the members of calls, that depend on digests of
// arguments.
var (
	ofArguments   = []string{correlation.InputDrift, correlation.ReusedToolCallID, "AH-C-080", "AAEP-C-082", "AH-C-052"}
	argumentField = []string{"match", "admitted_digest", "executed_digest", "match_reason", "differences", "more_differences"}
)

// parentField is the member of calls that depends on other sessions. ofOthers are the rules that may
// depend on them: on the origin of a receipt, on what is reported once per publisher, and on
// state kept of a publisher or its tenant over all sessions.
const parentField = "parent"

var ofOthers = []string{
	correlation.ReceiptReused, "AAEP-C-051", "AAEP-C-053", "AAEP-C-054", "AAEP-C-112", "AH-C-043", "AH-C-071", "AH-C-122", "AH-C-127", "AH-C-129", "AH-C-165",
	"AUMP-E-002", "AUMP-E-003", "AUMP-E-005", "AUMP-E-010", "AUMP-E-011",
}

// outputView is the form in which outputs are compared.
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

// what describes an output for display.
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

// comparison matches recorded and replayed outputs.
type comparison struct {
	rec    *recording
	blind  blind
	report *replayReport
	about  map[string][]uint64 // by call id: messages that a call rests on
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

// unpaired handles outputs that exist on one side only. If the replay had only copies, the same
// finding may have another id.
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

// alike compares findings without their ids.
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
	parentDiffers := false
	for _, name := range names {
		a, b := recorded.members[name], replayed.members[name]
		if bytes.Equal(a, b) {
			continue
		}
		m.Fields = append(m.Fields, fieldMismatch{name, a, b})
		switch {
		case c.blind.alone && (name == parentField || name == "findings" && onlyOf(ofOthers, recorded.findings, replayed.findings)):
			parentDiffers = true
		case slices.Contains(argumentField, name):
		case name == "findings" && onlyOf(ofArguments, recorded.findings, replayed.findings):
		default:
			other = append(other, name)
		}
	}
	why := c.doubt(recorded, true, other)
	if why == "" && parentDiffers && len(m.Fields) == 1 {
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

// doubt returns why a mismatch proves nothing, "" if it proves a difference. same means that the
// output exists on both sides; other then lists its differing members that do not depend on
// digests.
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
