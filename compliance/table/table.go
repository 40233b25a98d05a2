// Package table writes evidence records as a Parquet file for data analysis. Package bundle writes the
// file (Write) and verifies it by making it again (Compare). The file has the same records in the
// same order; the column record holds each whole text, so a reader can hash it as it would hash the
// lines. The package does not read Parquet files.
//
// The same Edition gives the same bytes for the same records. Memory is bounded by a row group, for any
// number of records. Begin with Write.
package table

import (
	"cmp"
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

// A row is one record.
type row struct {
	Seq          uint64  `parquet:"seq,delta"`                               // its place on the log
	BrokerTime   int64   `parquet:"broker_time,delta,timestamp(nanosecond)"` // when the NATS server stored the message; nanoseconds, UTC
	Shard        string  `parquet:"shard,dict"`                              // the incarnation of its log
	Tenant       string  `parquet:"tenant,dict"`                             // whose it is
	Session      string  `parquet:"session,dict"`                            // empty without one
	SessionIndex *uint64 `parquet:"session_index,optional"`                  // its place in the session, from 1
	Kind         string  `parquet:"kind,dict"`                               // what the message is: evidence-format.md, section 1
	Subject      string  `parquet:"subject"`                                 // the subject of the message on the log
	Type         string  `parquet:"type,dict"`                               // of an event its type (event_type, type), else empty
	Tool         string  `parquet:"tool,dict"`                               // what the body names so (tool_name, tool), else empty
	ToolCallID   string  `parquet:"tool_call_id"`                            // likewise (metadata.tool_call_id, tool_call_id)
	Agent        string  `parquet:"agent,dict"`                              // likewise (agent_id, agent)
	Verdict      string  `parquet:"verdict,dict"`                            // of a record of ours, else empty
	State        string  `parquet:"state,dict"`                              // of a call, and the status of an approval, else empty
	Rule         string  `parquet:"rule,dict"`                               // of a finding, else empty
	Severity     string  `parquet:"severity,dict"`                           // of a finding, else empty
	BodyDigest   string  `parquet:"body_digest"`                             // of the raw bytes, plain or keyed
	Redactions   int32   `parquet:"redactions"`                              // how many there are
	Reason       *string `parquet:"reason,optional,dict"`                    // why there is no body
	Record       string  `parquet:"record"`                                  // the record's canonical text
	RecordHash   string  `parquet:"record_hash"`                             // its hash, in hex
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

// members are the members of a body by their exact names.
type members map[string]json.RawMessage

// membersOf decodes an object; any other value has no members.
func membersOf(object []byte) (m members) {
	if json.Unmarshal(object, &m) != nil {
		return nil
	}
	return m
}

// text returns the first of the named members that is a text and not empty.
func (m members) text(names ...string) string {
	for _, name := range names {
		var s string
		if json.Unmarshal(m[name], &s) == nil && s != "" {
			return s
		}
	}
	return ""
}

func rowOf(r evidence.Row, rec evidence.Record) row {
	out := row{Seq: rec.Seq, BrokerTime: rec.BrokerTime.UnixNano(), Shard: rec.Shard, Tenant: rec.Tenant, Session: rec.Session, SessionIndex: rec.SessionIndex,
		Kind: rec.Kind, Subject: rec.Subject, BodyDigest: rec.BodyDigest, Redactions: int32(len(rec.Redactions)),
		Record: r.Record, RecordHash: hex.EncodeToString(r.RecordHash[:])}
	if rec.Reason != "" {
		out.Reason = &rec.Reason
		return out
	}
	body := membersOf(rec.Body)
	out.Type, out.Tool = body.text("event_type", "type"), body.text("tool_name", "tool")
	out.ToolCallID = cmp.Or(membersOf(body["metadata"]).text("tool_call_id"), body.text("tool_call_id"))
	out.Agent = body.text("agent_id", "agent")
	if ownKinds[rec.Kind] {
		out.Verdict, out.State, out.Rule, out.Severity = body.text("verdict"), body.text("state", "status"), body.text("rule"), body.text("severity")
	}
	return out
}

// ownKinds are the kinds of records in which Countersign sets verdicts, states, rules and severities. A
// producer's members of these names are not copied.
var ownKinds = map[string]bool{evidence.KindDecision: true, evidence.KindCall: true, evidence.KindFinding: true, evidence.KindApproval: true}
