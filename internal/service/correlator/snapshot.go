package correlator

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/countersign-dev/countersign/correlation"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/atomicfile"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/streams"
)

// When a snapshot is written, counted in messages since the last one; those have to be read again
// after a restart. The core stops while its state is encoded, so after a pause it works for at
// least saveRest times as long.
const (
	saveSome     = 40 // fraction of --state-every that suffices when idle, after saveEvery, or at the end
	saveEvery    = 5 * time.Minute
	saveRestIdle = 10 * time.Second
	saveRest     = 30
	saveAgain    = time.Minute // at least, after an abandoned one
)

// snapshots describe a worker's snapshot file and when it is written.
type snapshots struct {
	stream      string // of the shard
	dir         string // "" disables snapshots
	every       uint64 // messages
	key         []byte // authenticates the file
	context     string // settings that the state depends on
	incarnation string // the log's name and incarnation
	options     correlation.Options
	stop        func() bool // polled while the state is encoded: true gives up; nil never does

	head    uint64        // sequence of the last snapshot that was written
	next    uint64        // of the one being written
	at      time.Time     // when the last was made or abandoned
	pause   time.Duration // how long encoding took; more after one that was abandoned or failed
	writing chan error    // result of the snapshot being written to disk; nil if none is
}

// snapshotMagic begins the file; the HMAC-SHA-256 of everything before ends it. Between them are
// the length of the header (8 bytes), the header (gob) and the core.
const snapshotMagic = "countersign correlator snapshot 1\n"

// snapshotHeader describes the content of a snapshot.
type snapshotHeader struct {
	Context     string
	Incarnation string
	Seq         uint64            // last message that was applied
	Message     [sha256.Size]byte // its digest
	CursorSeq   uint64
	Pending     []savedOutput
	StartOver   time.Time // when the state has to be forgotten, because it holds what was erased; zero if it does not
	Staggered   bool
}

// savedOutput is a pending output in a snapshot.
type savedOutput struct {
	Subject, Type, ID string
	Body              []byte
	Seq               uint64
	N                 int
	At                time.Time
}

var errSnapshot = errors.New("the snapshot cannot be used")

func (s *snapshots) filePath() string {
	return filepath.Join(s.dir, "correlator-"+s.stream+".snapshot")
}

// resumeState starts from the snapshot if there is a matching one, otherwise from the beginning
// of the log.
func (w *worker) resumeState(ctx context.Context) error {
	st, err := streams.StreamState(ctx, w.js, w.flags.Stream)
	if err != nil {
		return err
	}
	w.snapshots.incarnation, w.erasure.readFrom = streams.IncarnationName(w.flags.Stream, st.Created), st.LastSeq
	if err := w.restoreCursor(ctx); err != nil {
		return err
	}
	if w.snapshots.dir == "" {
		return nil
	}
	if err := atomicfile.RemoveLeftovers(w.snapshots.filePath()); err != nil { // they may hold data erased since
		return fmt.Errorf("removing an unfinished snapshot: %w", err)
	}
	begun := time.Now()
	err = w.loadSnapshot(ctx, st.LastSeq)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		w.env.Log.Info().Msg("there is no snapshot; reading the log from its beginning")
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case streams.Transient(err), errors.Is(err, daemon.ErrUntrustedLog): // the snapshot may be a good one
		return err
	case err != nil:
		w.env.Log.Warn().Err(err).Msg("reading the log from its beginning")
		if errors.Is(err, errSnapshot) { // it may hold data erased since
			if err := w.snapshots.drop(); err != nil {
				return err
			}
		}
	default:
		w.env.Log.Info().Uint64("seq", w.head).Int("open_calls", w.core.Stats().Open).Dur("took", time.Since(begun)).Msg("resuming from a snapshot")
	}
	w.snapshots.head, w.snapshots.at = w.head, time.Now()
	return nil
}

