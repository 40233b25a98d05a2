package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/streams"
)

type testFlags struct {
	Flags
	Extra int `help:"x" default:"1"`
}

func TestExitCodes(t *testing.T) {
	t.Setenv("COUNTERSIGN_LOG_LEVEL", "error")
	for name, c := range map[string]struct {
		args []string
		run  func(context.Context, Env) error
		want int
	}{
		"ends":   {run: func(context.Context, Env) error { return nil }, want: ExitOK},
		"fails":  {run: func(context.Context, Env) error { return errors.New("broken") }, want: ExitFailed},
		"fenced": {run: func(context.Context, Env) error { return fmt.Errorf("x: %w", ErrFenced) }, want: ExitFenced},
		"a gap": {run: func(context.Context, Env) error {
			return fmt.Errorf("x: %w", &streams.GapError{Stream: "GOV", Want: 7, Got: 9})
		}, want: ExitUntrustedLog},
		"not trusted":  {run: func(context.Context, Env) error { return fmt.Errorf("x: %w", ErrUntrustedLog) }, want: ExitUntrustedLog},
		"rewound":      {run: func(context.Context, Env) error { return fmt.Errorf("x: %w", streams.ErrRewound) }, want: ExitUntrustedLog},
		"recreated":    {run: func(context.Context, Env) error { return fmt.Errorf("x: %w", streams.ErrRecreated) }, want: ExitFailed},
		"unknown flag": {args: []string{"--nope"}, want: ExitUsage},
		"bad address":  {args: []string{"--http", "nonsense:-1"}, want: ExitFailed},
		"told to stop": {run: func(ctx context.Context, _ Env) error {
			_ = syscall.Kill(syscall.Getpid(), syscall.SIGTERM)
			<-ctx.Done()
			return ctx.Err()
		}, want: ExitStopped},
	} {
		t.Run(name, func(t *testing.T) {
			var f testFlags
			if got := Main("test", "a test", c.args, &f, &f.Flags, c.run); got != c.want {
				t.Errorf("exit code %d, want %d", got, c.want)
			}
		})
	}
}

func TestHealthOverHTTP(t *testing.T) {
	h := NewHealth()
	url, stop, err := h.Serve("127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	get := func() (status int, r Report) {
		t.Helper()
		res, err := http.Get(url + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		if err := json.NewDecoder(res.Body).Decode(&r); err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, r
	}
	check := func(status int, word, problem string) {
		t.Helper()
		if got, r := get(); got != status || r.Status != word || r.Problems["nats"] != problem {
			t.Errorf("%d %+v, want %d %s %q", got, r, status, word, problem)
		}
	}
	check(503, StatusStarting, "")
	h.SetReady()
	check(200, StatusOK, "")
	h.Set("nats", "away")
	check(503, StatusUnhealthy, "away")
	h.Set("nats", "writing: "+nats.ErrReconnectBufExceeded.Error()) // which an operator would read as too much load
	check(503, StatusUnhealthy, "writing: not connected to NATS")
	h.Set("nats", "")
	check(200, StatusOK, "")
}

// TestHealthOfConnections: a service is unhealthy while one of its connections is lost.
func TestHealthOfConnections(t *testing.T) {
	h, log, requests := NewHealth(), new(nats.Conn), new(nats.Conn)
	h.SetReady()
	for i, step := range []struct {
		of   *nats.Conn
		lost bool
		want string
	}{
		{log, true, StatusUnhealthy}, {log, true, StatusUnhealthy}, {requests, true, StatusUnhealthy},
		{requests, false, StatusUnhealthy}, {log, false, StatusOK}, {log, false, StatusOK},
	} {
		if h.setLost(step.of, step.lost); h.Report().Status != step.want {
			t.Errorf("step %d: %+v", i, h.Report())
		}
	}
}

// TestHealthOfParts: a service of several shards is as well as they are, and
// active if one of them is.
func TestHealthOfParts(t *testing.T) {
	h := NewHealth()
	a, b := h.Part("A"), h.Part("B")
	if a == b || h.Part("A") != a {
		t.Fatal("parts are not told apart")
	}
	h.SetReady()
	a.SetReady()
	b.SetReady()
	a.SetRole("A", RoleStandby)
	b.SetRole("B", RoleActive)
	if s, want := h.Status(), map[string]bool{"A": false, "B": true}; !maps.Equal(s.Active, want) {
		t.Errorf("active %v, want %v", s.Active, want)
	}
	if r := h.Report(); r.Status != StatusOK || r.Role != RoleActive || r.Services["A"].Role != RoleStandby || r.Services["B"].Role != RoleActive {
		t.Errorf("%+v", r)
	}
	b.SetRole("B", RoleStandby)
	a.Set("nats", "gone")
	if r := h.Report(); r.Status != StatusUnhealthy || r.Role != RoleStandby || r.Services["B"].Status != StatusOK {
		t.Errorf("%+v", r)
	}
	if s := h.Status(); s.Healthy || !s.Ready || s.Active["A"] || s.Active["B"] {
		t.Errorf("%+v", s)
	}
	a.Set("nats", "")
	if r := h.Report(); r.Status != StatusOK {
		t.Errorf("%+v", r)
	}
	b.SetRole("B", RoleActive)
	b.BeginAgain() // it is not known to be active any more
	if s, want := h.Status(), map[string]bool{"A": false}; !maps.Equal(s.Active, want) {
		t.Errorf("active %v, want %v", s.Active, want)
	}
}
