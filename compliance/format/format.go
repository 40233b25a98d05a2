// Package format writes evidence in external formats: the audit records of the protocols that
// Countersign speaks, and events for a SIEM. The export command gives an Encoder the evidence
// records of one tenant, in the order of the log, and gets lines.
//
// The only source is the redacted evidence. A value that a format needs and evidence does not have
// is omitted, or marked as the format allows; no value is invented. fields.go lists the
// source of each field.
//
// The package is pure. An Encoder holds a bounded part of its input: requests without their
// decision so far and, for run records, the runs that have not ended. Begin with New.
package format

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
)

// Errors of this package. They quote nothing of a record.
var (
	ErrFormat = errors.New("unknown format")
	ErrTenant = errors.New("the record is of another tenant")
	ErrOrder  = errors.New("the record is not behind the one before it")
	// ErrTooMuch says that an export needs more memory than it may have.
	ErrTooMuch = errors.New("too much for one export, choose a shorter range")
)

// The formats.
const (
	AANADecisionEvents = "aana-decision-events"
	AANAAuditRecords   = "aana-audit-records"
	AUMPEvidence       = "aump-evidence"
	AIOCRun            = "aioc-run"
	AIOCGovernance     = "aioc-governance"
	AgentHookEvidence  = "agenthook-evidence"
	OCSF               = "ocsf"
	CEF                = "cef"
)

// formats describes each format.
var formats = map[string]struct {
	make  func(*lineWriter) encoder
	about string
}{
	AANADecisionEvents: {newAANADecisions, "decisions on AANA tool prechecks"},
	AANAAuditRecords:   {newAANARecords, "decisions on AANA tool prechecks"},
	AUMPEvidence:       {newAUMP, "decisions under AUMP mandates, and what runtimes report"},
	AIOCRun:            {newRuns, "runs with aioc tool or handoff proposals"},
	AIOCGovernance:     {newGovernance, "decisions on aioc tool or handoff proposals"},
	AgentHookEvidence:  {newAgentHook, "decisions on AgentHook events"},
	OCSF:               {newOCSF, "decisions, calls, approvals and findings"},
	CEF:                {newCEF, "decisions, calls, approvals and findings"},
}

// Names lists the formats, sorted.
func Names() []string { return slices.Sorted(maps.Keys(formats)) }

// Describe says which evidence a format has lines for.
func Describe(name string) string { return formats[name].about }

// notes are what users of a format must know besides the sources of its fields.
var notes = map[string]string{
	AUMPEvidence: "The mandate's retention class is read from the mandates bucket (operator's credentials) by id and hash; an unknown mandate counts as none, said in metadata. " +
		"Under none an event has mandate, result, codes and time, and no identifiers but its own; under summary_only also the type of the action, and paths; under hashes and full_transcript " +
		"also the agent, the call, the keyed digest of the arguments and the record of evidence. Evidence events that runtimes publish are not repeated: redaction would break their hashes. That one was published is a line of its own (recorded), if the mandate lists its type and no decision is evidence of it.",
	AIOCRun: "A run record is written when its session ends, or at the end of the export. Beyond 10,000 open runs or 100,000 decisions and outcomes the quietest are written early, and metadata.part counts the parts.",
	OCSF:    "OCSF 1.6.0.",
	CEF:     "CEF:0, without a syslog header.",
}

// Note is what users of a format must know besides the sources of its fields; "" if nothing.
func Note(name string) string { return notes[name] }

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

// Summary counts what the encoder did with the records.
type Summary struct {
	Records uint64
	Lines   uint64
	Skipped map[string]uint64 // records that should have a line and have none, by reason
}

// Encoder writes one format. The caller must call Close.
type Encoder struct {
	w     *lineWriter
	enc   encoder
	shard string
	last  uint64
}

// encoder implements one format.
type encoder interface {
	add(Item) error
	end() error
}

// New makes an encoder. It calls emit with every line, without a line break; emit may keep the slice.
func New(name string, o Options, emit func(line []byte) error) (*Encoder, error) {
	f, known := formats[name]
	if !known {
		return nil, fmt.Errorf("%w %.40q; it must be one of %s", ErrFormat, name, strings.Join(Names(), ", "))
	}
	if o.Version == "" {
		o.Version = "devel"
	}
	w := &lineWriter{Options: o, emit: emit, skipped: map[string]uint64{}}
	return &Encoder{w: w, enc: f.make(w)}, nil
}

// Add encodes the next record. Records of one shard must come in the order of the log; a new shard may
// begin at any time.
func (e *Encoder) Add(i Item) error {
	r := i.Record
	if r.Tenant != e.w.Tenant {
		return fmt.Errorf("%w: sequence %d", ErrTenant, r.Seq)
	}
	if r.Shard == e.shard && r.Seq <= e.last {
		return fmt.Errorf("%w: sequence %d", ErrOrder, r.Seq)
	}
	e.shard, e.last = r.Shard, r.Seq
	e.w.records++
	return e.enc.add(i)
}

// Close writes what was waiting for further records.
func (e *Encoder) Close() error { return e.enc.end() }

// Summary returns the counts so far; after Close they are final.
func (e *Encoder) Summary() Summary {
	return Summary{Records: e.w.records, Lines: e.w.lines, Skipped: maps.Clone(e.w.skipped)}
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

// lineWriter is what the formats share.
type lineWriter struct {
	Options
	emit           func([]byte) error
	records, lines uint64
	skipped        map[string]uint64
}

func (w *lineWriter) countSkipped(why string) { w.skipped[why]++ }

// writeJSON writes one value as RFC 8785 JSON, so that equal evidence gives equal bytes.
func (w *lineWriter) writeJSON(v any) error {
	b, err := events.Encode(v)
	if err != nil {
		return fmt.Errorf("writing a line: %w", err)
	}
	return w.writeLine(b)
}

func (w *lineWriter) writeLine(line []byte) error {
	w.lines++
	return w.emit(line)
}