// loadSnapshot loads the state from the file.
func (w *worker) loadSnapshot(ctx context.Context, last uint64) error {
	b, err := os.ReadFile(w.snapshots.filePath())
	if err != nil {
		return err
	}
	h, image, err := w.snapshots.openFile(b)
	if err != nil {
		return err
	}
	m, err := w.matchesLog(ctx, h, last)
	if err != nil {
		return err
	}
	core, err := correlation.Restore(w.snapshots.options, image)
	if err != nil {
		return err
	}
	if core.Stats().Seq != h.Seq {
		return fmt.Errorf("%w: it is of sequence %d and says %d", errSnapshot, core.Stats().Seq, h.Seq)
	}
	var pending []pendingOutput
	for _, o := range h.Pending {
		out, err := o.output()
		if err != nil {
			return fmt.Errorf("%w: an output that waits: %w", errSnapshot, err)
		}
		if p := (pendingOutput{out, o.Seq, o.N, o.At}); !isCovered(w.cursor, p) {
			pending = append(pending, p)
		}
	}
	w.core, w.head, w.last, w.pending, w.erasure.startOverAt, w.erasure.staggered = core, h.Seq, *m, pending, h.StartOver, h.Staggered // all of it or nothing: without it the log is read from its beginning
	return nil
}

// output is the encoded output, with what the metrics count.
func (o savedOutput) output() (out correlation.Output, err error) {
	out = correlation.Output{Subject: o.Subject, Type: o.Type, ID: o.ID, Body: o.Body}
	if o.Type == events.TypeCall {
		var c events.Call
		c, err = events.DecodeRecord[events.Call](o.Body)
		out.State = c.State
		return out, err
	}
	var f events.Finding
	f, err = events.DecodeRecord[events.Finding](o.Body)
	out.Finding = &f
	return out, err
}

// openFile verifies the file and splits it into header and core.
func (s *snapshots) openFile(b []byte) (h snapshotHeader, image []byte, err error) {
	rest, whole := bytes.CutPrefix(b, []byte(snapshotMagic))
	if !whole || len(rest) < 8+sha256.Size {
		return h, nil, fmt.Errorf("%w: it is not one, or of another version", errSnapshot)
	}
	signed, tag := b[:len(b)-sha256.Size], b[len(b)-sha256.Size:]
	if !hmac.Equal(tag, s.macTag(signed)) {
		return h, nil, fmt.Errorf("%w: it is damaged, or made under another master key", errSnapshot)
	}
	rest = rest[:len(rest)-sha256.Size]
	n := binary.BigEndian.Uint64(rest)
	if rest = rest[8:]; n > uint64(len(rest)) {
		return h, nil, fmt.Errorf("%w: its head is cut off", errSnapshot)
	}
	if err := gob.NewDecoder(bytes.NewReader(rest[:n])).Decode(&h); err != nil {
		return h, nil, fmt.Errorf("%w: %w", errSnapshot, err)
	}
	return h, rest[n:], nil
}

func (s *snapshots) macTag(b []byte) []byte {
	mac := hmac.New(sha256.New, s.key)
	mac.Write(b)
	return mac.Sum(nil)
}

