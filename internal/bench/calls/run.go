package calls

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/internal/bench/callplan"
	"github.com/countersign-dev/countersign/internal/bench/measure"
	"github.com/countersign-dev/countersign/internal/bench/spending"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/pipeline"
	"github.com/countersign-dev/countersign/storage/read"
	"github.com/countersign-dev/countersign/streams"
)

// callsBench measures calls of one variant on a running pipeline.
type callsBench struct {
	*Cmd
	io      ui.Stdio
	variant callplan.Variant
	pipe    *pipeline.Pipeline
	load    *callLoad
	js      jetstream.JetStream // as the auditor
	conn    clickhouse.Conn     // as the database's owner
	db      *read.Reader
	look    *checkpointReader
	runs    int
	sample  callSample // of the newest measurement
	bar     *ui.Progress
}

// Times of a search: how long a rate is tried, and the rate that is tried first.
const (
	searchSeconds = 15
	searchFirst   = 100
)

func openCallsBench(ctx context.Context, io ui.Stdio, c *Cmd, v callplan.Variant, p *pipeline.Pipeline) (b *callsBench, err error) {
	b = &callsBench{Cmd: c, io: io, variant: v, pipe: p, bar: ui.NewProgress(io)}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if b.load, err = openLoad(ctx, p.Ready()); err != nil {
		return b, err
	}
	if b.js, err = measure.ConnectAs(ctx, p, streams.RoleAuditor); err != nil {
		return b, err
	}
	if b.conn, err = measure.OpenOwner(p.Ready().ClickHouseDSN); err != nil {
		return b, err
	}
	if b.db, err = read.Open(ctx, p.Ready().ClickHouseDSN); err != nil {
		return b, err
	}
	b.look, err = newCheckpointReader(ctx, p.Ready(), b.js, b.conn)
	return b, err
}

func (b *callsBench) close() (err error) {
	if b.load != nil {
		b.load.close()
	}
	if b.js != nil {
		b.js.Conn().Close()
	}
	if b.conn != nil {
		err = b.conn.Close()
	}
	if b.db != nil {
		err = errors.Join(err, b.db.Close())
	}
	return err
}

// measureRates measures the rates that were asked for, or the highest sustained one.
func (b *callsBench) measureRates(ctx context.Context) (results []callsResult, err error) {
	if b.Search {
		r, err := b.search(ctx)
		return []callsResult{r}, err
	}
	for _, perSecond := range b.Rate {
		r, err := b.measureRate(ctx, perSecond, b.Seconds)
		if err != nil {
			return nil, err
		}
		results = append(results, r)
	}
	return results, nil
}

// search returns the measurement of the highest rate that is sustained for the whole time. Short
// tries find a rate; then it is lowered until it holds.
func (b *callsBench) search(ctx context.Context) (r callsResult, err error) {
	s := callplan.RateSearch{Next: searchFirst}
	for done := false; !done; {
		if r, err = b.measureRate(ctx, s.Next, min(searchSeconds, b.Seconds)); err != nil {
			return r, err
		}
		fmt.Fprintf(b.io.Err, "%s: %g calls a second: %s\n", b.variant, r.Rate, sustainedText(r))
		done = s.Record(r.Sustained)
	}
	for rate := s.Good; rate >= 1; rate *= 1 - callplan.SearchWithin {
		if r, err = b.measureRate(ctx, rate, b.Seconds); err != nil || r.Sustained {
			return r, err
		}
		fmt.Fprintf(b.io.Err, "%s: %g calls a second for %d s: %s\n", b.variant, r.Rate, b.Seconds, sustainedText(r))
	}
	return r, fmt.Errorf("no rate from 1 call a second on is sustained: %s", r.Why)
}

