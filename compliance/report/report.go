// Package report renders evidence as one HTML page for people: self-contained,
// without a script, the same bytes for the same evidence. It shows names,
// times, identifiers, digests, verdicts and reasons; the contents of requests
// and events it does not show, redacted or not.
//
// Everything that comes out of a record is somebody else's text: it is made
// visible character by character (see Visible), bounded, and escaped by
// html/template.
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
	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
)

// Format is the number of what this package writes; see Edition.
const Format = "countersign/report/v2"

// Edition names exactly what this package makes of records: Format, and a digest
// of the texts that a page takes from elsewhere (template, style, rules,
// controls). It stands in every page, so that a verifier knows whether it can
// make that page again.
var Edition = sync.OnceValue(func() string {
	h := sha256.New()
	for _, name := range []string{"page.html", "style.css"} {
		b, _ := pageFiles.ReadFile(name) // embedded
		h.Write(b)
	}
	for _, r := range correlation.Rules() {
		fmt.Fprintf(h, "%q %q\n", r.Name, r.Remedy)
	}
	for _, c := range catalogue.All() {
		fmt.Fprintf(h, "%q %q %q\n", c.ID, c.Explanation, c.Remedy)
	}
	return Format + " " + hex.EncodeToString(h.Sum(nil)[:6]) + " " + controls.All().Edition
})

// How much a page holds. What is beyond is counted, and is in the records.
const (
	MaxTimeline = 10_000 // rows of the timeline
	MaxRows     = 2_000  // rows of every other table
	GroupRows   = 250    // rows that unfold together
	MaxPaths    = 40     // places listed for each detector
	MaxNames    = 100    // agents, tools and the like
	maxSessions = 100_000
)

// Source says what the evidence is of and what signs it.
type Source struct {
	Shard, Tenant string
	Session       string // empty for an export by time
	Space         subject.Space
	From, To      time.Time // of an export by time
	Checkpoint    evidence.Checkpoint
	Note          string // the signed checkpoint
	Keys          []events.KeyRecord
	Expired       int // records without a text, which Add does not get
	Expiries      []evidence.ExpiredNote
}

// Builder takes records one by one, in the order of their sequences, and holds
// no more of them than the page will show.
type Builder struct {
	src           Source
	controlCounts *controls.Counts
	first         evidence.Record // without its body
	last          evidence.Record
	count         int

	kinds     map[string]int
	verdicts  map[events.Verdict]int
	agents    nameSet
	sources   nameSet
	protocols nameSet
	sessions  map[string]bool

	timeline      rowTable[timelineRow]
	decisions     rowTable[decisionRow]
	approvals     rowTable[approvalRow]
	findings      rowTable[findingRow]
	calls         callTable
	policies      policyRefs
	inForce       *inforce.File // nil: the bundle has none
	redacted      redactionCounts
	summaryCounts summaryCounts
	chainCheck    chainCheck
}

// New begins a page.
func New(src Source) *Builder {
	b := &Builder{src: src, controlCounts: controls.NewCounts(), kinds: map[string]int{}, verdicts: map[events.Verdict]int{}, sessions: map[string]bool{}}
	b.timeline.limit, b.decisions.limit, b.approvals.limit, b.findings.limit = MaxTimeline, MaxRows, MaxRows, MaxRows
	return b
}

// Add takes the next record.
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

// InForce gives the page what decided, where the bundle has it.
func (b *Builder) InForce(f inforce.File) { b.inForce = &f }

// Bearing says which controls the records taken so far bear on.
func (b *Builder) Bearing() controls.Bearing { return b.controlCounts.Bearing() }

// rowTable is the first rows of a list and how many there are in all.
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

// nameSet are distinct texts in the order of their first appearance.
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
