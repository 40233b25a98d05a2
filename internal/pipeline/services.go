package pipeline

import (
	"cmp"
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
	headStart = 10 * time.Second // for the readers of the log to find that it cannot be trusted
	tellEvery = 5 * time.Second  // between two messages about them
)

// writers are the services that write to the log. The auditor writes findings and erasures.
var writers = []string{procAdmitter, procCorrelator, procAuditor}

// readsLog reports whether a service is ready only when it has read the whole log.
func readsLog(name string) bool { return name == procAuditor || name == procCorrelator }

// reader is a service that reads the log and is kept running, whatever becomes of it.
type reader struct {
	p     *Pipeline
	name  string
	first *supervise.First
}

// startServices starts the services. Those that read the log come first: nothing else is started for headStart, or
// until they are ready or have failed, and no admitter if the log cannot be trusted. The correlator does not wait for
// the auditor's check: until the auditor has failed it may write what it had to. It returns those that still read.
func (p *Pipeline) startServices(ctx context.Context) (pending []reader, err error) {
	for _, name := range p.opt.Services {
		if readsLog(name) {
			spec := supervise.Spec{Name: name, Start: p.startService(name, p.opt.Tenant), Final: p.haltOnDistrust(name)}
			pending = append(pending, reader{p, name, p.sup.Keep(spec)})
		}
	}
	if pending, err = awaitReaders(ctx, pending, headStart); err != nil {
		return nil, err
	}
	for _, name := range p.opt.Services {
		if !readsLog(name) && (name != procAdmitter || p.haltedBy() == "") {
			if err := p.sup.Start(ctx, supervise.Spec{Name: name, Start: p.startService(name, p.opt.Tenant)}); err != nil {
				return nil, err
			}
		}
		if by := p.haltedBy(); by != "" { // perhaps while this one, or another reader, was not known to the supervisor yet
			p.haltWriters(ctx, by)
		}
	}
	return pending, nil
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
}

// awaitReaders waits until the services that read the log are ready or have failed, for a limited time, and tells
// how far they are. It returns those that still read.
func awaitReaders(ctx context.Context, readers []reader, atMost time.Duration) ([]reader, error) {
	limit, tell := time.NewTimer(atMost), time.NewTicker(tellEvery)
	defer limit.Stop()
	defer tell.Stop()
	for len(readers) > 0 {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-limit.C:
			return readers, nil
		case <-readers[0].first.Done():
			readers[0].logFirst()
			readers = readers[1:]
		case <-tell.C:
			readers[0].logLeft()
		}
	}
	return nil, nil
}

// logFirst logs why a service is not waited for any longer.
func (r reader) logFirst() {
	if err := r.first.Err(); err != nil && r.p.haltedBy() == "" {
		r.p.opt.Log.Error().Err(err).Str("child", r.name).Msg("it does not run and is tried again; admission goes on: see \"At night\" in docs/operating.md")
	}
}

// logLeft logs how much of the log a service has not read yet.
func (r reader) logLeft() {
	r.p.mu.Lock()
	url := r.p.health[r.name]
	r.p.mu.Unlock()
	line := r.p.opt.Log.Info().Str("child", r.name)
	if left, known := metrics.MessagesBehind(scrapeMetrics(url)); known {
		line = line.Uint64("messages_left", left)
	}
	line.Msg("it reads the log")
}

// distrusts reports whether a service ended because the log cannot be trusted.
func distrusts(err error) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit) && exit.ExitCode() == daemon.ExitUntrustedLog
}

// haltOnDistrust is what happens when a service that reads the log has ended: if it does not trust the log, before it
// was ready or after, it is not started again, and nothing writes to the log any more.
func (p *Pipeline) haltOnDistrust(name string) func(error) bool {
	return func(err error) bool {
		if !distrusts(err) {
			return false
		}
		p.opt.Log.Error().Err(err).Str("child", name).Msg("requests are refused and nothing is written to the log, until an operator has found the cause: see \"The log was rewound\" in docs/operating.md")
		p.haltWriters(context.Background(), name)
		return true
	}
}

// haltWriters stops the services that write to the log, all at the same time; they are not started again. The one that does not trust the
// log has ended. If another one did not trust it before, that one stops them all.
func (p *Pipeline) haltWriters(ctx context.Context, by string) {
	p.mu.Lock()
	p.halted = cmp.Or(p.halted, by)
	if p.halted != by {
		p.mu.Unlock()
		return
	}
	others := slices.DeleteFunc(slices.Clone(writers), func(name string) bool { return name == by })
	for _, name := range others {
		delete(p.health, name)
	}
	p.mu.Unlock()
	if err := p.sup.StopChildren(context.WithoutCancel(ctx), others...); err != nil {
		p.opt.Log.Error().Err(err).Msg("stopping what writes to the log")
	}
}

// haltedBy is the service that does not trust the log, if one does not.
func (p *Pipeline) haltedBy() string {
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
		if p.halted != "" && p.halted != name && slices.Contains(p.opt.Services, name) {
			problems[name] = "stopped: nothing may write to this log, see " + p.halted + "/process"
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