// measureRate makes calls at a rate: first those of the warm-up, then the measured ones. It
// returns when the evidence of all is complete.
func (b *callsBench) measureRate(ctx context.Context, perSecond float64, seconds int) (r callsResult, err error) {
	b.runs++
	s := callplan.Schedule{Begin: time.Now(), PerSecond: perSecond}
	warm := s.Count(b.WarmUp)
	n := max(1, s.Count(time.Duration(seconds)*time.Second))
	texts := callplan.Texts{Variant: b.variant, Run: b.runs, Open: callplan.OpenSessions(perSecond)}
	m := callsMeasurement{bench: b, schedule: s, warm: warm, result: callsResult{Variant: string(b.variant), Log: b.Log, Rate: perSecond, Seconds: seconds, Calls: n}}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	begun := make(chan error, 1)
	go func() { begun <- m.begin(ctx) }()
	stopLooking := b.look.watch(ctx)
	outcomes, err := b.load.run(ctx, texts, s, warm+n, b.progress(perSecond, warm+n))
	if overrun := errors.Is(err, errOverrun); overrun {
		m.result.Why, err = err.Error(), nil
	}
	if err != nil {
		cancel()
	}
	err = errors.Join(err, <-begun)
	if err == nil {
		m.outcomes = outcomes[min(warm, len(outcomes)):]
		err = m.finish(ctx)
	}
	looks, lookErr := stopLooking()
	b.bar.End()
	if err = errors.Join(err, lookErr); err != nil {
		return r, err
	}
	m.sampling(looks)
	return m.result, nil
}

// progress tells how many calls were made.
func (b *callsBench) progress(perSecond float64, n int) func(made int) {
	b.bar.Due(time.Now()) // the first line only after an interval
	return func(made int) {
		b.tell(func() string {
			return fmt.Sprintf("%s: %g calls a second: %d of %d made", b.variant, perSecond, made, n)
		})
	}
}

// tell prints a line of progress if one is due.
func (b *callsBench) tell(text func() string) {
	if b.bar.Due(time.Now()) {
		b.bar.Tell(text())
	}
}

// callsMeasurement is one rate.
type callsMeasurement struct {
	bench    *callsBench
	schedule callplan.Schedule
	warm     int
	begun    spending.Spent
	outcomes []callOutcome // of the measured calls
	done     int           // of these, those that ended without an error: what is used is theirs
	result   callsResult
}

// begin reads what is used when the first measured call is due.
func (m *callsMeasurement) begin(ctx context.Context) (err error) {
	if err := sleepUntil(ctx, m.schedule.Due(m.warm)); err != nil {
		return err
	}
	ready := m.bench.pipe.Ready()
	if m.begun, err = spending.ReadSpent(ctx, ready, m.bench.js, m.bench.conn); err != nil {
		return err
	}
	m.result.MemoryBegin, err = spending.ResidentMemory(ready.PIDs)
	return err
}

// drainTimeout is how long the evidence may take after the last call.
const drainTimeout = 3 * time.Minute

// finish waits for the evidence and computes the result.
func (m *callsMeasurement) finish(ctx context.Context) error {
	b, r := m.bench, &m.result
	var reports []callplan.StoredAt
	last := uint64(0)
	for _, o := range m.outcomes {
		for _, a := range o.reports {
			reports = append(reports, a)
			last = max(last, a.Seq)
		}
	}
	if last == 0 {
		return fmt.Errorf("no call was reported; the first error: %w", m.firstError())
	}
	err := b.look.await(ctx, last, drainTimeout, func(covered uint64) {
		b.tell(func() string {
			return fmt.Sprintf("%s: waiting for the evidence: sequence %d of %d", b.variant, covered, last)
		})
	})
	if err != nil {
		return err
	}
	ready := b.pipe.Ready()
	end, err := spending.ReadSpent(ctx, ready, b.js, b.conn)
	if err != nil {
		return err
	}
	if r.Memory, err = spending.ResidentMemory(ready.PIDs); err != nil {
		return err
	}
	took := time.Since(m.schedule.Due(m.warm))
	covered, err := b.look.coverage(ctx)
	if err != nil {
		return err
	}
	if err := awaitCorrelator(ctx, b.js, last); err != nil {
		return err
	}
	log, err := readCallsLog(ctx, b.js, m.begun.LogLast+1, end.LogLast)
	if err != nil {
		return err
	}
	m.latencies(covered, reports, log)
	m.costs(end.Since(m.begun), log, covered, took)
	b.sample, err = newCallSample(ctx, b, log, float64(max(1, m.done)))
	return err
}

// firstError is the error of the first call that failed.
func (m *callsMeasurement) firstError() error {
	for _, o := range m.outcomes {
		if o.err != nil {
			return o.err
		}
	}
	return errors.New("none")
}

