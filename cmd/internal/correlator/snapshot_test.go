package correlator

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/rig"
	"github.com/countersign-dev/countersign/correlation"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/streams"
)

// keeping is a worker alone that keeps its state in a directory and has resumed
// from there.
func keeping(tb testing.TB, n *rig.NATS, missingAfter time.Duration, dir string) *worker {
	tb.Helper()
	w := alone(tb, n, missingAfter, "keeps")
	w.snapshots = snapshots{dir: dir, key: []byte("key"), context: "test", options: newOptions(tb, n, missingAfter)}
	rig.OK(tb, w.resume(tb.Context()))
	return w
}

// path is where the snapshot is.
func (w *worker) path() string { return w.snapshots.path(w.flags.Stream) }

// saveNow writes a snapshot and waits until it is there.
func (w *worker) saveNow(tb testing.TB) {
	tb.Helper()
	w.save()
	err := <-w.snapshots.flight
	w.saved(err)
	rig.OK(tb, err)
}

// A correlator that dies anywhere after a snapshot and goes on from it puts out
// what one does that never stopped, whatever was written when.
func TestExactlyOnceFromASnapshot(t *testing.T) {
	n := rig.Start(t, streams.Shard{})
	dir := t.TempDir()
	inputs := len(session(t, "sess-0000"))
	for round, flush := range []string{"never", "before the snapshot", "after the snapshot", "later"} {
		for k := 1; k <= inputs; k++ {
			before := uint64(len(n.Log()))
			n.Publish(rig.Runtime, session(t, fmt.Sprintf("sess-%d%03d", round, k))...)
			w := keeping(t, n, long, dir)
			if w.head == 0 && round+k > 1 {
				t.Fatal("it reads the log from its beginning")
			}
			for _, m := range n.Log()[w.head:] {
				w.feedOne(t, m)
				if m.Seq == before+uint64(k) {
					if flush == "before the snapshot" {
						rig.OK(t, w.flush(t.Context()))
					}
					w.saveNow(t)
					if flush == "after the snapshot" {
						rig.OK(t, w.flush(t.Context()))
					}
				}
			}
			if flush == "later" {
				rig.OK(t, w.flush(t.Context()))
			}
		}
	}
	w := keeping(t, n, long, dir)
	for _, m := range n.Log()[w.head:] {
		w.feedOne(t, m)
	}
	rig.OK(t, w.flush(t.Context()))
	compare(t, n, long)
}

// A snapshot that is not of this log, this configuration and this key, or not
// whole, is not used, and says why.
func TestSnapshotsThatDoNotFit(t *testing.T) {
	n := rig.Start(t, streams.Shard{})
	n.Publish(rig.Runtime, session(t, "sess-0001")...)
	dir := t.TempDir()
	w := keeping(t, n, long, dir)
	log := n.Log()
	for _, m := range log[:2] {
		w.feedOne(t, m)
	}
	w.saveNow(t)
	good, err := os.ReadFile(w.path())
	rig.OK(t, err)
	load := func(change func(w *worker)) error {
		again := alone(t, n, long, "again")
		again.snapshots = w.snapshots
		change(again)
		err := again.load(t.Context(), uint64(len(log)))
		if err != nil && (again.head != 0 || again.core.Stats().Seq != 0) {
			t.Error("it took some of what it refused")
		}
		return err
	}
	file := func(b []byte) func(*worker) {
		return func(w *worker) { rig.OK(t, os.WriteFile(w.path(), b, 0o600)) }
	}
	flipped := bytes.Clone(good)
	flipped[len(flipped)/2] ^= 1
	for _, c := range []struct {
		name, says string
		change     func(*worker)
	}{
		{"cut off", "damaged", file(good[:len(good)-1])},
		{"changed", "damaged", file(flipped)},
		{"empty", "not one", file(nil)},
		{"another file", "not one", file([]byte(strings.Repeat("x", 100)))},
		{"another key", "master key", func(w *worker) { w.snapshots.key = []byte("other") }},
		{"another checkpoint key", "configuration", func(w *worker) { w.snapshots.context = "other" }},
		{"other options", "configuration", func(w *worker) { w.snapshots.options.MissingAfter++ }},
		{"another log", "of GOV@", func(w *worker) { w.snapshots.epoch = "GOV@20200101T000000.000000000Z" }},
		{"fits", "", func(*worker) {}},
	} {
		rig.OK(t, os.WriteFile(w.path(), good, 0o600))
		err := load(c.change)
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v", c.name, err)
		}
		if err != nil && !errors.Is(err, errSnapshot) && !errors.Is(err, correlation.ErrSnapshot) {
			t.Errorf("%s: %v is no refusal", c.name, err)
		}
	}
	rig.OK(t, os.WriteFile(w.path(), good, 0o600))
	for name, h := range map[string]func(*head){
		"a longer log":                 func(h *head) { h.Seq = 1000 },
		"a later cursor":               func(h *head) { h.CursorSeq = 1000 },
		"another message at its place": func(h *head) { h.Message[0] ^= 1 },
	} {
		changed, _, err := w.snapshots.open(good)
		rig.OK(t, err)
		h(&changed)
		if _, err := w.fits(t.Context(), changed, uint64(len(log))); !errors.Is(err, errSnapshot) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The service writes a snapshot when it stops and goes on from it.
func TestServiceResumes(t *testing.T) {
	n := rig.Start(t, streams.Shard{})
	f := flags(n, long)
	f.StateEvery = 8000
	f.StateDir = filepath.Join(t.TempDir(), "state")
	var open []streams.Msg
	for i := range f.StateEvery / saveSome {
		open = append(open, pre(i))
	}
	n.Publish(rig.Runtime, open...)
	rig.OK(t, ignoreCancel(run(t, f).AwaitReady().Stop()))
	info, err := os.Stat(filepath.Join(f.StateDir, "correlator-GOV.snapshot"))
	rig.OK(t, err)
	if info.Mode() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	n.Publish(rig.Runtime, session(t, "sess-0001")...)
	rig.OK(t, ignoreCancel(run(t, f).AwaitReady().Stop()))
	compare(t, n, long)
}

// When a snapshot is due.
func TestWhenASnapshotIsWritten(t *testing.T) {
	now := time.Now()
	const much, some = 4000, 4000 / saveSome
	for _, c := range []struct {
		name  string
		news  uint64
		since time.Duration
		idle  bool
		pause time.Duration
		due   bool
	}{
		{"nothing new", 0, time.Hour, true, 0, false},
		{"much is new", much, time.Second, false, 0, true},
		{"much is new, but the last one took long", much, time.Second, false, time.Second, false},
		{"much is new, and the rest was long enough", much, saveRest * time.Second, false, time.Second, true},
		{"something is new and it is quiet", some, saveRestIdle, true, 0, true},
		{"something is new and it is quiet again", some, time.Second, true, 0, false},
		{"something is new and it is busy", some, time.Minute, false, 0, false},
		{"something is new for long", some, saveEvery, false, 0, true},
	} {
		w := &worker{core: correlation.New(correlation.Options{}), head: 1000 + c.news, last: events.LogMessage{}}
		w.flags.Stream = "GOV"
		w.snapshots = snapshots{dir: t.TempDir(), every: much, head: 1000, at: now.Add(-c.since), pause: c.pause}
		w.saveWhenDue(now, c.idle)
		if due := w.snapshots.flight != nil; due != c.due {
			t.Errorf("%s: %v", c.name, due)
		} else if due {
			w.saved(<-w.snapshots.flight)
		}
	}
}
