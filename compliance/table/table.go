// Package table writes evidence records as a Parquet file for data analysis. Package bundle writes the
// file (Write) and verifies it by making it again (Compare). The file has the same records in the
// same order; the column record holds each whole text, so a reader can hash it as it would hash the
// lines. The package does not read Parquet files.
//
// The same Edition gives the same bytes for the same records. Memory is bounded by a row group, for any
// number of records. Begin with Write.
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

// Format is the version of the schema. Within a version, columns are added, but never changed or
// removed.
const Format = "countersign/records-table/v1"

// Edition identifies exactly what made a file. It is in the file's footer, so that a verifier can tell
// whether it can make the file again.
const Edition = Format + " parquet-go v0.32.0 " + runtime.GOARCH

// editionKey is the key of the edition in the footer.
const editionKey = "countersign.edition"

// Bounds of a row group, and so of memory.
const (
	groupRows  = 64 << 10
	groupBytes = 24 << 20 // of texts
	pageBytes  = 256 << 10
)

// row is the schema; docs/evidence-format.md describes each column.
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

// Rows calls yield for the records in their order, each with its canonical text and its hash.
type Rows func(yield func(evidence.Row, evidence.Record) error) error

// Write writes the table of the records to w.
func Write(rows Rows, w io.Writer) error {
	t := newWriter(w)
	if err := rows(t.add); err != nil {
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

// bodyFields are the members of bodies that have columns of their own. Members of other types are left
// empty.
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
	_ = json.Unmarshal(rec.Body, &f) // members of other types stay empty
	out.Type, out.Tool, out.ToolCallID = firstNonEmpty(f.EventType, f.Type), firstNonEmpty(f.ToolName, f.Tool), firstNonEmpty(f.Metadata.ToolCallID, f.ToolCallID)
	out.Agent = firstNonEmpty(f.AgentID, f.Agent)
	if ownKinds[rec.Kind] {
		out.Verdict, out.State, out.Rule, out.Severity = f.Verdict, firstNonEmpty(f.State, f.Status), f.Rule, f.Severity
	}
	return out
}

// ownKinds are the kinds of records in which Countersign sets verdicts, states, rules and severities. A
// producer's members of these names are not copied.
var ownKinds = map[string]bool{evidence.KindDecision: true, evidence.KindCall: true, evidence.KindFinding: true, evidence.KindApproval: true}

func firstNonEmpty(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
