package bench

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"
)

// probe measures a fixed amount of work that needs only the processor and uses its
// instruction-level parallelism. Its duration shows the processor's current speed. On a core that
// is shared with other machines that can be reduced for milliseconds or for hours, and no counter
// shows it.
func probe() time.Duration {
	begun := time.Now()
	runtime.KeepAlive(sideBySide(4000)) // some 5 us
	return time.Since(begun)
}

//go:noinline
func sideBySide(n int) uint64 {
	var a, b, c, d, e, f, g, h uint64
	for range n {
		a, b, c, d, e, f, g, h = a+3, b^5, c+7, d^9, e+11, f^13, g+15, h^17
		a, b, c, d, e, f, g, h = a^2, b+4, c^6, d+8, e^10, f+12, g^14, h+16
	}
	return a + b + c + d + e + f + g + h
}

// undisturbedWithin is how much longer than the shortest probe a probe may take for the processor
// to count as undisturbed.
const undisturbedWithin = 1.05

// turn is one measured call of work.
type turn struct {
	messages int
	took     time.Duration
	probe    time.Duration // the longer one of the probes right before and after
}

// add adds the work of another turn.
func (t *turn) add(u turn) { t.messages, t.took = t.messages+u.messages, t.took+u.took }

// measure measures one call of work on n messages.
func measure(n int, work func()) turn {
	before := probe()
	begun := time.Now()
	work()
	took := time.Since(begun)
	return turn{n, took, max(before, probe())}
}

// undisturbed sums the turns in which the processor was undisturbed, and returns their share.
func undisturbed(turns []turn, shortest time.Duration) (sum turn, share float64) {
	n := 0
	for _, t := range turns {
		if float64(t.probe) <= undisturbedWithin*float64(shortest) {
			sum.add(t)
			n++
		}
	}
	return sum, float64(n) / float64(max(len(turns), 1))
}

// span is an interval of time.
type span struct{ begun, ended time.Time }

func (s span) length() time.Duration { return s.ended.Sub(s.begun) }

func (s span) overlaps(t span) bool { return s.begun.Before(t.ended) && t.begun.Before(s.ended) }

// percentile sorts spans by length and returns the length at a percentile.
func percentile(spans []span, percent int) time.Duration {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.length(), b.length()) })
	return spans[len(spans)*percent/100].length()
}

// watch calls look periodically until stop, which returns the duration of each call in order, or
// the error of one.
func watch(every time.Duration, look func() error) (stop func() ([]span, error)) {
	end, done := make(chan struct{}), make(chan error)
	var looks []span
	go func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			begun := time.Now()
			err := look()
			looks = append(looks, span{begun, time.Now()})
			select {
			case <-tick.C:
				if err == nil {
					continue
				}
				<-end
			case <-end:
			}
			done <- err
			return
		}
	}()
	return func() ([]span, error) {
		close(end)
		err := <-done
		return looks, err
	}
}

// watchProcessor probes the processor every 2 ms while other processes work.
func watchProcessor() (stop func() ([]span, error)) {
	return watch(2*time.Millisecond, func() error { probe(); return nil })
}

// watchDisk writes 4 KB to a file every 20 ms while other processes work, and waits for the sync.
func watchDisk(dir string) (stop func() ([]span, error), err error) {
	f, err := os.Create(filepath.Join(dir, "disk"))
	if err != nil {
		return nil, err
	}
	block := make([]byte, 4096)
	watched := watch(20*time.Millisecond, func() error {
		_, err := f.WriteAt(block, 0)
		return errors.Join(err, f.Sync())
	})
	return func() ([]span, error) {
		syncs, err := watched()
		return syncs, errors.Join(err, f.Close(), os.Remove(f.Name()))
	}, nil
}

// stalled is the least duration of a 4 KB sync that counts as a stall of the disk. While the
// correlator, the server and publishers write as fast as they can, half of the syncs take under
// 0.5 ms, and 99 of 100 under 6 ms.
const stalled = 20 * time.Millisecond

// stalls returns the syncs in which the disk stalled.
func stalls(syncs []span) []span {
	return slices.DeleteFunc(slices.Clone(syncs), func(s span) bool { return s.length() < stalled })
}

// during reports whether any of the spans overlaps with s.
func during(s span, others []span) bool { return slices.ContainsFunc(others, s.overlaps) }

// within returns the spans that begin in s, in order.
func within(s span, looks []span) []span {
	from := func(t time.Time) int {
		n, _ := slices.BinarySearchFunc(looks, t, func(l span, t time.Time) int { return l.begun.Compare(t) })
		return n
	}
	return slices.Clone(looks[from(s.begun):from(s.ended)])
}

// machine is the state of the machine while other processes worked.
type machine struct {
	probes []span
	best   time.Duration // the shortest probe
	stalls []span        // of the disk
}

// watchMachine watches the processor and the disk of dir.
func watchMachine(dir string) (stop func() (machine, error), err error) {
	disk, err := watchDisk(dir)
	if err != nil {
		return nil, err
	}
	processor := watchProcessor()
	return func() (machine, error) {
		probes, _ := processor()
		syncs, err := disk()
		return machine{probes, percentile(slices.Clone(probes), 0), stalls(syncs)}, err
	}, nil
}

// gave is the processor's median speed, relative to its best.
func (m machine) gave() float64 {
	return float64(m.best) / float64(percentile(slices.Clone(m.probes), 50))
}

// undisturbed reports whether the processor had its best speed during s, and the disk stalled
// neither then nor right before, since a stall is followed by a backlog.
func (m machine) undisturbed(s span) bool {
	if during(span{s.begun.Add(-window), s.ended}, m.stalls) {
		return false
	}
	probes := within(s, m.probes)
	return len(probes) > 0 && float64(percentile(probes, 50)) <= undisturbedWithin*float64(m.best)
}
