// Package supervise runs the process tree of `countersign up`: it starts children in order,
// restarts those that die, and stops them in the reverse order. A child dies with its parent,
// whatever kills the parent. The parent uses New, Start and Stop with a Spec that calls Run; the
// child calls Attach and Ready.
package supervise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/internal/retry"
)

// Defaults of the restart delay: it doubles from BackoffMin to BackoffMax and starts over once a
// child has lived for Settled.
const (
	BackoffMin = 100 * time.Millisecond
	BackoffMax = 5 * time.Second
	Settled    = 30 * time.Second
	StopGrace  = 15 * time.Second // how long a child may take to stop before it is killed

	firstStarts = 5 // how often a child is started that ends before it was ever ready
)

var (
	errStopping = errors.New("stopping")
	errEnded    = errors.New("it ended")
	errNotBegun = errors.New("it has not begun yet")
)

// Process is one running child.
type Process interface {
	PID() int
	Done() <-chan struct{}          // closed when the process is gone
	Err() error                     // the reason, once Done is closed
	Stop(ctx context.Context) error // requests the end; kills when ctx ends
}

// Spec describes how to start one child. Start returns when the child is ready.
type Spec struct {
	Name  string
	Start func(ctx context.Context) (Process, error)
	// Final, which may be nil, is asked at once after every end, and after every failed start but those of
	// Supervisor.Start: true if the child is not started again.
	Final func(err error) bool
}

// Supervisor owns its children. Its methods are safe for concurrent use.
type Supervisor struct {
	log      zerolog.Logger
	onChange func(name string, pid int)

	mu       sync.Mutex
	children []*child
	stopping bool
}

type child struct {
	spec  Spec
	first *First          // nil of a child that was ready before it was watched
	life  context.Context // ends when the child has to stop
	quit  context.CancelFunc
	done  chan struct{} // closed when the child will not be restarted any more

	mu      sync.Mutex
	proc    Process // nil before the first start
	problem error   // why it does not run
}

func newChild(spec Spec, proc Process, first *First) *child {
	c := &child{spec: spec, proc: proc, first: first, done: make(chan struct{})}
	c.life, c.quit = context.WithCancel(context.Background())
	return c
}

// New makes a supervisor. onChange, which may be nil, gets the process id of a child after every
// start and restart.
func New(log zerolog.Logger, onChange func(name string, pid int)) *Supervisor {
	if onChange == nil {
		onChange = func(string, int) {}
	}
	return &Supervisor{log: log, onChange: onChange}
}

// Start starts a child, waits until it is ready and keeps it running until Stop. A child that
// ends before it is ready is started up to firstStarts times, with the pauses of a restart (about
// a second and a half in all); after that, and for any other cause at once, the error is
// returned.
func (s *Supervisor) Start(ctx context.Context, spec Spec) error {
	proc, err := s.firstStart(ctx, spec)
	if err != nil {
		return fmt.Errorf("starting %s: %w", spec.Name, err)
	}
	c := newChild(spec, proc, nil)
	if !s.add(c, proc.PID()) {
		c.quit()
		return errors.Join(errStopping, proc.Stop(ctx))
	}
	return nil
}

// add watches a child from now on. It returns false if everything stops.
func (s *Supervisor) add(c *child, pid int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return false
	}
	s.children = append(s.children, c)
	s.changed(c, pid)
	go s.watchChild(c)
	return true
}

// changed tells the process id of a child, unless it is 0: the child does not run yet, or is not of this machine.
func (s *Supervisor) changed(c *child, pid int) {
	if pid != 0 {
		s.onChange(c.spec.Name, pid)
	}
}

// First is the outcome of the first starts of a child.
type First struct {
	once   sync.Once
	done   chan struct{}
	err    error
	failed int // starts; only the child's goroutine counts
}

// Done is closed once the outcome is known.
func (f *First) Done() <-chan struct{} { return f.done }

// Err is the outcome, once Done is closed; nil if the child was ready.
func (f *First) Err() error { return f.err }

func (f *First) settle(err error) {
	if f != nil {
		f.once.Do(func() { f.err = err; close(f.done) })
	}
}

// addStart adds the result of a start; a nil First has none.
func (f *First) addStart(err error) {
	if f == nil {
		return
	}
	if err != nil {
		f.failed++
	}
	if err == nil || f.failed >= firstStarts {
		f.settle(err)
	}
}

// Keep starts a child and keeps it running until Stop, as Start does, but does not wait, and does not give the
// child up that does not become ready. The outcome is an error after firstStarts failed starts, although the child
// is started again; after one that is final; and if the child is stopped before. It is a problem that a child has not begun.
func (s *Supervisor) Keep(spec Spec) *First {
	first := &First{done: make(chan struct{})}
	c := newChild(spec, nil, first)
	c.problem = errNotBegun
	context.AfterFunc(c.life, func() { first.settle(errStopping) })
	if !s.add(c, 0) {
		c.quit()
	}
	return first
}

// Begun notes that a child works, though it is not ready: it has no problem any more.
func (s *Supervisor) Begun(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.children {
		if c.spec.Name == name {
			c.mu.Lock()
			c.problem = nil
			c.mu.Unlock()
		}
	}
}

