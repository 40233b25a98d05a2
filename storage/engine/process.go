package engine

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"

	"github.com/rs/zerolog"
)

// process is a child that does not outlive this process.
type process struct {
	cmd    *exec.Cmd
	stdin  io.Closer // this process's end of the child's stdin
	output *outputTail
	done   chan struct{} // closed when the child has ended
	state  string        // how it ended; set before done is closed
}

// startProcess starts argv in the folder dir with the given inherited files (from descriptor 3 on).
//
// The child dies with its parent in two ways. Its stdin is a pipe that only this process holds
// open, and the engine's child watches it. And the kernel sends it SIGKILL when the thread
// that forked it ends (PDEATHSIG is bound to the thread, not to the process), so that thread
// is reserved for the child until it has ended. The child inherits the thread's lower priority:
// what a verdict waits for (the admitter, NATS) gets the processor before the engine does. The
// thread is never unlocked, so it ends with its goroutine and nothing else runs at that priority.
func startProcess(dir string, argv, env []string, inherited []*os.File, log zerolog.Logger) (*process, error) {
	p := &process{cmd: exec.Command(argv[0], argv[1:]...), output: &outputTail{log: log}, done: make(chan struct{})}
	p.cmd.Dir, p.cmd.Env = dir, env
	p.cmd.ExtraFiles = inherited
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	p.cmd.SysProcAttr = dieWithParent()
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil { // closed by Wait, or by the end of this process
		return nil, err
	}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		lowerThreadPriority()
		err := p.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		_ = p.cmd.Wait()
		p.state = p.cmd.ProcessState.String()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", argv[0], err)
	}
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// kill ends the child at once and waits until it has ended. The engine's files survive that,
// as they survive a crash.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// outputTail logs the output of a child and keeps the end of it for error messages.
type outputTail struct {
	log zerolog.Logger

	mu   sync.Mutex
	tail []byte
}

// outputKept is the number of bytes that outputTail keeps.
const outputKept = 8 << 10

func (o *outputTail) Write(b []byte) (int, error) {
	for line := range bytes.Lines(b) {
		o.log.Debug().Str("component", "clickhouse").Msg(strings.TrimSpace(string(line)))
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tail = append(o.tail, b...)
	if n := len(o.tail) - outputKept; n > 0 {
		o.tail = append([]byte(nil), o.tail[n:]...)
	}
	return len(b), nil
}

func (o *outputTail) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.TrimSpace(string(o.tail))
}
