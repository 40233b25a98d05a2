package supervise

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// envSupervised tells a child that its standard input is the life line to its
// parent and its file descriptor 3 the pipe for the ready message.
const envSupervised = "COUNTERSIGN_SUPERVISED"

const readyFD = 3

// ErrEnded says that a child ended before it was ready: whatever it met may be over
// by the next time.
var ErrEnded = errors.New("it ended before it was ready")

// waitDelay is how long what a dead child has printed is waited for.
const waitDelay = 5 * time.Second

// timerSlack is how late the timers of a child may be, 50 us where nobody says
// otherwise. Go's runtime looks every 20 us for threads that are held up in the
// kernel (sysmon), as long as it finds some: in programs that wait for disks and
// sockets all day, that is always, and a twentieth of what they use of the processors
// (more in a virtual machine, where a timer is dear). None of the children's own timers
// is shorter than this.
const timerSlack = time.Millisecond

// Command is one child program.
type Command struct {
	Path         string
	Args         []string
	Env          []string // added to the parent's
	Log          io.Writer
	ReadyTimeout time.Duration // default 60 s
	Nice         int           // how much the child stands back when the processors are busy, 0 to 19
}

// Run starts a child that uses Attach and Ready, and waits until it says that
// it is ready. What it said is decoded into info, which may be nil.
func Run(ctx context.Context, c Command, info any) (Process, error) {
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Env = append(append(os.Environ(), c.Env...), envSupervised+"=1")
	cmd.Stdout, cmd.Stderr = c.Log, c.Log
	// A group of its own: a Ctrl-C in the terminal reaches the parent only, which
	// then stops its children in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = waitDelay
	life, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	ready, readyW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = ready.Close() }()
	cmd.ExtraFiles = []*os.File{readyW}
	err = startWithSlack(cmd)
	_ = readyW.Close()
	if err != nil {
		return nil, err
	}
	if c.Nice != 0 {
		// The whole group, which is the child with all its threads. A child that
		// cannot be told to stand back is none the worse for it.
		_ = syscall.Setpriority(syscall.PRIO_PGRP, cmd.Process.Pid, c.Nice)
	}
	p := &process{cmd: cmd, life: life, done: make(chan struct{})}
	go p.wait()
	if err := p.awaitReady(ctx, ready, c.ReadyTimeout, info); err != nil {
		p.kill()
		return nil, err
	}
	return p, nil
}

type process struct {
	cmd  *exec.Cmd
	life io.Closer
	done chan struct{}
	err  error // set before done is closed
}

func (p *process) PID() int              { return p.cmd.Process.Pid }
func (p *process) Done() <-chan struct{} { return p.done }

func (p *process) Err() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

func (p *process) wait() {
	p.err = p.cmd.Wait()
	close(p.done)
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// Stop sends SIGTERM and, when ctx ends, SIGKILL.
func (p *process) Stop(ctx context.Context) error {
	select {
	case <-p.done:
		return nil
	default:
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		p.kill()
		return fmt.Errorf("did not stop in time and was killed: %w", context.Cause(ctx))
	}
}

func (p *process) awaitReady(ctx context.Context, ready *os.File, timeout time.Duration, info any) error {
	if timeout == 0 {
		timeout = time.Minute
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	type answer struct {
		line []byte
		err  error
	}
	got := make(chan answer, 1)
	go func() {
		line, err := bufio.NewReader(ready).ReadBytes('\n')
		got <- answer{line, err}
	}()
	select {
	case a := <-got:
		if a.err != nil {
			<-p.done // the pipe closes with the process
			return fmt.Errorf("%w (%v); its log says why", ErrEnded, p.err)
		}
		if info == nil {
			return nil
		}
		return json.Unmarshal(a.line, info)
	case <-ctx.Done():
		return fmt.Errorf("not ready: %w", context.Cause(ctx))
	}
}

// Supervised reports whether this process was started by Run.
func Supervised() bool { return os.Getenv(envSupervised) == "1" }

// Attach ties the life of this process to its parent's: the returned context
// ends when the parent is gone. Outside supervision it returns ctx itself.
func Attach(ctx context.Context) context.Context {
	if !Supervised() {
		return ctx
	}
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel(errors.New("the parent process is gone"))
	}()
	return ctx
}

// Ready tells the parent that this process answers. info is any JSON value.
// Outside supervision it does nothing.
func Ready(info any) error {
	if !Supervised() {
		return nil
	}
	line, err := json.Marshal(info)
	if err != nil {
		return err
	}
	pipe := os.NewFile(readyFD, "ready")
	_, err = fmt.Fprintln(pipe, strings.TrimSpace(string(line)))
	return errors.Join(err, pipe.Close())
}
