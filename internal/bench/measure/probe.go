// Package measure has what the measurements share: the pipeline that they run on, the state of the machine while
// they run, their results and their floors.
package measure

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

// Turn is one measured call of work.
type Turn struct {
	Messages int
	Took     time.Duration
	Probe    time.Duration // the longer one of the probes right before and after
}

// Add adds the work of another turn.
func (t *Turn) Add(u Turn) { t.Messages, t.Took = t.Messages+u.Messages, t.Took+u.Took }

// TakeTurn measures one call of work on n messages.
func TakeTurn(n int, work func()) Turn {
	before := probe()
	begun := time.Now()
	work()
	took := time.Since(begun)
	return Turn{n, took, max(before, probe())}
}

// Undisturbed sums the turns in which the processor was undisturbed, and returns their share.
func Undisturbed(turns []Turn, shortest time.Duration) (sum Turn, share float64) {
	n := 0
	for _, t := range turns {
		if float64(t.Probe) <= undisturbedWithin*float64(shortest) {
			sum.Add(t)
			n++
		}
	}
	return sum, float64(n) / float64(max(len(turns), 1))
}

// Span is an interval of time.
type Span struct{ Begun, Ended time.Time }

// Length is how long the span is.
func (s Span) Length() time.Duration { return s.Ended.Sub(s.Begun) }

func (s Span) overlaps(t Span) bool { return s.Begun.Before(t.Ended) && t.Begun.Before(s.Ended) }

// Percentile sorts spans by length and returns the length at a percentile.
func Percentile(spans []Span, percent int) time.Duration {
	slices.SortFunc(spans, func(a, b Span) int { return cmp.Compare(a.Length(), b.Length()) })
	return spans[len(spans)*percent/100].Length()
}

// Watch calls look periodically until stop, which returns the duration of each call in order, or
// the error of one.
func Watch(every time.Duration, look func() error) (stop func() ([]Span, error)) {
	end, done := make(chan struct{}), make(chan error)
	var looks []Span
	go func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			begun := time.Now()
			err := look()
			looks = append(looks, Span{begun, time.Now()})
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
	return func() ([]Span, error) {
		close(end)
		err := <-done
		return looks, err
	}
}

// watchProcessor probes the processor every 2 ms while other processes work.
func watchProcessor() (stop func() ([]Span, error)) {
	return Watch(2*time.Millisecond, func() error { probe(); return nil })
}

// WatchDisk writes 4 KB to a file every 20 ms while other processes work, and waits for the sync.
func WatchDisk(dir string) (stop func() ([]Span, error), err error) {
	f, err := os.Create(filepath.Join(dir, "disk"))
	if err != nil {
		return nil, err
	}
	block := make([]byte, 4096)
	watched := Watch(20*time.Millisecond, func() error {
		_, err := f.WriteAt(block, 0)
		return errors.Join(err, f.Sync())
	})
	return func() ([]Span, error) {
		syncs, err := watched()
		return syncs, errors.Join(err, f.Close(), os.Remove(f.Name()))
	}, nil
}

// Stalled is the least duration of a 4 KB sync that counts as a stall of the disk. While the
// correlator, the server and publishers write as fast as they can, half of the syncs take under
// 0.5 ms, and 99 of 100 under 6 ms.
const Stalled = 20 * time.Millisecond

// Stalls returns the syncs in which the disk stalled.
func Stalls(syncs []Span) []Span {
	return slices.DeleteFunc(slices.Clone(syncs), func(s Span) bool { return s.Length() < Stalled })
}

// During reports whether any of the spans overlaps with s.
func During(s Span, others []Span) bool { return slices.ContainsFunc(others, s.overlaps) }

// within returns the spans that begin in s, in order.
func within(s Span, looks []Span) []Span {
	from := func(t time.Time) int {
		n, _ := slices.BinarySearchFunc(looks, t, func(l Span, t time.Time) int { return l.Begun.Compare(t) })
		return n
	}
	return slices.Clone(looks[from(s.Begun):from(s.Ended)])
}

// Window is the shortest interval for which it is decided whether the machine was undisturbed.
const Window = 100 * time.Millisecond

// Machine is the state of the machine while other processes worked.
type Machine struct {
	Probes []Span
	Best   time.Duration // the shortest probe
	Stalls []Span        // of the disk
}

// WatchMachine watches the processor and the disk of dir.
func WatchMachine(dir string) (stop func() (Machine, error), err error) {
	disk, err := WatchDisk(dir)
	if err != nil {
		return nil, err
	}
	processor := watchProcessor()
	return func() (Machine, error) {
		probes, _ := processor()
		syncs, err := disk()
		return Machine{probes, Percentile(slices.Clone(probes), 0), Stalls(syncs)}, err
	}, nil
}

// Gave is the processor's median speed, relative to its best.
func (m Machine) Gave() float64 {
	return float64(m.Best) / float64(Percentile(slices.Clone(m.Probes), 50))
}

// Undisturbed reports whether the processor had its best speed during s, and the disk stalled
// neither then nor right before, since a stall is followed by a backlog.
func (m Machine) Undisturbed(s Span) bool {
	if During(Span{s.Begun.Add(-Window), s.Ended}, m.Stalls) {
		return false
	}
	probes := within(s, m.Probes)
	return len(probes) > 0 && float64(Percentile(probes, 50)) <= undisturbedWithin*float64(m.Best)
}
