package mcpgate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/countersign-dev/countersign/internal/gateclient"
)

// WrapOptions are those of Wrap.
type WrapOptions struct {
	Server  string   // the name under which the server's tools are judged
	Command []string // the server
	Peer    func() (gateclient.Peer, error)
	Page    string        // where a person decides, with {workflow}
	Hold    time.Duration // how long a call may wait for its verdict; default DefaultHold
	Pins    PinFile
	Reads   bool // resources/read and prompts/get are admitted, too

	In       io.Reader // the client
	Out, Err io.Writer
}

// How long a server may take to end: after its input was closed, and after SIGTERM.
const (
	closeTime     = 3 * time.Second
	terminateTime = 2 * time.Second
)

// Wrap starts a server and relays messages between it and the client until one of them ends, or ctx
// does. It returns the server's exit code, 0 if the client ended first.
func Wrap(ctx context.Context, o WrapOptions) (code int, err error) {
	if o.Hold == 0 {
		o.Hold = DefaultHold
	}
	p, err := startProcess(o.Command, o.Err)
	if err != nil {
		return 0, err
	}
	gate := newGate(o.Peer, o.Server, o.Hold, o.Err)
	gate.page = o.Page
	r := newRelay(gate, newCatalogue(o.Server, o.Pins, gate), o.Reads, o.Out, p.stdin)
	code, err = r.run(ctx, o.In, p.out, p.end, p.ended)
	gate.Close(o.Server)
	return code, err
}

// process is a server on its standard input and output.
type process struct {
	pid   int
	stdin io.WriteCloser
	out   io.Reader
	ended chan error // gets how it ended, once
}

func startProcess(command []string, stderr io.Writer) (*process, error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = terminateTime
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, in := io.Pipe() // so that Wait, with WaitDelay, ends what processes of the server keep open
	cmd.Stdout = in
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the server: %w", err)
	}
	p := &process{cmd.Process.Pid, stdin, out, make(chan error, 1)}
	go func() {
		err := waitForGroup(cmd)
		in.Close()
		p.ended <- err
	}()
	return p, nil
}

// run relays until one side ends. stop ends the server; ended has its end, if it ends itself.
func (r *relay) run(ctx context.Context, in, out io.Reader, stop func() error, ended chan error) (int, error) {
	judging, cancel := context.WithCancel(ctx)
	client, server := make(chan error, 1), make(chan error, 1)
	go func() { client <- readLines(in, func(line []byte) error { return r.fromClient(judging, line) }) }()
	go func() { server <- readLines(out, r.fromServer) }()
	var err error
	alone := false // the server ended by itself
	select {
	case err = <-server:
		alone = err == nil
	case err = <-client:
	case <-ctx.Done():
	}
	cancel() // what waits for a verdict is refused
	if alone {
		err = <-ended
	} else {
		err = errors.Join(err, stop())
	}
	r.close()
	return exitCode(err, alone)
}

// waitForGroup waits until the server has ended, and ends the processes that it leaves in its group.
func waitForGroup(cmd *exec.Cmd) error {
	pid := cmd.Process.Pid
	// While the server is a zombie, no other group can have its number.
	for errors.Is(unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
		continue
	}
	_ = syscall.Kill(-pid, syscall.SIGTERM)
	err := cmd.Wait()
	for until := time.Now().Add(terminateTime); syscall.Kill(-pid, 0) == nil && time.Now().Before(until); {
		time.Sleep(10 * time.Millisecond)
	}
	_ = syscall.Kill(-pid, syscall.SIGKILL)
	return err
}

func exitCode(err error, alone bool) (int, error) {
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && alone && exit.ExitCode() > 0:
		return exit.ExitCode(), nil
	case errors.As(err, &exit) && alone:
		return 1, nil // by a signal
	case errors.As(err, &exit), errors.Is(err, syscall.EPIPE), errors.Is(err, exec.ErrWaitDelay):
		return 0, nil
	}
	return 0, err
}

// end closes the server's input, then asks and then forces its processes to end.
func (p *process) end() error {
	_ = p.stdin.Close() // it may have ended
	for _, step := range []struct {
		wait time.Duration
		then syscall.Signal
	}{{closeTime, syscall.SIGTERM}, {terminateTime, syscall.SIGKILL}} {
		select {
		case err := <-p.ended:
			return err
		case <-time.After(step.wait):
			_ = syscall.Kill(-p.pid, step.then) // they may have ended
		}
	}
	return <-p.ended
}

// boundedInput is the input of a server that must read each message in bounded time. Once it has not,
// broken is called, and nothing more is written: the next message would begin within the last one.
type boundedInput struct {
	w      io.Writer
	most   time.Duration
	broken func()
	err    error
}

func (b *boundedInput) Write(line []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	if f, ok := b.w.(interface{ SetWriteDeadline(time.Time) error }); ok {
		_ = f.SetWriteDeadline(time.Now().Add(b.most)) // a pipe of this machine has deadlines
	}
	n, err := b.w.Write(line)
	if err != nil {
		b.err = err
		b.broken()
	}
	return n, err
}
