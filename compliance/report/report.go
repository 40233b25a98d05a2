// Package report renders evidence as one HTML page: self-contained, without a script, the same bytes for
// the same evidence. It shows names, times, identifiers, digests, verdicts and reasons. It does not
// show the contents of requests and events, redacted or not. Package bundle feeds a Builder with
// records and stores the page in the bundle.
//
// All text from a record is untrusted: it is made visible character by character (see Visible), bounded,
// and escaped by html/template. Begin with Builder; page.html is the template.
package report

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/compliance/controls"
	"github.com/countersign-dev/countersign/compliance/inforce"
	"github.com/countersign-dev/countersign/correlation"
	"github.com/countersign-dev/countersign/correlation/checks"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/tree"
)

// Format is the format of the page; see Edition.
const Format = "countersign/report/v1"

// Edition identifies exactly how this package renders records: Format, and a digest of the texts that a
// page takes from elsewhere (template, style, rules, controls). Every page contains it, so that a
// verifier can tell whether it can make the page again.
var Edition = sync.OnceValue(func() string {
	h := sha256.New()
	for _, name := range []string{"page.html", "style.css"} {
		b, _ := pageFiles.ReadFile(name) // embedded
		h.Write(b)
	}
	for _, r := range correlation.Rules() {
		fmt.Fprintf(h, "%q %q\n", r.Name, r.Remedy)
	}
	for _, c := range checks.All() {
		fmt.Fprintf(h, "%q %q %q\n", c.ID, c.Explanation, c.Remedy)
	}
	return Format + " " + hex.EncodeToString(h.Sum(nil)[:6]) + " " + controls.All().Edition
})

// Limits of a page. What is beyond them is counted, and is in the records.
const (
	MaxTimeline = 10_000 // rows of the timeline
	MaxRows     = 2_000  // rows of every other table
	GroupRows   = 250    // rows that expand together
	MaxPaths    = 40     // places listed for each detector
	MaxNames    = 100    // agents, tools and the like
	maxSessions = 100_000
)

// Source describes the evidence and its signature.
type Source struct {
	Shard, Tenant string
	Session       string // empty for an export by time
	Space         subject.Space
	From, To      time.Time // of an export by time
	Checkpoint    tree.Checkpoint
	Note          string // the signed checkpoint
	Keys          []events.KeyRecord
	Expired       int // records without a text, which are not passed to Add
	Expiries      []evidence.ExpiredNote
}

// Builder collects records one by one, in the order of their sequences. It keeps only what the page will
// show, and the ids of the findings that stand.
type Builder struct {
	src           Source
	controlCounts *controls.Counts
	first         evidence.Record // without its body
	last          evidence.Record
	count         int

	kinds     map[string]int
	verdicts  map[events.Verdict]int
	observed  int // decisions that enforced policies would have refused
	agents    nameSet
	sources   nameSet
	protocols nameSet
	sessions  map[string]bool

	timeline      rowTable[timelineRow]
	decisions     rowTable[decisionRow]
	approvals     rowTable[approvalRow]
	findings      rowTable[findingRow]
	standing      map[findingID]events.Severity // the findings that no later one retracts: as many as the range has
	calls         callTable
	policies      policyRefs
	inForce       *inforce.File // nil: the bundle has none
	redacted      redactionCounts
	summaryCounts summaryCounts
	chainCheck    chainCheck
}

// New makes a Builder for one page.
func New(src Source) *Builder {
	b := &Builder{src: src, controlCounts: controls.NewCounts(), kinds: map[string]int{}, verdicts: map[events.Verdict]int{}, sessions: map[string]bool{}, standing: map[findingID]events.Severity{}}
	b.timeline.limit, b.decisions.limit, b.approvals.limit, b.findings.limit = MaxTimeline, MaxRows, MaxRows, MaxRows
	return b
}

// Add processes the next record.
func (b *Builder) Add(r evidence.Record) {
	b.controlCounts.Add(r)
	if b.count == 0 {
		b.first = r
		b.first.Body = nil
	}
	b.last = r
	b.last.Body = nil
	b.count++
	b.kinds[r.Kind]++
	if r.Session != "" && len(b.sessions) <= maxSessions {
		b.sessions[r.Session] = true
	}
	b.chainCheck.addRecord(r)
	b.redacted.addRecord(r)
	b.timeline.add(b.readRecord(r))
}

// InForce sets the policies and mandates that decided or were in force.
func (b *Builder) InForce(f inforce.File) { b.inForce = &f }

// ControlSupport says which controls the records so far bear on.
func (b *Builder) ControlSupport() controls.Support { return b.controlCounts.Support() }

// rowTable holds the first rows of a list and the number of all rows.
type rowTable[T any] struct {
	rows  []T
	total int
	limit int
}

func (t *rowTable[T]) add(row T) {
	t.total++
	if len(t.rows) < t.limit {
		t.rows = append(t.rows, row)
	}
}

// nameSet holds distinct texts in the order of their first appearance.
type nameSet struct {
	list      []string
	seen      map[string]bool
	truncated bool
}

func (n *nameSet) add(s string) {
	if s == "" || n.seen[s] {
		return
	}
	if len(n.list) >= MaxNames {
		n.truncated = true
		return
	}
	if n.seen == nil {
		n.seen = map[string]bool{}
	}
	n.seen[s] = true
	n.list = append(n.list, s)
}
