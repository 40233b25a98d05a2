package bundle

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/evidencetest"
)

// mixed is a log of two tenants with the pipeline's own records between them.
func mixed(t testing.TB, rounds int) *world {
	w := newWorld(t)
	s := subject.Space{}
	for i := range rounds {
		w.call("acme", fmt.Sprint("s", i%3), events.Allow)
		if i%2 == 0 {
			w.Log(s.Control("GOV", events.ControlTick), nil, w.Encode(events.Tick{Shard: "GOV", Due: events.At(begin)}))
		}
		if i%4 == 1 {
			w.call("other", "s0", events.Deny)
		}
		w.Approval(events.Approval{WorkflowID: "wf", Tenant: "acme", Status: "pending", Session: "s0", ActionDigest: digest.Keyed(evidencetest.Derived("x"), nil), RequestedAt: events.At(begin)})
	}
	return w
}

func TestRangeRoundTrip(t *testing.T) {
	w := mixed(t, 20)
	for _, r := range [][2]int{{0, w.size() + 1}, {1, 2}, {13, 57}, {40, w.size() + 1}, {0, 30}, {30, 31}} {
		for _, tenant := range []string{"acme", "other"} {
			in := w.ranged(tenant, r[0], r[1])
			in.SignKey = statementKey
			var out bytes.Buffer
			n, err := Write(&out, in)
			if errors.Is(err, ErrEmpty) {
				continue
			}
			ok(t, err)
			c := Options{StatementKey: public(statementKey)}
			rep := verifyWorld(t, w, out.Bytes(), c)
			if !rep.OK || rep.Records != n || rep.Tenant != tenant || rep.Signed != int64(w.size()) || len(rep.Notes) > 0 {
				t.Errorf("%s %v: %+v, notes %q", tenant, r, rep, rep.Notes)
			}
		}
	}
	in := w.ranged("acme", 0, w.size()+1)
	if !bytes.Equal(written(t, in), written(t, in)) {
		t.Error("the same evidence gives other bytes")
	}
	names, members := unzip(t, written(t, in))
	if strings.Join(names, " ") != "manifest.json README.txt checkpoint.txt keys.json records.jsonl cover.jsonl decisions.jsonl findings.jsonl calls.jsonl approvals.jsonl records.parquet in_force.json report.html controls.json" {
		t.Error(names)
	}
	if bytes.Contains(members["records.jsonl"], []byte(`"tenant":"other"`)) || !strings.Contains(string(members["report.html"]), "Evidence of tenant") {
		t.Error("another tenant's records, or another page")
	}
}

// A range without one of its records does not give the signed root, even if all other members are
// written again to match. A range with a changed record does not give it either.
func TestRangeWithoutARecord(t *testing.T) {
	w := mixed(t, 6)
	for name, change := range map[string]func([]evidence.Row) []evidence.Row{
		"left out": func(rows []evidence.Row) []evidence.Row { return slices.Delete(slices.Clone(rows), 5, 6) },
		"changed": func(rows []evidence.Row) []evidence.Row {
			rows = slices.Clone(rows)
			rows[1].Record = strings.Replace(rows[1].Record, "rule_matched", "rule_mismatc", 1)
			return rows
		},
	} {
		in := w.ranged("acme", 0, w.size()+1)
		changeRows(t, &in, change)
		rep := verifyWorld(t, w, written(t, in), Options{})
		found := codes(rep)
		if name == "left out" { // the exporter cannot hide it: the chain has a gap, though the cover fits
			if rep.OK || !strings.Contains(found, "session_chain") {
				t.Errorf("%s: %s", name, found)
			}
			continue
		}
		if rep.OK || !strings.Contains(found, "inclusion_proof in cover.jsonl") {
			t.Errorf("%s: %s", name, found)
		}
	}
}

// 50,000 records are exported and verified in a few megabytes, wherever they come
// from: the log here is made while it is read.
func TestRangeOf50000RecordsInBoundedMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds: left out of -short")
	}
	const calls, most = 16_700, 96 << 20
	w := newWorld(t)
	dir := t.TempDir()
	disk, err := os.Create(filepath.Join(dir, "log"))
	ok(t, err)
	defer disk.Close()
	var ends []int64 // of each row's text on disk
	var rows []evidence.Row
	for i := range calls { // build the log, its texts on disk
		w.call("acme", fmt.Sprint("s", i%50), events.Allow)
		for _, r := range w.rows() {
			n, err := disk.WriteString(r.Record)
			ok(t, err)
			end := int64(n)
			if len(ends) > 0 {
				end += ends[len(ends)-1]
			}
			r.Record, ends = "", append(ends, end)
			rows = append(rows, r)
		}
		w.Messages, w.Built = nil, nil
	}
	in := w.ranged("acme", 0, w.size()+1)
	in.Rows = func(yield func(evidence.Row) error) error {
		at := int64(0)
		for i, r := range rows {
			text := make([]byte, ends[i]-at)
			if _, err := disk.ReadAt(text, at); err != nil {
				return err
			}
			at, r.Record = ends[i], string(text)
			if err := yield(r); err != nil {
				return err
			}
		}
		return nil
	}
	in.Spool = func(name string) (Spool, error) { return os.Create(filepath.Join(dir, name)) }
	peak := watchMemory(t)
	file, err := os.Create(filepath.Join(dir, "range.zip"))
	ok(t, err)
	defer file.Close()
	n, err := Write(file, in)
	ok(t, err)
	info, err := file.Stat()
	ok(t, err)
	rep, err := Verify(file, info.Size(), w.VKey, Options{})
	ok(t, err)
	used := peak()
	t.Logf("%d records, %d MB, %d MB of memory beside the log itself", n, info.Size()>>20, used>>20)
	if !rep.OK || n < 50_000 || rep.Records != n || rep.Decisions != calls {
		t.Errorf("%+v", rep)
	}
	if used > most {
		t.Errorf("%d MB of memory, at most %d were expected", used>>20, most>>20)
	}
}

// watchMemory looks at the heap often, after a collection, until the function it
// gives is called, which gives by how much it grew at most.
func watchMemory(t *testing.T) (peak func() uint64) {
	t.Helper()
	old := debug.SetGCPercent(20)
	runtime.GC()
	var start, m runtime.MemStats
	runtime.ReadMemStats(&start)
	var highest atomic.Uint64
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				runtime.ReadMemStats(&m)
				highest.Store(max(highest.Load(), m.HeapAlloc))
			}
		}
	}()
	return func() uint64 {
		close(done)
		<-ended
		debug.SetGCPercent(old)
		return highest.Load() - min(highest.Load(), start.HeapAlloc)
	}
}
