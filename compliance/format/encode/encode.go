// Package encode is what the formats share: how they read records of evidence, and how they write
// lines. The folders compliance/format/<name> have the formats of protocols.
package encode

import (
	"errors"
	"fmt"
	"maps"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
)

// ErrTooMuch says that an export needs more memory than it may have.
var ErrTooMuch = errors.New("too much for one export, choose a shorter range")

// Format describes a format. The zero value of a member means "none".
type Format struct {
	Make   func(*Writer) Encoder
	About  string // the evidence that it has lines for
	Note   string // what users must know besides the sources of its fields
	Fields []Field
	// Mandates says that the format needs Options.Mandate.
	Mandates bool
}

// Field says where the value of a part of a line comes from. The reference page of the formats is made
// from these tables.
type Field struct {
	Names []string // as the format has them
	From  string
}

// Encoder implements one format.
type Encoder interface {
	Add(Item) error
	End() error
}

// Options identify the records and supply what the formats need and no record has.
type Options struct {
	Tenant  string
	Space   subject.Space
	Version string // of this program, for SIEM events; "" is "devel"
	// Mandate returns the evidence settings of an AUMP mandate; false means that it is unknown,
	// and the class that keeps least then applies. A nil Mandate knows none.
	Mandate func(id, hash string) (Mandate, bool)
}

// Mandate holds the evidence settings of an AUMP mandate.
type Mandate struct {
	Retention      string   // none summary_only hashes full_transcript
	EventsRequired []string // the types of events that it requires; empty: all
}

// Item is one record of evidence and its hash.
type Item struct {
	Record evidence.Record
	Hash   [32]byte
}

// Reasons why records have no line although the format has lines for their kind.
const (
	SkippedUnreadable  = "no body in the evidence, or not of the form that its subject promises"
	SkippedNoRequest   = "a decision whose request is not among the records"
	SkippedNoDecision  = "a request whose decision is not among the records"
	SkippedInvalid     = "a request that is not valid for its protocol, or is not after redaction"
	SkippedNoMandate   = "a decision that names no mandate with a well-formed hash"
	SkippedNotRequired = "a decision under a mandate that does not want events of this type"
	SkippedNoTurn      = "a proposal without a turn"
	SkippedNoSession   = "a proposal without a session, and so without a run"
)

// NewWriter returns a writer that calls emit with every line.
func NewWriter(o Options, emit func([]byte) error) *Writer {
	return &Writer{Options: o, emit: emit, skipped: map[string]uint64{}}
}

// Writer is what the formats share.
type Writer struct {
	Options
	emit    func([]byte) error
	lines   uint64
	skipped map[string]uint64
}

// CountSkipped counts a record that should have a line and has none.
func (w *Writer) CountSkipped(why string) { w.skipped[why]++ }

// WriteJSON writes one value as RFC 8785 JSON, so that equal evidence gives equal bytes.
func (w *Writer) WriteJSON(v any) error {
	b, err := events.Encode(v)
	if err != nil {
		return fmt.Errorf("writing a line: %w", err)
	}
	return w.WriteLine(b)
}

// WriteLine writes one line, without its line break.
func (w *Writer) WriteLine(line []byte) error {
	w.lines++
	return w.emit(line)
}

// Lines is how many lines were written.
func (w *Writer) Lines() uint64 { return w.lines }

// Skipped counts the records that should have a line and have none, by reason.
func (w *Writer) Skipped() map[string]uint64 { return maps.Clone(w.skipped) }
