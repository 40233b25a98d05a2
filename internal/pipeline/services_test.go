package pipeline

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/internal/service/metrics"
	"github.com/countersign-dev/countersign/internal/service/supervise"
	"github.com/countersign-dev/countersign/internal/testkit"
)

// running is a process that lives until it is stopped.
type running struct{ done chan struct{} }

func (r *running) PID() int                   { return 1 }
func (r *running) Done() <-chan struct{}      { return r.done }
func (r *running) Err() error                 { return nil }
func (r *running) Stop(context.Context) error { close(r.done); return nil }

func alwaysReady(context.Context) (supervise.Process, error) {
	return &running{make(chan struct{})}, nil
}

// Start waits for the services that read the log, for a limited time.
func TestReadersAreWaitedFor(t *testing.T) {
	var log bytes.Buffer
	p := &Pipeline{opt: Options{Log: zerolog.New(&log)}, sup: supervise.New(zerolog.Nop(), nil)}
	caught := make(chan struct{})
	readers := []reader{
		{p, procAuditor, p.sup.Keep(supervise.Spec{Name: procAuditor, Start: func(ctx context.Context) (supervise.Process, error) {
			select {
			case <-caught:
				return alwaysReady(ctx)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}})},
		{p, procCorrelator, p.sup.Keep(supervise.Spec{Name: procCorrelator, Start: func(context.Context) (supervise.Process, error) {
			return nil, errors.New("no disk")
		}, Final: func(error) bool { return true }})},
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := awaitReaders(ended, readers, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("told to stop: %v", err)
	}
	if pending, err := awaitReaders(t.Context(), readers, time.Millisecond); err != nil || len(pending) != 2 || log.Len() > 0 {
		t.Errorf("after a while: %v %s", err, &log)
	}
	close(caught)
	if pending, err := awaitReaders(t.Context(), readers, time.Hour); err != nil || len(pending) > 0 || !strings.Contains(log.String(), "no disk") {
		t.Errorf("one is ready, one has failed: %v %s", err, &log)
	}
	if err := p.Running(); err == nil || !strings.Contains(err.Error(), "correlator does not run") || strings.Contains(err.Error(), "auditor") {
		t.Error(err)
	}
	if err := p.sup.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// How much of the log a service has not read is told.
func TestWhatIsLeftIsTold(t *testing.T) {
	r := metrics.New(procAuditor)
	r.Auditor("GOV", nil, nil).Follow(func(context.Context, uint64) (uint64, time.Time, error) { return 4711, time.Time{}, nil })
	srv := httptest.NewServer(http.Handler(r))
	defer srv.Close()
	var log bytes.Buffer
	p := &Pipeline{opt: Options{Log: zerolog.New(&log)}, sup: supervise.New(zerolog.Nop(), nil), health: map[string]string{}}
	reader{p: p, name: procAuditor}.logLeft()
	p.noteBegun(procAuditor, []byte(`{"http":"`+srv.URL+`"}`))
	reader{p: p, name: procAuditor}.logLeft()
	if first, second, _ := strings.Cut(log.String(), "\n"); strings.Contains(first, "messages_left") || !strings.Contains(second, `"messages_left":4711`) {
		t.Error(log.String())
	}
}

// failing is a process that has ended, with an exit code.
type failing struct{ running }

func (f *failing) Err() error                 { return exec.Command("sh", "-c", "exit 4").Run() }
func (f *failing) Stop(context.Context) error { return nil }

// A service that does not trust the log when it was ready already is not started again, and nothing else writes any
// more. A second one that does not trust it changes nothing.
func TestAServiceThatWasReadyDoesNotTrustTheLog(t *testing.T) {
	p := &Pipeline{opt: Options{Log: zerolog.Nop(), Services: serviceNames}, sup: supervise.New(zerolog.Nop(), nil), health: map[string]string{}}
	admitter := &running{make(chan struct{})}
	if err := p.sup.Start(t.Context(), supervise.Spec{Name: procAdmitter, Start: func(context.Context) (supervise.Process, error) { return admitter, nil }}); err != nil {
		t.Fatal(err)
	}
	together := make(chan struct{}) // both end when both run
	for _, name := range []string{procCorrelator, procAuditor} {
		starts := 0
		first := p.sup.Keep(supervise.Spec{Name: name, Start: func(context.Context) (supervise.Process, error) {
			if starts++; starts > 1 {
				t.Errorf("%s is started again", name)
			}
			return &failing{running{together}}, nil
		}, Final: p.haltOnDistrust(name)})
		<-first.Done()
	}
	close(together)
	select {
	case <-admitter.done:
	case <-time.After(testkit.Guard):
		t.Fatal("the admitter runs on")
	}
	by := p.haltedBy()
	list := p.Problems()
	if !strings.Contains(list[by], "exit status 4") || len(list) != 3 {
		t.Errorf("%s: %v", by, list)
	}
	for _, name := range writers {
		if name != by && !strings.Contains(list[name], "see "+by+"/process") {
			t.Errorf("%s: %s", name, list[name])
		}
	}
	if err := p.sup.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// What writes to the log is stopped for good, by the first service that does not trust it.
func TestWritersAreHalted(t *testing.T) {
	for by, other := range map[string]string{procAuditor: procCorrelator, procCorrelator: procAuditor} {
		p := &Pipeline{opt: Options{Services: []string{procAdmitter}, Exe: "/nonexistent"}, sup: supervise.New(zerolog.Nop(), nil), health: map[string]string{procAdmitter: "http://127.0.0.1:1", procGateway: "http://127.0.0.1:2"}}
		var stopped []*running
		for _, name := range []string{procGateway, procAdmitter, other} {
			r := &running{make(chan struct{})}
			stopped = append(stopped, r)
			if err := p.sup.Start(t.Context(), supervise.Spec{Name: name, Start: func(context.Context) (supervise.Process, error) { return r, nil }}); err != nil {
				t.Fatal(err)
			}
		}
		p.haltWriters(t.Context(), by)
		for i, want := range []bool{false, true, true} {
			select {
			case <-stopped[i].done:
				if !want {
					t.Errorf("%s: the gateway was stopped", by)
				}
			default:
				if want {
					t.Errorf("%s: process %d runs on", by, i)
				}
			}
		}
		p.haltWriters(t.Context(), other) // it found the same meanwhile
		list := p.Problems()
		if len(list) != 1 || !strings.Contains(list[procAdmitter], "see "+by+"/process") || p.health[procAdmitter] != "" || p.health[procGateway] == "" {
			t.Errorf("%s: %v %v", by, list, p.health)
		}
		if readers, err := p.startServices(t.Context()); err != nil || len(readers) > 0 {
			t.Errorf("%s: a writer was started: %v %v", by, readers, err)
		}
		if err := p.sup.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// together is a process that stops once its fellow stops, too.
type together struct {
	running
	mine, others chan struct{}
}

func (p *together) Stop(ctx context.Context) error {
	close(p.mine)
	select {
	case <-p.others:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// No writer goes on while another one is stopped.
func TestWritersAreHaltedAtTheSameTime(t *testing.T) {
	var log bytes.Buffer
	p := &Pipeline{opt: Options{Log: zerolog.New(&log)}, sup: supervise.New(zerolog.Nop(), nil), health: map[string]string{}}
	a, b := make(chan struct{}), make(chan struct{})
	for name, proc := range map[string]*together{procAdmitter: {mine: a, others: b}, procAuditor: {mine: b, others: a}} {
		if err := p.sup.Start(t.Context(), supervise.Spec{Name: name, Start: func(context.Context) (supervise.Process, error) { return proc, nil }}); err != nil {
			t.Fatal(err)
		}
	}
	if p.haltWriters(t.Context(), procCorrelator); log.Len() > 0 {
		t.Error(log.String())
	}
}

// One gateway that takes its time takes none of the others'.
func TestGatewaysStopAtTheSameTime(t *testing.T) {
	p := &Pipeline{opt: Options{Log: zerolog.Nop()}, sup: supervise.New(zerolog.Nop(), nil), endHealth: func() {}, unfollow: func() {}}
	p.gateways = tenantGateways{first: "acme", urls: map[string]string{"acme": "http://127.0.0.1:1", "globex": "http://127.0.0.1:2"}}
	a, b := make(chan struct{}), make(chan struct{})
	for name, proc := range map[string]*together{procGateway: {mine: a, others: b}, procGateway + "-globex": {mine: b, others: a}} {
		if err := p.sup.Start(t.Context(), supervise.Spec{Name: name, Start: func(context.Context) (supervise.Process, error) { return proc, nil }}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// A service that has not begun, or was stopped for good, does not answer: the metrics of the whole say so.
func TestServicesThatDoNotRunAreNotUp(t *testing.T) {
	srv := httptest.NewServer(http.Handler(metrics.New(procGateway)))
	defer srv.Close()
	p := &Pipeline{
		opt: Options{Log: zerolog.Nop(), Services: serviceNames}, sup: supervise.New(zerolog.Nop(), nil),
		health: map[string]string{procGateway: srv.URL, "gateway-globex": srv.URL, procAdmitter: srv.URL},
	}
	p.haltWriters(t.Context(), procAuditor) // which never begun
	w := httptest.NewRecorder()
	p.reportMetrics(w, nil)
	for _, line := range []string{`{service="admitter"} 0`, `{service="auditor"} 0`, `{service="correlator"} 0`, `{service="gateway"} 1`} {
		if !strings.Contains(w.Body.String(), "countersign_service_up"+line+"\n") {
			t.Errorf("%s is not in\n%s", line, w.Body)
		}
	}
	if strings.Contains(w.Body.String(), "globex") {
		t.Errorf("the gateway of another tenant:\n%s", w.Body)
	}
}