// matchesLog checks that a snapshot is of this log, and returns the last message that was
// applied. Its error is ErrUntrustedLog if the log has lost what the snapshot has.
func (w *worker) matchesLog(ctx context.Context, h snapshotHeader, last uint64) (*events.LogMessage, error) {
	switch {
	case h.Context != w.snapshots.context:
		return nil, fmt.Errorf("%w: it was made under another configuration", errSnapshot)
	case h.Incarnation != w.snapshots.incarnation:
		return nil, fmt.Errorf("%w: it is of %s, the log is %s", errSnapshot, h.Incarnation, w.snapshots.incarnation)
	case h.Seq > last:
		return nil, w.untrusted("ends at sequence %d, and the snapshot %s is of sequence %d", last, w.snapshots.filePath(), h.Seq)
	case h.CursorSeq > w.cursorSeq:
		return nil, fmt.Errorf("%w: the cursor is older than its own", errSnapshot)
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	m, err := streams.MessageAt(ctx, w.js, w.flags.Stream, h.Seq)
	if err != nil {
		return nil, err
	}
	switch {
	case m == nil: // erased, or lost: then reading finds the gap
		return nil, fmt.Errorf("%w: the log has no message at sequence %d", errSnapshot, h.Seq)
	case digestOf(*m) != h.Message:
		return nil, w.untrusted("has another message at sequence %d than the snapshot %s", h.Seq, w.snapshots.filePath())
	}
	if err := w.erasure.checkNothingErased(ctx, w.shardLog, h.Seq); err != nil {
		return nil, err
	}
	return m, nil
}

// untrusted makes the error of a log that is not the one that this correlator has read. The snapshot is the only
// proof of that, so it stays on the disk.
func (w *worker) untrusted(format string, args ...any) error {
	return fmt.Errorf("%w: the log of shard %s "+format+"; acknowledged messages are gone. If you restored this log on purpose, remove the snapshot",
		append([]any{daemon.ErrUntrustedLog, w.flags.Stream}, args...)...)
}

// digestOf identifies a message.
func digestOf(m events.LogMessage) [sha256.Size]byte {
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%d %d %q\n", m.Seq, m.Time.UnixNano(), m.Subject)
	h.Write(m.Body)
	return [sha256.Size]byte(h.Sum(nil))
}

// saveWhenDue writes a snapshot if one is due. idle means that there is no other work.
func (w *worker) saveWhenDue(now time.Time, idle bool) {
	if w.snapshots.isDue(w.head, now, idle) {
		w.saveSnapshot()
	}
}

// isDue reports whether the state at head is to be written.
func (s *snapshots) isDue(head uint64, now time.Time, idle bool) bool {
	news, since := head-s.head, now.Sub(s.at)
	switch {
	case s.dir == "" || s.writing != nil || news == 0 || since < saveRest*s.pause:
		return false
	case news >= s.every:
		return true
	}
	return news >= s.every/saveSome && (idle && since >= saveRestIdle || since >= saveEvery)
}

// drop deletes the snapshot from the disk.
func (s *snapshots) drop() error {
	if s.dir == "" {
		return nil
	}
	if err := os.Remove(s.filePath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing a snapshot that may hold what was erased: %w", err)
	}
	return nil
}

// saveSnapshot encodes the state and starts writing it to disk, unless it has to give up: then
// the file stays as it is.
func (w *worker) saveSnapshot() {
	s := &w.snapshots
	begun := time.Now()
	w.env.Log.Debug().Uint64("seq", w.head).Msg("writing a snapshot")
	h := snapshotHeader{Context: s.context, Incarnation: s.incarnation, Seq: w.head, Message: digestOf(w.last), CursorSeq: w.cursorSeq, StartOver: w.erasure.startOverAt, Staggered: w.erasure.staggered}
	for i := range w.pending {
		p := &w.pending[i]
		p.out.Encode()
		h.Pending = append(h.Pending, savedOutput{p.out.Subject, p.out.Type, p.out.ID, p.out.Body, p.seq, p.n, p.at})
	}
	image, whole := w.core.SnapshotUnlessStopped(s.stop)
	if !whole {
		s.at, s.pause = time.Now(), max(s.pause, saveAgain/saveRest)
		w.env.Log.Info().Uint64("seq", w.head).Dur("after", s.at.Sub(begun)).Msg("there is something more urgent than a snapshot; it is written later")
		return
	}
	s.next, s.at, s.pause = w.head, time.Now(), time.Since(begun)
	w.env.Log.Debug().Uint64("seq", w.head).Int("bytes", len(image)).Dur("pause", s.pause).Msg("snapshot")
	s.writing = make(chan error, 1)
	go func(flight chan<- error, path string) { flight <- s.writeFile(path, h, image) }(s.writing, s.filePath())
}

func (s *snapshots) writeFile(path string, h snapshotHeader, image []byte) error {
	var text bytes.Buffer
	if err := gob.NewEncoder(&text).Encode(h); err != nil {
		return err
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	return atomicfile.Stream(path, 0o600, func(to io.Writer) error {
		mac := hmac.New(sha256.New, s.key)
		both := io.MultiWriter(to, mac)
		for _, part := range [][]byte{[]byte(snapshotMagic), binary.BigEndian.AppendUint64(nil, uint64(text.Len())), text.Bytes(), image} {
			if _, err := both.Write(part); err != nil {
				return err
			}
		}
		_, err := to.Write(mac.Sum(nil))
		return err
	})
}

// noteSaved handles the result of a snapshot. One that failed is due again after a minute.
func (s *snapshots) noteSaved(env daemon.Env, err error) {
	s.writing = nil
	problem := ""
	if err == nil {
		s.head = s.next
	} else {
		s.pause = max(s.pause, saveAgain/saveRest)
		env.Log.Warn().Err(err).Msg("the snapshot could not be written; a restart will take longer")
		problem = err.Error()
	}
	env.Health.Set("snapshot", problem)
}

// saveAtEnd writes a last snapshot, so that the next start is fast.
func (w *worker) saveAtEnd() {
	if w.snapshots.writing != nil {
		w.snapshots.noteSaved(w.env, <-w.snapshots.writing)
	}
	w.snapshots.stop = nil
	if w.snapshots.dir != "" && w.head-w.snapshots.head >= w.snapshots.every/saveSome {
		w.saveSnapshot()
		w.snapshots.noteSaved(w.env, <-w.snapshots.writing)
	}
}
