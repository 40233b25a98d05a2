package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/internal/testkit"
)

// A child says why it fails, before it is ready and after.
func TestAChildSaysWhyItFails(t *testing.T) {
	_, before := Run(t.Context(), Command{Path: os.Args[0], Args: []string{"fails"}}, nil)
	if !errors.Is(before, ErrEnded) {
		t.Errorf("before it is ready: %v", before)
	}
	p, err := Run(t.Context(), Command{Path: os.Args[0], Args: []string{"ends"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	for when, err := range map[string]error{"before it is ready": before, "after": p.Err()} {
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 4 || !strings.Contains(err.Error(), "the disk is gone") {
			t.Errorf("%s: %v", when, err)
		}
	}
}

// A child that has begun and is not ready says where it is, and is stopped, not killed, when it is not wanted any more.
func TestAChildThatIsNotReadyYet(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	told := ""
	stopped := filepath.Join(t.TempDir(), "stopped")
	_, err := Run(ctx, Command{Path: os.Args[0], Args: []string{"begins", stopped}, ReadyTimeout: NoTimeout, Begun: func(info []byte) {
		told = string(info)
		cancel()
	}}, nil)
	if !errors.Is(err, context.Canceled) || told != `{"at":"here"}` {
		t.Errorf("it told %s and ended with %v", told, err)
	}
	if _, err := os.Stat(stopped); err != nil {
		t.Errorf("it was killed: %v", err)
	}
}

// A child that is kept is started again, however often it was never ready; its problem is known until it runs.
func TestAKeptChildIsTriedForEver(t *testing.T) {
	s, tries := New(zerolog.Nop(), nil), 0
	again := make(chan struct{})
	first := s.Keep(Spec{Name: "a", Start: func(context.Context) (Process, error) {
		switch tries++; tries {
		case 1, 2, 3, 4, firstStarts:
			return nil, fmt.Errorf("%w: no disk", ErrEnded)
		}
		<-again
		return &scripted{"a", func(string) {}, make(chan struct{})}, nil
	}})
	await(t, first.Done())
	if err := s.Problems()["a"]; !errors.Is(first.Err(), ErrEnded) || !errors.Is(err, ErrEnded) {
		t.Errorf("after %d starts: %v, its problem: %v", firstStarts, first.Err(), err)
	}
	close(again)
	testkit.Eventually(t, "it has no problem", func() bool { return len(s.Problems()) == 0 })
	if err := s.Stop(t.Context()); err != nil || tries != firstStarts+1 {
		t.Errorf("%d starts, %v", tries, err)
	}
}

// A kept child is not waited for, and does not run any more after its end is final.
func TestTheEndOfAKeptChild(t *testing.T) {
	s := New(zerolog.Nop(), nil)
	lost := errors.New("the log is gone")
	isLost := func(err error) bool { return errors.Is(err, lost) }
	for name, start := range map[string]func() (Process, error){
		"start": func() (Process, error) { return nil, lost },
		"end":   func() (Process, error) { return &ended{err: lost}, nil },
	} {
		starts := 0
		final := s.Keep(Spec{Name: name, Start: func(context.Context) (Process, error) { starts++; return start() }, Final: isLost})
		await(t, final.Done())
		await(t, s.children[len(s.children)-1].done)
		if err := s.Problems()[name]; (name == "start") != isLost(final.Err()) || !isLost(err) || starts != 1 {
			t.Errorf("%s: %d starts, %v, its problem: %v", name, starts, final.Err(), err)
		}
		s.Begun(name)
	}
	if list := s.Problems(); len(list) > 0 {
		t.Errorf("a child that works has problems: %v", list)
	}
	waits := s.Keep(Spec{Name: "waits", Start: func(ctx context.Context) (Process, error) { <-ctx.Done(); return nil, ctx.Err() }})
	if err := s.Problems()["waits"]; !errors.Is(err, errNotBegun) {
		t.Errorf("a child that has not begun: %v", err)
	}
	select {
	case <-waits.Done():
		t.Errorf("a child that begins: %v", waits.Err())
	default:
	}
	if err := s.StopChildren(t.Context(), "waits"); err != nil {
		t.Error(err)
	}
	await(t, waits.Done())
	if waits.Err() == nil {
		t.Error("a child that was stopped before it was ready counts as ready")
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	late := s.Keep(Spec{Name: "late", Start: func(context.Context) (Process, error) { t.Error("started"); return nil, lost }})
	if await(t, late.Done()); late.Err() == nil {
		t.Error("a child is kept after the end")
	}
}

func await(t *testing.T, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(testkit.Guard):
		t.Fatal("it never comes")
	}
}

// ended is a process that has ended.
type ended struct {
	scripted
	err error
}

func (p *ended) Done() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}
func (p *ended) Err() error                 { return p.err }
func (p *ended) Stop(context.Context) error { return nil }
