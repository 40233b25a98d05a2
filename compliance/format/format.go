// Package format writes evidence in external formats: the audit records of the protocols that
// Countersign speaks, and events for a SIEM. The export command gives an Encoder the evidence
// records of one tenant, in the order of the log, and gets lines.
//
// The only source is the redacted evidence. A value that a format needs and evidence does not have
// is omitted, or marked as the format allows; no value is invented. Fields lists the
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

	"github.com/countersign-dev/countersign/compliance/format/aana"
	"github.com/countersign-dev/countersign/compliance/format/agenthook"
	"github.com/countersign-dev/countersign/compliance/format/aioc"
	"github.com/countersign-dev/countersign/compliance/format/aump"
	"github.com/countersign-dev/countersign/compliance/format/encode"
)

// Errors of this package. They quote nothing of a record.
var (
	ErrFormat = errors.New("unknown format")
	ErrTenant = errors.New("the record is of another tenant")
	ErrOrder  = errors.New("the record is not behind the one before it")
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

// formats is the table of formats.
var formats = map[string]encode.Format{
	AANADecisionEvents: aana.DecisionEvents,
	AANAAuditRecords:   aana.AuditRecords,
	AUMPEvidence:       aump.Evidence,
	AIOCRun:            aioc.Run,
	AIOCGovernance:     aioc.Governance,
	AgentHookEvidence:  agenthook.Evidence,
	OCSF:               {Make: newOCSF, About: siemRecords, Note: "OCSF 1.6.0.", Fields: ocsfFields},
	CEF:                {Make: newCEF, About: siemRecords, Note: "CEF:0, without a syslog header.", Fields: cefFields},
}

const siemRecords = "decisions, calls, approvals and findings"

// Names lists the formats, sorted.
func Names() []string { return slices.Sorted(maps.Keys(formats)) }

// Describe says which evidence a format has lines for.
func Describe(name string) string { return formats[name].About }

// Note is what users of a format must know besides the sources of its fields; "" if nothing.
func Note(name string) string { return formats[name].Note }

// NeedsMandates reports whether a format needs Options.Mandate.
func NeedsMandates(name string) bool { return formats[name].Mandates }

// Fields lists what a format takes from the evidence. What it does not list comes from the decision.
func Fields(name string) []encode.Field { return slices.Clone(formats[name].Fields) }

// Summary counts what the encoder did with the records.
type Summary struct {
	Records uint64
	Lines   uint64
	Skipped map[string]uint64 // records that should have a line and have none, by reason
}

// Encoder writes one format. The caller must call Close.
type Encoder struct {
	w       *encode.Writer
	enc     encode.Encoder
	records uint64
	shard   string
	last    uint64
}

// New makes an encoder. It calls emit with every line, without a line break; emit may keep the slice.
func New(name string, o encode.Options, emit func(line []byte) error) (*Encoder, error) {
	f, known := formats[name]
	if !known {
		return nil, fmt.Errorf("%w %.40q; it must be one of %s", ErrFormat, name, strings.Join(Names(), ", "))
	}
	if o.Version == "" {
		o.Version = "devel"
	}
	w := encode.NewWriter(o, emit)
	return &Encoder{w: w, enc: f.Make(w)}, nil
}

// Add encodes the next record. Records of one shard must come in the order of the log; a new shard may
// begin at any time.
func (e *Encoder) Add(i encode.Item) error {
	r := i.Record
	if r.Tenant != e.w.Tenant {
		return fmt.Errorf("%w: sequence %d", ErrTenant, r.Seq)
	}
	if r.Shard == e.shard && r.Seq <= e.last {
		return fmt.Errorf("%w: sequence %d", ErrOrder, r.Seq)
	}
	e.shard, e.last = r.Shard, r.Seq
	e.records++
	return e.enc.Add(i)
}

// Close writes what was waiting for further records.
func (e *Encoder) Close() error { return e.enc.End() }

// Summary returns the counts so far; after Close they are final.
func (e *Encoder) Summary() Summary {
	return Summary{Records: e.records, Lines: e.w.Lines(), Skipped: e.w.Skipped()}
}
