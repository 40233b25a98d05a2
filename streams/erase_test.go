package streams

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/countersign-dev/countersign/events"
)

// What is erased is gone from the disk, sequences stay, and reading goes on behind
// a gap that is explained and nowhere else.
func TestErase(t *testing.T) {
	f := start(t)
	var msgs []Msg
	for i := range 40 {
		m := event("runtime", i)
		m.Body = fmt.Appendf(nil, `{"secret":"hush-hush-%03d"}`, i)
		msgs = append(msgs, m)
	}
	ok(t, StoreAll(ctx(t), f.conn("admitter"), msgs))
	if !onDisk(t, f.cfg.StoreDir, "hush-hush-004") {
		t.Fatal("the test looks in the wrong place")
	}
	for _, user := range []string{"auditor", "admitter", "correlator", "provisioner", "operator", "runtime"} {
		nc := f.conn(user)
		sub, err := nc.SubscribeSync(nc.NewInbox())
		ok(t, err)
		ok(t, nc.PublishRequest("$JS.API.STREAM.MSG.DELETE."+DefaultShard, sub.Subject, []byte(`{"seq":5}`)))
		ok(t, nc.Flush())
	}
	custodian := f.conn("custodian")
	for _, seq := range []uint64{1, 2, 5, 39} { // at the beginning, inside, near the end
		erased, err := Erase(ctx(t), custodian, DefaultShard, seq)
		if err != nil || !erased {
			t.Fatalf("%d: %v, %v; somebody else may delete?", seq, erased, err)
		}
		if erased, err = Erase(ctx(t), custodian, DefaultShard, seq); err != nil || erased {
			t.Errorf("%d once more: %v, %v", seq, erased, err)
		}
	}
	f.stop()
	f.restart()
	for i := range 40 {
		erased := i == 0 || i == 1 || i == 4 || i == 38
		if onDisk(t, f.cfg.StoreDir, fmt.Sprintf("hush-hush-%03d", i)) == erased {
			t.Errorf("message %d: on disk is %v", i+1, !erased)
		}
	}
	read := func(o ReadOptions) (seqs []uint64, err error) {
		o.Stream, o.Idle = DefaultShard, func() error { return errEnough }
		err = ReadLog(ctx(t), f.js(f.conn("auditor")), o, func(b []events.LogMessage) error {
			for _, m := range b {
				seqs = append(seqs, m.Seq)
			}
			return nil
		})
		return seqs, err
	}
	var asked [][2]uint64
	seqs, err := read(ReadOptions{Gap: func(from, to uint64) error { asked = append(asked, [2]uint64{from, to}); return nil }})
	if !errors.Is(err, errEnough) || len(seqs) != 36 || fmt.Sprint(asked) != "[[1 2] [5 5] [39 39]]" {
		t.Errorf("%v, %d messages, gaps %v", err, len(seqs), asked)
	}
	var gap *GapError
	if seqs, err := read(ReadOptions{}); !errors.As(err, &gap) || gap.Want != 1 || len(seqs) != 0 {
		t.Errorf("a gap at the beginning: %v", err)
	}
	if _, err := read(ReadOptions{From: 3}); !errors.As(err, &gap) || gap.Want != 5 || gap.Got != 6 {
		t.Errorf("a gap inside: %v", err)
	}
	if _, err := read(ReadOptions{Gap: func(from, _ uint64) error { return &GapError{Want: from} }}); !errors.As(err, &gap) {
		t.Errorf("a gap that is not explained: %v", err)
	}
	tries := 0
	if seqs, err := read(ReadOptions{From: 3, Gap: func(uint64, uint64) error {
		if tries++; tries == 1 {
			return RetryLater(errors.New("out of sight"))
		}
		return nil
	}}); !errors.Is(err, errEnough) || len(seqs) != 36 {
		t.Errorf("after another try: %v, %d messages", err, len(seqs))
	}
	if seqs, err := read(ReadOptions{Filter: []string{"gov.events.>"}}); !errors.Is(err, errEnough) || len(seqs) != 36 {
		t.Errorf("with a filter: %v, %d messages", err, len(seqs))
	}
}

// onDisk looks for a text in all files below a directory, plain and in base64.
func onDisk(t *testing.T, dir, text string) (found bool) {
	t.Helper()
	ok(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return nil
		}
		found = found || bytes.Contains(b, []byte(text)) || bytes.Contains(b, []byte(base64.StdEncoding.EncodeToString([]byte(text))))
		return nil
	}))
	return found
}
