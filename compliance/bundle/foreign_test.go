package bundle

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/storage/engine"
)

func TestMain(m *testing.M) {
	engine.RunChildIfAsked()
	os.Exit(m.Run())
}

// reader is ClickHouse. Its Parquet reader shares nothing with the library that wrote the table.
// It does not get the file itself, because its users may not read files.
type reader struct {
	url, user, password string
}

func newReader(t *testing.T) reader {
	t.Helper()
	if testing.Short() {
		t.Skip("starts ClickHouse: left out of -short")
	}
	e, port, err := startWithHTTP(t)
	for errors.Is(err, engine.ErrPortBusy) { // another process took the port before the engine did
		e, port, err = startWithHTTP(t)
	}
	if errors.Is(err, engine.ErrFetch) || errors.Is(err, engine.ErrPlatform) {
		t.Skipf("no ClickHouse engine to read with: %v", err)
	}
	ok(t, err)
	t.Cleanup(func() { _ = e.Stop(context.Background()) })
	o, err := clickhouse.ParseDSN(e.DSN())
	ok(t, err)
	return reader{fmt.Sprintf("http://127.0.0.1:%d/?database=%s", port, url.QueryEscape(o.Auth.Database)), o.Auth.Username, o.Auth.Password}
}

// startWithHTTP starts an engine with HTTP on a port that was free a moment ago.
func startWithHTTP(t *testing.T) (e *engine.Engine, port int, err error) {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	port = free.Addr().(*net.TCPAddr).Port
	ok(t, free.Close())
	e, err = engine.Start(t.Context(), engine.Options{DataDir: t.TempDir(), HTTPPort: port, MaxMemory: 1 << 30})
	return e, port, err
}

// ask sends a statement and the bytes behind it.
func (r reader) ask(t *testing.T, statement string, data []byte) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+"&query="+url.QueryEscape(statement), bytes.NewReader(data))
	ok(t, err)
	req.SetBasicAuth(r.user, r.password)
	answer, err := http.DefaultClient.Do(req)
	ok(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	ok(t, err)
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("%s\n%s", statement, body)
	}
	return string(body)
}

// foreignRow is what the foreign reader makes of a row.
type foreignRow struct {
	Seq        uint64 `json:"seq"`
	Time       int64  `json:"time"` // nanoseconds since 1970
	Tenant     string `json:"tenant"`
	Session    string `json:"session"`
	Index      uint64 `json:"index"`
	Kind       string `json:"kind"`
	Subject    string `json:"subject"`
	Verdict    string `json:"verdict"`
	Rule       string `json:"rule"`
	Redactions int    `json:"redactions"`
	Record     string `json:"record"`
	Hash       string `json:"hash"`
}

// The table of a session and of a range is read by another program, and says the
// same as the lines beside it.
func TestAnotherProgramReadsTheTable(t *testing.T) {
	r := newReader(t)
	w, src := decidedWorld(t)
	files := map[string][]byte{"session": fullBundle(t, w, src, nil, nil), "range": fullRange(t, w, src, nil)}
	for name, file := range files {
		t.Run(name, func(t *testing.T) {
			_, members := unzip(t, file)
			rows := r.rows(t, "t_"+name, members[MemberTable])
			lines := strings.Split(strings.TrimSuffix(string(members["records.jsonl"]), "\n"), "\n")
			if len(rows) != len(lines) || len(rows) < 4 {
				t.Fatalf("%d rows, %d lines", len(rows), len(lines))
			}
			for i, line := range lines {
				rec, err := evidence.ParseRecord([]byte(line))
				ok(t, err)
				hash := evidence.HashRecord([]byte(line))
				want := foreignRow{Seq: rec.Seq, Time: rec.BrokerTime.UnixNano(), Tenant: rec.Tenant, Session: rec.Session, Kind: rec.Kind, Subject: rec.Subject,
					Redactions: len(rec.Redactions), Record: line, Hash: hex.EncodeToString(hash[:])}
				if rec.SessionIndex != nil {
					want.Index = *rec.SessionIndex
				}
				switch rec.Kind {
				case evidence.KindDecision:
					d, err := events.DecodeRecord[events.Decision](rec.Body)
					ok(t, err)
					want.Verdict = string(d.Verdict)
				case evidence.KindFinding:
					f, err := events.DecodeRecord[events.Finding](rec.Body)
					ok(t, err)
					want.Rule = f.Rule
				}
				if rec.Kind == evidence.KindCall {
					rows[i].Verdict = want.Verdict // a call has its decision's
				}
				if rows[i] != want {
					t.Errorf("row %d:\nis   %+v\nwant %+v", i, rows[i], want)
				}
			}
		})
	}
}

// rows has the reader read a file.
func (r reader) rows(t *testing.T, table string, parquet []byte) (rows []foreignRow) {
	t.Helper()
	r.ask(t, "CREATE TABLE "+table+` (seq UInt64, broker_time DateTime64(9, 'UTC'), tenant String, session String, session_index Nullable(UInt64), kind String, subject String,
		verdict String, rule String, redactions Int32, record String, record_hash String) ENGINE = Memory`, nil)
	r.ask(t, "INSERT INTO "+table+" SETTINGS input_format_parquet_allow_missing_columns = 0 FORMAT Parquet", parquet)
	text := r.ask(t, `SELECT seq, toUnixTimestamp64Nano(broker_time) AS time, tenant, session, ifNull(session_index, 0) AS index, kind, subject, verdict, rule, redactions, record,
		record_hash AS hash FROM `+table+` ORDER BY seq FORMAT JSONEachRow SETTINGS output_format_json_quote_64bit_integers = 0`, nil)
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		var row foreignRow
		ok(t, json.Unmarshal([]byte(line), &row))
		rows = append(rows, row)
	}
	return rows
}
