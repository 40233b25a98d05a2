// Package supervise runs the process tree of `countersign up`: it starts children in order,
// restarts those that die, and stops them in the reverse order. A child dies with its parent,
// whatever kills the parent. The parent uses New, Start and Stop with a Spec that calls Run; the
// child calls Attach and Ready.
package supervise

import (
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
	spec Spec
	life context.Context // ends when the child has to stop
	quit context.CancelFunc
	done chan struct{} // closed when the child will not be restarted any more

	mu   sync.Mutex
	proc Process
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
	c := &child{spec: spec, proc: proc, done: make(chan struct{})}
	c.life, c.quit = context.WithCancel(context.Background())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return errors.Join(errors.New("stopping"), proc.Stop(ctx))
	}
	s.children = append(s.children, c)
	s.onChange(spec.Name, proc.PID())
	go s.watchChild(c)
	return nil
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

// watchChild restarts c whenever it dies before it has to stop.
func (s *Supervisor) watchChild(c *child) {
	defer close(c.done)
	pauses, born := retry.New(BackoffMin, BackoffMax), time.Now()
	for {
		select {
		case <-c.life.Done():
			return
		case <-c.currentProcess().Done():
		}
		select {
		case <-c.life.Done():
			return
		default:
		}
		if time.Since(born) > Settled {
			pauses.Reset()
		}
		delay := pauses.Next()
		s.log.Warn().Str("child", c.spec.Name).Err(c.currentProcess().Err()).Dur("restart_in", delay).Msg("a child died and will be restarted")
		if !s.restartChild(c, delay, pauses) {
			return
		}
		born = time.Now()
	}
}

// restartChild tries after delay, and then until the child runs again; it returns false if the
// child has to stop.
func (s *Supervisor) restartChild(c *child, delay time.Duration, pauses *retry.Pauses) bool {
	for {
		if retry.Sleep(c.life, delay) != nil {
			return false
		}
		proc, err := c.spec.Start(c.life)
		if err != nil {
			delay = pauses.Next()
			s.log.Error().Str("child", c.spec.Name).Err(err).Dur("retry_in", delay).Msg("restart failed")
			continue
		}
		c.mu.Lock()
		c.proc = proc
		c.mu.Unlock()
		s.log.Info().Str("child", c.spec.Name).Int("pid", proc.PID()).Msg("restarted")
		s.onChange(c.spec.Name, proc.PID())
		return true
	}
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

// StopChild stops the child of a name and forgets it. A name without a child is no error.
func (s *Supervisor) StopChild(ctx context.Context, name string) error {
	s.mu.Lock()
	i := slices.IndexFunc(s.children, func(c *child) bool { return c.spec.Name == name })
	if i < 0 {
		s.mu.Unlock()
		return nil
	}
	c := s.children[i]
	s.children = slices.Delete(s.children, i, i+1)
	s.mu.Unlock()
	return c.stop(ctx)
}

// stop ends the child's restarts and then its process, which is killed after StopGrace or when ctx ends.
func (c *child) stop(ctx context.Context) error {
	c.quit()
	<-c.done
	grace, cancel := context.WithTimeout(ctx, StopGrace)
	defer cancel()
	if err := c.currentProcess().Stop(grace); err != nil {
		return fmt.Errorf("stopping %s: %w", c.spec.Name, err)
	}
	return nil
}