// Problems says why children do not run now, by name.
func (s *Supervisor) Problems() map[string]error {
	s.mu.Lock()
	defer s.mu.Unlock()
	problems := map[string]error{}
	for _, c := range s.children {
		c.mu.Lock()
		if c.problem != nil {
			problems[c.spec.Name] = c.problem
		}
		c.mu.Unlock()
	}
	return problems
}

// firstStart starts a child for the first time.
func (s *Supervisor) firstStart(ctx context.Context, spec Spec) (Process, error) {
	pauses := retry.New(BackoffMin, BackoffMax)
	for try := 1; ; try++ {
		proc, err := spec.Start(ctx)
		if try == firstStarts || !errors.Is(err, ErrEnded) || ctx.Err() != nil {
			return proc, err
		}
		delay := pauses.Next()
		s.log.Warn().Str("child", spec.Name).Err(err).Dur("retry_in", delay).Msg("a child did not start; it will be tried again")
		if retry.Sleep(ctx, delay) != nil {
			return nil, err
		}
	}
}

// watchChild starts c, unless it runs, and whenever it dies before it has to stop.
func (s *Supervisor) watchChild(c *child) {
	defer close(c.done)
	pauses, born := retry.New(BackoffMin, BackoffMax), time.Now()
	delay := time.Duration(0)
	for {
		if proc := c.currentProcess(); proc != nil {
			select {
			case <-c.life.Done():
				return
			case <-proc.Done():
			}
			if c.life.Err() != nil {
				return
			}
			if time.Since(born) > Settled {
				pauses.Reset()
			}
			err := cmp.Or(proc.Err(), errEnded)
			c.note(proc, err)
			if s.isFinal(c, err) {
				return
			}
			delay = pauses.Next()
			s.log.Warn().Str("child", c.spec.Name).Err(proc.Err()).Dur("restart_in", delay).Msg("a child died and will be restarted")
		}
		if !s.startChild(c, delay, pauses) {
			return
		}
		born = time.Now()
	}
}

// startChild tries after delay, and then until the child runs; it returns false if the child has to stop, or
// is not started again.
func (s *Supervisor) startChild(c *child, delay time.Duration, pauses *retry.Pauses) bool {
	for {
		if retry.Sleep(c.life, delay) != nil {
			return false
		}
		proc, err := c.spec.Start(c.life)
		if err != nil && c.life.Err() != nil {
			return false
		}
		c.note(proc, err)
		if err == nil {
			s.log.Info().Str("child", c.spec.Name).Int("pid", proc.PID()).Msg("started")
			s.changed(c, proc.PID())
		}
		c.first.addStart(err)
		if err == nil {
			return true
		}
		if s.isFinal(c, err) {
			return false
		}
		delay = pauses.Next()
		s.log.Error().Str("child", c.spec.Name).Err(err).Dur("retry_in", delay).Msg("a child did not start; it will be tried again")
	}
}

// isFinal reports whether a child that ended, or did not start, is not started again.
func (s *Supervisor) isFinal(c *child, err error) bool {
	if c.spec.Final == nil || !c.spec.Final(err) {
		return false
	}
	c.first.settle(err)
	s.log.Error().Str("child", c.spec.Name).Err(err).Msg("a child ended and is not started again")
	return true
}

// note notes the child's process, and why it does not run.
func (c *child) note(proc Process, problem error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.proc, c.problem = proc, problem
}

func (c *child) currentProcess() Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.proc
}

// Stop stops every child, the last started first. A child that has not stopped after StopGrace,
// or when ctx ends, is killed.
func (s *Supervisor) Stop(ctx context.Context) error {
	s.mu.Lock()
	s.stopping = true
	children := s.children
	s.children = nil
	s.mu.Unlock()
	var errs []error
	for i := len(children) - 1; i >= 0; i-- {
		errs = append(errs, children[i].stop(ctx))
	}
	return errors.Join(errs...)
}

// StopChildren stops the children of some names, all at the same time, and forgets them. A name without a
// child is no error.
func (s *Supervisor) StopChildren(ctx context.Context, names ...string) error {
	var named []*child
	s.mu.Lock()
	s.children = slices.DeleteFunc(s.children, func(c *child) bool {
		if !slices.Contains(names, c.spec.Name) {
			return false
		}
		named = append(named, c)
		return true
	})
	s.mu.Unlock()
	errs := make([]error, len(named))
	var stops sync.WaitGroup
	for i, c := range named {
		stops.Go(func() { errs[i] = c.stop(ctx) })
	}
	stops.Wait()
	return errors.Join(errs...)
}

// stop ends the child's restarts and then its process, which is killed after StopGrace or when ctx ends.
func (c *child) stop(ctx context.Context) error {
	c.quit()
	<-c.done
	proc := c.currentProcess()
	if proc == nil {
		return nil
	}
	grace, cancel := context.WithTimeout(ctx, StopGrace)
	defer cancel()
	if err := proc.Stop(grace); err != nil {
		return fmt.Errorf("stopping %s: %w", c.spec.Name, err)
	}
	return nil
}
