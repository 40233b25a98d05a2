package supervise

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// envSupervised tells a child that its standard input closes when its parent ends, and that file
// descriptor 3 is the pipe for what it reports.
const envSupervised = "COUNTERSIGN_SUPERVISED"

const reportFD = 3

// report is one line on that pipe. A child reports at most that it has begun, that it is ready, and why it
// failed, in this order.
type report struct {
	State string          `json:"state"`
	Info  json.RawMessage `json:"info,omitempty"`
	Error string          `json:"error,omitempty"`
}

const (
	stateBegun  = "begun"
	stateReady  = "ready"
	stateFailed = "failed"
)

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
	// Begun, which may be nil, gets the JSON that the child reports when it has begun.
	Begun func(info []byte)
}

// NoTimeout is the ReadyTimeout of a child that may take any time.
const NoTimeout = time.Duration(math.MaxInt64)

// Run starts a child that uses Attach and Ready, and waits until it reports that it is ready. The
// report is decoded into info, which may be nil. If ctx ends meanwhile, the child is stopped.
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
	reports, reportsW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.ExtraFiles = []*os.File{reportsW}
	err = startWithSlack(cmd)
	_ = reportsW.Close()
	if err != nil {
		_ = reports.Close()
		return nil, err
	}
	if c.Nice != 0 {
		// The whole group: the child with all its threads. A failure does no harm.
		_ = syscall.Setpriority(syscall.PRIO_PGRP, cmd.Process.Pid, c.Nice)
	}
	p := &process{cmd: cmd, life: life, ready: make(chan []byte, 1), told: make(chan struct{}), done: make(chan struct{})}
	go p.readReports(reports, c.Begun)
	go p.wait()
	if err := p.awaitReady(ctx, c.ReadyTimeout, info); err != nil {
		if ctx.Err() == nil {
			p.kill()
			return nil, err
		}
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), StopGrace)
		defer cancel()
		return nil, errors.Join(err, p.Stop(grace))
	}
	return p, nil
}

type process struct {
	cmd   *exec.Cmd
	life  io.Closer
	ready chan []byte   // gets the information of a child that is ready
	told  chan struct{} // closed when no report comes any more
	done  chan struct{}
	cause string // reported by the child; set before told is closed
	err   error  // set before done is closed
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
	select {
	case <-p.told:
		if p.err != nil && p.cause != "" {
			p.err = fmt.Errorf("%w: %s", p.err, p.cause)
		}
	case <-time.After(waitDelay): // a process that the child has left behind holds the pipe
	}
	close(p.done)
}

// readReports reads what the child reports until its end.
func (p *process) readReports(from io.ReadCloser, begun func(info []byte)) {
	defer func() { _ = from.Close() }()
	defer close(p.told)
	for dec := json.NewDecoder(from); ; {
		var r report
		if dec.Decode(&r) != nil {
			return
		}
		switch r.State {
		case stateBegun:
			if begun != nil {
				begun(r.Info)
			}
		case stateReady:
			select {
			case p.ready <- r.Info:
			default: // only the first one counts
			}
		case stateFailed:
			p.cause = r.Error
		}
	}
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

func (p *process) awaitReady(ctx context.Context, timeout time.Duration, info any) error {
	if timeout == 0 {
		timeout = time.Minute
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	decode := func(text []byte) error {
		if info == nil {
			return nil
		}
		return json.Unmarshal(text, info)
	}
	select {
	case text := <-p.ready:
		return decode(text)
	case <-ctx.Done():
		return fmt.Errorf("not ready: %w", context.Cause(ctx))
	case <-p.done:
	}
	select {
	case text := <-p.ready: // the supervisor sees the end itself
		return decode(text)
	default:
		return fmt.Errorf("%w (%w); its log says more", ErrEnded, cmp.Or(p.err, errEnded))
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

// Begun tells the parent that this process works, and is not ready yet. info is any JSON value. In a process
// that is not supervised Begun, Ready and Failed do nothing.
func Begun(info any) error { return send(stateBegun, info, nil) }

// Ready tells the parent that this process answers.
func Ready(info any) error { return send(stateReady, info, nil) }

// Failed tells the parent why this process ends.
func Failed(cause error) { _ = send(stateFailed, nil, cause) }

// reportPipe is the child's end of the pipe. It stays open until the end of the process, and no child of this
// process inherits it.
var reportPipe = sync.OnceValue(func() *os.File {
	syscall.CloseOnExec(reportFD)
	return os.NewFile(reportFD, "reports")
})

func send(state string, info any, cause error) error {
	if !supervised() {
		return nil
	}
	r := report{State: state}
	if cause != nil {
		r.Error = cause.Error()
	}
	var err error
	if r.Info, err = json.Marshal(info); err != nil {
		return err
	}
	return json.NewEncoder(reportPipe()).Encode(r)
}