// latencies fills in what callers and readers wait for, and whether the rate is sustained.
func (m *callsMeasurement) latencies(covered callplan.Coverage, reports []callplan.StoredAt, log callsLog) {
	r := &m.result
	var verdicts, late []time.Duration
	var ended time.Time
	for _, o := range m.outcomes {
		late = append(late, o.late)
		if o.err != nil {
			continue
		}
		verdicts = append(verdicts, o.verdict)
		m.done++
		if o.ended.After(ended) {
			ended = o.ended
		}
	}
	r.Failed = len(m.outcomes) - m.done
	first := m.schedule.Due(m.warm)
	span := max(ended.Sub(first), m.schedule.Due(m.warm+len(m.outcomes)).Sub(first))
	r.PerSecond = float64(m.done) / span.Seconds()
	lags, missing := covered.Lags(reports)
	findings := log.findingLags(reports)
	r.VerdictP50, r.VerdictP99 = measure.Micros(callplan.DurationAt(verdicts, 50)), measure.Micros(callplan.DurationAt(verdicts, 99))
	r.EvidenceP50, r.EvidenceP99 = measure.Millis(callplan.DurationAt(lags, 50)), measure.Millis(callplan.DurationAt(lags, 99))
	r.FindingsP99, r.Findings, r.LateP99 = measure.Millis(callplan.DurationAt(findings, 99)), log.rules, measure.Micros(callplan.DurationAt(late, 99))
	r.Why = cmp.Or(r.Why, m.failure(), callplan.Unbounded("time to the verdict", verdicts), callplan.Unbounded("evidence lag", lags))
	if missing > 0 {
		r.Why = cmp.Or(r.Why, fmt.Sprintf("%d reports are under no checkpoint", missing))
	}
	r.Sustained = r.Why == ""
}

// failure says how many calls failed, and why the first one did.
func (m *callsMeasurement) failure() string {
	if m.result.Failed == 0 {
		return ""
	}
	return fmt.Sprintf("%d calls failed, the first one: %s", m.result.Failed, strings.TrimSpace(m.firstError().Error()))
}

// costs fills in what the measured calls took.
func (m *callsMeasurement) costs(used spending.Spent, log callsLog, covered callplan.Coverage, took time.Duration) {
	r, n := &m.result, float64(max(1, m.done))
	r.CPUBy = map[string]float64{}
	for name, t := range used.CPU {
		r.CPUBy[name] = measure.Millis(t) / n
	}
	for name, ms := range r.CPUBy {
		switch {
		case name == spending.Generator:
		case name == "clickhouse" && m.bench.Apart:
			r.CPUWithout = []string{name}
		default:
			r.CPU += ms
		}
	}
	r.Messages, r.LogBytes, r.EvidenceBytes = float64(used.LogLast)/n, float64(used.LogBytes)/n, float64(used.EvidenceBytes)/n
	r.Batches = float64(log.batches) / n
	r.Inserts = float64(used.Engine["InsertQuery"]) / took.Seconds()
	if rows := used.Engine["InsertedRows"]; rows > 0 {
		r.Merged = float64(used.Engine["MergedRows"]) / float64(rows)
	}
	r.SyncsBy = map[string]float64{"clickhouse": float64(used.Engine["FileSync"]+used.Engine["DirectorySync"]) / n, "nats": 0}
	if m.bench.Log == "always" {
		r.SyncsBy["nats"] = float64(log.commits+covered.Since(m.schedule.Due(m.warm))) / n
	}
	for _, s := range slices.Sorted(maps.Values(r.SyncsBy)) {
		r.Syncs += s
	}
}

// sampling fills in what the looks of the reader cost.
func (m *callsMeasurement) sampling(looks int) {
	share := float64(len(m.outcomes)) / float64(max(1, m.warm+len(m.outcomes)))
	m.result.SamplingCPU = measure.Millis(m.bench.look.cost) * float64(looks) * share / float64(max(1, m.done))
}

// findingLags are the times from the acknowledgement of the report that completes a finding until
// the finding is on the log.
func (l callsLog) findingLags(reports []callplan.StoredAt) (lags []time.Duration) {
	acked := make(map[uint64]time.Time, len(reports))
	for _, a := range reports {
		acked[a.Seq] = a.At
	}
	for _, f := range l.findings {
		if at, ours := acked[f.Seq]; ours {
			lags = append(lags, max(0, f.At.Sub(at)))
		}
	}
	return lags
}
