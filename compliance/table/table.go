// Package table writes evidence records as a Parquet file, for programs that
// analyse tables. The records are the same, in the same order; the column record
// holds each whole, so that the file proves as much as the lines do, to who
// hashes it.
//
// The same records give the same bytes by the same Edition, and memory is bounded
// by a row group, however many records there are.
package table

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"runtime"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"

	"github.com/countersign-dev/countersign/evidence"
)

// Format is the number of the schema: columns are added, never changed or taken
// away, without another number.
const Format = "countersign/records-table/v1"

// Edition names exactly what makes a file of records. It stands in the file's
// footer, so that a verifier knows whether it can make that file again.
const Edition = Format + " parquet-go v0.32.0 " + runtime.GOARCH

// editionKey is where the footer has it.
const editionKey = "countersign.edition"

// Bounds of a row group, and with it of what is in memory.
const (
	groupRows  = 64 << 10
	groupBytes = 24 << 20 // of texts
	pageBytes  = 256 << 10
)

// row is the schema: docs/evidence-format.md describes each column.
type row struct {
	Seq          uint64  `parquet:"seq,delta"`
	BrokerTime   int64   `parquet:"broker_time,delta,timestamp(nanosecond)"`
	Shard        string  `parquet:"shard,dict"`
	Tenant       string  `parquet:"tenant,dict"`
	Session      string  `parquet:"session,dict"`
	SessionIndex *uint64 `parquet:"session_index,optional"`
	Kind         string  `parquet:"kind,dict"`
	Subject      string  `parquet:"subject"`
	Type         string  `parquet:"type,dict"`
	Tool         string  `parquet:"tool,dict"`
	ToolCallID   string  `parquet:"tool_call_id"`
	Agent        string  `parquet:"agent,dict"`
	Verdict      string  `parquet:"verdict,dict"`
	State        string  `parquet:"state,dict"`
	Rule         string  `parquet:"rule,dict"`
	Severity     string  `parquet:"severity,dict"`
	BodyDigest   string  `parquet:"body_digest"`
	Redactions   int32   `parquet:"redactions"`
	Reason       *string `parquet:"reason,optional,dict"`
	Record       string  `parquet:"record"`
	RecordHash   string  `parquet:"record_hash"`
}

// Write writes the table of a bundle's records; it is evidence.Extra's Table.
func Write(c evidence.BundleContents, w io.Writer) error {
	t := newWriter(w)
	if err := c.EachRow(t.add); err != nil {
		return err
	}
	return t.close()
}

type rowWriter struct {
	p     *parquet.GenericWriter[row]
	bytes int
	rows  int
	one   [1]row
}

func newWriter(w io.Writer) *rowWriter {
	return &rowWriter{p: parquet.NewGenericWriter[row](w,
		parquet.Compression(&zstd.Codec{Level: zstd.SpeedFastest, Concurrency: 1}),
		parquet.CreatedBy("countersign", Format, ""),
		parquet.KeyValueMetadata(editionKey, Edition),
		parquet.PageBufferSize(pageBytes),
		parquet.ColumnIndexSizeLimit(func([]string) int { return 32 }),
		parquet.SkipPageBounds("record"), parquet.SkipPageBounds("record_hash"), parquet.SkipPageBounds("body_digest"))}
}

func (t *rowWriter) add(r evidence.Row, rec evidence.Record) error {
	t.one[0] = rowOf(r, rec)
	if _, err := t.p.Write(t.one[:]); err != nil {
		return fmt.Errorf("sequence %d: %w", r.Seq, err)
	}
	t.rows++
	if t.bytes += len(r.Record); t.rows < groupRows && t.bytes < groupBytes {
		return nil
	}
	t.rows, t.bytes = 0, 0
	return t.p.Flush()
}

func (t *rowWriter) close() error { return t.p.Close() }

// bodyFields are the members of bodies that have columns of their own. Those of other
// types are left empty.
type bodyFields struct {
	EventType  string `json:"event_type"`
	Type       string `json:"type"`
	ToolName   string `json:"tool_name"`
	Tool       string `json:"tool"`
	ToolCallID string `json:"tool_call_id"`
	AgentID    string `json:"agent_id"`
	Agent      string `json:"agent"`
	Verdict    string `json:"verdict"`
	State      string `json:"state"`
	Status     string `json:"status"`
	Rule       string `json:"rule"`
	Severity   string `json:"severity"`
	Metadata   struct {
		ToolCallID string `json:"tool_call_id"`
	} `json:"metadata"`
}

func rowOf(r evidence.Row, rec evidence.Record) row {
	out := row{Seq: rec.Seq, BrokerTime: rec.BrokerTime.UnixNano(), Shard: rec.Shard, Tenant: rec.Tenant, Session: rec.Session, SessionIndex: rec.SessionIndex,
		Kind: rec.Kind, Subject: rec.Subject, BodyDigest: rec.BodyDigest, Redactions: int32(len(rec.Redactions)),
		Record: r.Record, RecordHash: hex.EncodeToString(r.RecordHash[:])}
	if rec.Reason != "" {
		out.Reason = &rec.Reason
		return out
	}
	var f bodyFields
	_ = json.Unmarshal(rec.Body, &f) // members of other types are left empty
	out.Type, out.Tool, out.ToolCallID = firstNonEmpty(f.EventType, f.Type), firstNonEmpty(f.ToolName, f.Tool), firstNonEmpty(f.Metadata.ToolCallID, f.ToolCallID)
	out.Agent = firstNonEmpty(f.AgentID, f.Agent)
	if ownKinds[rec.Kind] {
		out.Verdict, out.State, out.Rule, out.Severity = f.Verdict, firstNonEmpty(f.State, f.Status), f.Rule, f.Severity
	}
	return out
}

// ownKinds are the kinds whose verdicts, states, rules and severities are ours;
// what a producer calls so is not.
var ownKinds = map[string]bool{evidence.KindDecision: true, evidence.KindCall: true, evidence.KindFinding: true, evidence.KindApproval: true}

func firstNonEmpty(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
