package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/internal/testkit"
)

// TestMain doubles as the child program: its role is its first argument.
func TestMain(m *testing.M) {
	if !supervised() {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(Attach(context.Background()), syscall.SIGTERM)
	defer stop()
	switch os.Args[1] {
	case "dies":
		os.Exit(7)
	case "parent": // starts a child of its own, tells its pid, and waits to be killed
		p, err := Run(ctx, Command{Path: os.Args[0], Args: []string{"serves"}}, nil)
		if err != nil {
			os.Exit(8)
		}
		_ = Ready(map[string]int{"pid": p.PID()})
	case "fails":
		Failed(errors.New("the disk is gone"))
		os.Exit(4)
	case "begins": // and is never ready
		_ = Begun(map[string]string{"at": "here"})
		<-ctx.Done()
		_ = os.WriteFile(os.Args[2], nil, 0o600)
		os.Exit(0)
	case "ends":
		_ = Ready(nil)
		Failed(errors.New("the disk is gone"))
		os.Exit(4)
	case "slack":
		_ = Ready(slackOf("self"))
	default:
		_ = Ready(map[string]int{"pid": os.Getpid()})
	}
	<-ctx.Done()
	os.Exit(0)
}

func spec(role string) Spec {
	return Spec{Name: role, Start: func(ctx context.Context) (Process, error) {
		return Run(ctx, Command{Path: os.Args[0], Args: []string{role}}, nil)
	}}
}

func TestRestartsWhatDiesAndStopsInOrder(t *testing.T) {
	pids := make(chan int, 10)
	s := New(zerolog.Nop(), func(_ string, pid int) { pids <- pid })
	ctx := t.Context()
	if err := s.Start(ctx, spec("serves")); err != nil {
		t.Fatal(err)
	}
	first := <-pids
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	second := <-pids
	if second == first {
		t.Fatal("not restarted")
	}
	if err := s.Stop(ctx); err != nil {
		t.Error(err)
	}
	if alive(second) {
		t.Error("the child outlived Stop")
	}
}

func TestFirstStartReportsFailure(t *testing.T) {
	s := New(zerolog.Nop(), nil)
	if err := s.Start(t.Context(), spec("dies")); !errors.Is(err, ErrEnded) {
		t.Fatalf("a child that ends before it is ready: %v", err)
	}
}

// A child whose first start fails is started again, a limited number of times, and only for
// errors that can pass.
func TestAFirstStartIsTriedAgain(t *testing.T) {
	other := errors.New("no such program")
	for _, c := range []struct {
		name  string
		fails int
		with  error
		tries int
		ok    bool
	}{
		{"at once", 0, nil, 1, true},
		{"at the second try", 1, ErrEnded, 2, true},
		{"at the last try", firstStarts - 1, ErrEnded, firstStarts, true},
		{"never", 100, ErrEnded, firstStarts, false},
		{"for another reason", 100, other, 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, tries := New(zerolog.Nop(), nil), 0
			err := s.Start(t.Context(), Spec{Name: "a", Start: func(context.Context) (Process, error) {
				if tries++; tries <= c.fails {
					return nil, fmt.Errorf("%w; its log says why", c.with)
				}
				return &scripted{"a", func(string) {}, make(chan struct{})}, nil
			}})
			if (err == nil) != c.ok || tries != c.tries || !c.ok && !errors.Is(err, c.with) {
				t.Errorf("%d tries: %v", tries, err)
			}
			_ = s.Stop(t.Context())
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	tries := 0
	err := New(zerolog.Nop(), nil).Start(ctx, Spec{Name: "a", Start: func(context.Context) (Process, error) {
		tries++
		cancel()
		return nil, ErrEnded
	}})
	if err == nil || tries != 1 {
		t.Errorf("whoever is told to stop does not try again: %d tries, %v", tries, err)
	}
}

func TestChildDiesWithKilledParent(t *testing.T) {
	var grandchild struct{ PID int }
	p, err := Run(t.Context(), Command{Path: os.Args[0], Args: []string{"parent"}}, &grandchild)
	if err != nil {
		t.Fatal(err)
	}
	if !alive(grandchild.PID) {
		t.Fatal("no grandchild")
	}
	if err := syscall.Kill(p.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	deadline := time.Now().Add(testkit.Guard)
	for alive(grandchild.PID) {
		if time.Now().After(deadline) {
			t.Fatal("the grandchild outlived its parent")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// The slack of a child's timers is in force before its runtime starts threads, and the
// parent's own stays as it was.
func TestTimerSlack(t *testing.T) {
	before := slackOf("self")
	if before == "" {
		t.Skip("this system does not tell the slack of timers")
	}
	var got string
	p, err := Run(t.Context(), Command{Path: os.Args[0], Args: []string{"slack"}}, &got)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Stop(t.Context()) }()
	if want := strconv.FormatInt(timerSlack.Nanoseconds(), 10); got != want {
		t.Errorf("the child's timers may be late by %s ns, want %s", got, want)
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		if now := slackOf(thread.Name()); now != before && now != "" {
			t.Errorf("thread %s of the parent has a slack of %s ns, want %s", thread.Name(), now, before)
		}
	}
}

// slackOf is how late the timers of a thread may be, in nanoseconds; empty if that
// is not told.
func slackOf(thread string) string {
	text, _ := os.ReadFile("/proc/" + thread + "/timerslack_ns")
	return strings.TrimSpace(string(text))
}

// scripted is a process that lives until it is told to stop or killed by die.
type scripted struct {
	name string
	log  func(string)
	done chan struct{}
}

func (p *scripted) PID() int              { return 1 }
func (p *scripted) Done() <-chan struct{} { return p.done }
func (p *scripted) Err() error            { return nil }
func (p *scripted) Stop(context.Context) error {
	p.log("stop " + p.name)
	return nil
}

func TestStopsTheLastFirst(t *testing.T) {
	var order []string
	s := New(zerolog.Nop(), nil)
	for _, name := range []string{"a", "b", "c"} {
		err := s.Start(t.Context(), Spec{Name: name, Start: func(context.Context) (Process, error) {
			return &scripted{name, func(what string) { order = append(order, what) }, make(chan struct{})}, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(order); got != "[stop c stop b stop a]" {
		t.Error(got)
	}
	late := &scripted{"d", func(what string) { order = append(order, what) }, make(chan struct{})}
	if err := s.Start(t.Context(), Spec{Name: "d", Start: func(context.Context) (Process, error) { return late, nil }}); err == nil || order[len(order)-1] != "stop d" {
		t.Errorf("a child that came too late: %v, %v", err, order)
	}
}

func TestStopEndsARestartThatDoesNotSucceed(t *testing.T) {
	s := New(zerolog.Nop(), nil)
	first := &scripted{"a", func(string) {}, make(chan struct{})}
	tries := make(chan struct{}, 100)
	started := false
	err := s.Start(t.Context(), Spec{Name: "a", Start: func(ctx context.Context) (Process, error) {
		if !started {
			started = true
			return first, nil
		}
		tries <- struct{}{}
		<-ctx.Done() // a child that never becomes ready
		return nil, ctx.Err()
	}})
	if err != nil {
		t.Fatal(err)
	}
	close(first.done)
	<-tries
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// alive reports whether a process runs; a zombie does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	var id int
	var name, state string
	_, _ = fmt.Sscanf(string(stat), "%d %s %s", &id, &name, &state)
	return state != "Z"
}

// Every thread of a child stands back, not only its first.
func TestNiceHoldsForAllThreads(t *testing.T) {
	const nice = 3
	p, err := Run(t.Context(), Command{Path: os.Args[0], Args: []string{"serves"}, Nice: nice}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Stop(context.Background()) }()
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.PID()))
	if err != nil {
		t.Skip("no /proc here:", err)
	}
	if len(tasks) < 2 {
		t.Fatal("a child with one thread shows nothing")
	}
	for _, task := range tasks {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/stat", p.PID(), task.Name()))
		if err != nil {
			continue // it has ended
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if got := fields[16]; got != strconv.Itoa(nice) { // field 19 of proc(5), counted from the state
			t.Errorf("thread %s has nice %s", task.Name(), got)
		}
	}
}

// A child that is stopped by its name stays away, and the others run on.
func TestStopChildren(t *testing.T) {
	pids := make(chan int, 10)
	s := New(zerolog.Nop(), func(_ string, pid int) { pids <- pid })
	named := func(name string) Spec { return Spec{Name: name, Start: spec("serves").Start} }
	for _, name := range []string{"stays", "leaves"} {
		if err := s.Start(t.Context(), named(name)); err != nil {
			t.Fatal(err)
		}
	}
	stays, leaves := <-pids, <-pids
	for _, name := range []string{"leaves", "leaves", "unknown"} {
		if err := s.StopChildren(t.Context(), name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if alive(leaves) || !alive(stays) {
		t.Errorf("stopped: %v, the other one runs: %v", !alive(leaves), alive(stays))
	}
	if err := s.Stop(t.Context()); err != nil || alive(stays) || len(pids) > 0 {
		t.Errorf("%v, %d started again", err, len(pids))
	}
}
