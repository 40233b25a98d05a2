package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/metrics"
	"github.com/countersign-dev/countersign/internal/service/supervise"
)

// Waiting times of a start.
const (
	beginWithin = 20 * time.Second // for the auditor to compare the log with the evidence
	tellEvery   = 5 * time.Second  // between two messages about readers of the log
)

// writers are the services that write to the log.
var writers = []string{procAdmitter, procCorrelator}

// readsLog reports whether a service is ready only when it has read the whole log.
func readsLog(name string) bool { return name == procAuditor || name == procCorrelator }

// reader is a service that reads the log and is kept running, whatever becomes of it.
type reader struct {
	name  string
	first *supervise.First
}

// startServices starts the services, and does not wait for those that read the log. No writer is started while the
// auditor compares the log with the evidence, within beginWithin, nor if they contradict each other.
func (p *Pipeline) startServices(ctx context.Context) (readers []reader, err error) {
	for _, name := range p.opt.Services {
		spec := supervise.Spec{Name: name, Start: p.startService(name, p.opt.Tenant)}
		switch {
		case slices.Contains(writers, name) && p.isHalted():
		case readsLog(name):
			r := reader{name, p.sup.Keep(spec)}
			readers = append(readers, r)
			if name == procAuditor {
				p.awaitBegun(ctx, r)
			}
		default:
			if err := p.sup.Start(ctx, spec); err != nil {
				return nil, err
			}
		}
	}
	if p.isHalted() { // perhaps meanwhile
		p.haltWriters(ctx)
	}
	return readers, nil
}

// awaitBegun waits until the auditor reads the log, has failed, or takes longer than beginWithin.
func (p *Pipeline) awaitBegun(ctx context.Context, r reader) {
	ctx, cancel := context.WithTimeout(ctx, beginWithin)
	defer cancel()
	select {
	case <-ctx.Done():
	case <-p.begun:
	case <-r.first.Done():
	}
}

// noteBegun notes the health endpoint of a service that reads the log and is not ready yet.
func (p *Pipeline) noteBegun(name string, text []byte) {
	var info daemon.ReadyInfo
	if json.Unmarshal(text, &info) != nil {
		return
	}
	p.mu.Lock()
	p.health[name] = info.HTTP
	p.mu.Unlock()
	p.sup.Begun(name)
	if name == procAuditor {
		p.begin.Do(func() { close(p.begun) })
	}
}

// awaitReaders waits until the services that read the log are ready or have failed, for a limited time, and tells
// how far they are.
func (p *Pipeline) awaitReaders(ctx context.Context, readers []reader, atMost time.Duration) error {
	limit, tell := time.NewTimer(atMost), time.NewTicker(tellEvery)
	defer limit.Stop()
	defer tell.Stop()
	for _, r := range readers {
		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-limit.C:
				return nil
			case <-r.first.Done():
				p.logFirst(r)
				waiting = false
			case <-tell.C:
				p.logLeft(r.name)
			}
		}
	}
	return nil
}

// logFirst logs why a service is not waited for any longer.
func (p *Pipeline) logFirst(r reader) {
	switch err := r.first.Err(); {
	case err == nil, r.name != procAuditor && p.isHalted():
	case errors.Is(err, supervise.ErrFinal):
		p.opt.Log.Error().Err(err).Str("child", r.name).Msg("requests are refused and nothing is written to the log, until an operator has found the cause: see \"The log was rewound\" in docs/operating.md")
	default:
		p.opt.Log.Error().Err(err).Str("child", r.name).Msg("it does not run and is tried again; admission goes on: see \"At night\" in docs/operating.md")
	}
}

// logLeft logs how much of the log a service has not read yet.
func (p *Pipeline) logLeft(name string) {
	p.mu.Lock()
	url := p.health[name]
	p.mu.Unlock()
	line := p.opt.Log.Info().Str("child", name)
	if left, known := metrics.MessagesBehind(scrapeMetrics(url)); known {
		line = line.Uint64("messages_left", left)
	}
	line.Msg("it reads the log; requests are answered meanwhile")
}

// contradicts reports whether a service ended because the evidence contradicts the log.
func contradicts(err error) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit) && exit.ExitCode() == daemon.ExitContradicted
}

// haltWriters stops the services that write to the log; they are not started again.
func (p *Pipeline) haltWriters(ctx context.Context) {
	p.mu.Lock()
	p.halted = true
	for _, name := range writers {
		delete(p.health, name)
	}
	p.mu.Unlock()
	for _, name := range writers {
		if err := p.sup.StopChild(context.WithoutCancel(ctx), name); err != nil {
			p.opt.Log.Error().Err(err).Msg("stopping what writes to the log")
		}
	}
}

func (p *Pipeline) isHalted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.halted
}

// Problems says why processes do not run now, by name.
func (p *Pipeline) Problems() map[string]string {
	problems := map[string]string{}
	for name, err := range p.sup.Problems() {
		problems[name] = err.Error()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range p.failed {
		problems[name] = "does not start; it is tried again, see the log"
	}
	for _, name := range writers {
		if p.halted && slices.Contains(p.opt.Services, name) {
			problems[name] = "stopped: nothing may write to this log, see " + procAuditor + "/process"
		}
	}
	return problems
}

// Running returns an error if a process does not run now.
func (p *Pipeline) Running() error {
	var errs []error
	problems := p.Problems()
	for _, name := range slices.Sorted(maps.Keys(problems)) {
		errs = append(errs, fmt.Errorf("%s does not run: %s", name, problems[name]))
	}
	return errors.Join(errs...)
}
