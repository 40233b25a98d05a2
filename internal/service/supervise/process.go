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

// envSupervised tells a child that its standard input closes when its parent ends, and that file
// descriptor 3 is the pipe for the ready message.
const envSupervised = "COUNTERSIGN_SUPERVISED"

const readyFD = 3

// ErrEnded reports that a child ended before it was ready. The cause may be temporary.
var ErrEnded = errors.New("it ended before it was ready")

// waitDelay is how long to wait for the remaining output of a dead child.
const waitDelay = 5 * time.Second

// timerSlack is how late the timers of a child may be; the kernel's default is 50 us. Go's
// runtime polls every 20 us for threads that are blocked in the kernel (sysmon), as long as it
// finds some. Programs that wait for disks and sockets all day always have some, and the polling
// uses a twentieth of their processor time (more in a virtual machine, where a timer is
// expensive). None of the children's own timers is shorter than this.
const timerSlack = time.Millisecond

// Command is one child program.
type Command struct {
	Path         string
	Args         []string
	Env          []string // added to the parent's
	Log          io.Writer
	ReadyTimeout time.Duration // default 60 s
	Nice         int           // nice value of the child, 0 to 19
}

// Run starts a child that uses Attach and Ready, and waits until it reports that it is ready. The
// report is decoded into info, which may be nil.
func Run(ctx context.Context, c Command, info any) (Process, error) {
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Env = append(append(os.Environ(), c.Env...), envSupervised+"=1")
	cmd.Stdout, cmd.Stderr = c.Log, c.Log
	// A process group of its own: Ctrl-C in the terminal reaches only the parent, which then
	// stops its children in order.
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
		// The whole group: the child with all its threads. A failure does no harm.
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
			<-p.done // the pipe closes when the process ends
			return fmt.Errorf("%w (%w); its log says why", ErrEnded, p.err)
		}
		if info == nil {
			return nil
		}
		return json.Unmarshal(a.line, info)
	case <-ctx.Done():
		return fmt.Errorf("not ready: %w", context.Cause(ctx))
	}
}

// supervised reports whether this process was started by Run.
func supervised() bool { return os.Getenv(envSupervised) == "1" }

// Attach ties this process to its parent: the returned context ends when the parent is gone. In a
// process that is not supervised it returns ctx itself.
func Attach(ctx context.Context) context.Context {
	if !supervised() {
		return ctx
	}
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel(errors.New("the parent process is gone"))
	}()
	return ctx
}

// Ready tells the parent that this process answers. info is any JSON value. In a process that is
// not supervised it does nothing.
func Ready(info any) error {
	if !supervised() {
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
