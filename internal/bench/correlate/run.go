package correlate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/bench/measure"
	"github.com/countersign-dev/countersign/internal/bench/spending"
	"github.com/countersign-dev/countersign/internal/pipeline"
	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/supervise"
	"github.com/countersign-dev/countersign/streams"
)

// correlateBench measures the correlator. The server and the service are separate processes, as
// under `up`; this process publishes and reads.
type correlateBench struct {
	dir, keys string
	childLog  io.Writer
	log       zerolog.Logger
	messages  int
	print     func(measure.Result) error

	url       string
	password  string
	procs     []supervise.Process
	admitter  *nats.Conn
	reader    jetstream.JetStream // as the auditor
	traffic   traffic
	published int       // calls
	asked     time.Time // when the next calls were requested
	floor     float64   // messages per second
}

const runtimeUser = "bench"

// publish writes the messages of n calls and returns their number.
func (b *correlateBench) publish(ctx context.Context, n int) (int, error) {
	admitted, err := b.turn(ctx, n, false)
	if err != nil {
		return 0, err
	}
	reported, err := b.turn(ctx, n, true)
	return admitted + reported, err
}

// service measures the whole correlator over an existing log, and then its lag behind a growing
// one, at a rate if one is given.
func (b *correlateBench) service(ctx context.Context, hold time.Duration, perSecond float64) error {
	for written := 0; written < b.messages; {
		n, err := b.publish(ctx, trafficGroup)
		if err != nil {
			return err
		}
		written += n
	}
	if err := b.readAll(ctx); err != nil {
		return err
	}
	st, err := streams.StreamState(ctx, b.reader, streams.DefaultShard)
	if err != nil {
		return err
	}
	server := spending.ProcessorTime(b.procs[0].PID())
	var info daemon.ReadyInfo
	if err := b.child(ctx, &info, []string{
		"COUNTERSIGN_NATS_URL=" + b.url, "COUNTERSIGN_NATS_USER=" + string(streams.RoleCorrelator), "COUNTERSIGN_NATS_PASSWORD=" + b.password,
		"COUNTERSIGN_KEYS=" + b.keys, "COUNTERSIGN_LOG_LEVEL=warn", "COUNTERSIGN_NO_VERDICT_OK=true",
	}, string(streams.RoleCorrelator)); err != nil {
		return err
	}
	if err := b.await(ctx, st.LastSeq); err != nil {
		return err
	}
	server, own := spending.ProcessorTime(b.procs[0].PID())-server, spending.ProcessorTime(b.procs[1].PID())
	log, err := b.outputs(ctx, 1)
	if err != nil {
		return err
	}
	rate, all := log.rate(), float64(log.upTo(log.last()))
	r := measure.Result{What: "whole correlator", Count: log.between(log.first(), log.last()), PerSecond: rate, EachMessage: 1e6 / rate, ToConsumer: rate / b.floor,
		MessageCPU: measure.Micros(own) / all, MessageServerCPU: measure.Micros(server) / all}
	if err := b.print(r); err != nil {
		return err
	}
	if log.violations > 0 {
		return fmt.Errorf("the benchmark's own traffic breaks rules: %d findings, such as %s", log.violations, log.violation)
	}
	if hold <= 0 {
		return nil
	}
	return b.lags(ctx, hold, rate, perSecond)
}

// readAll measures the floor: a consumer that reads the same messages in order and decodes
// nothing.
func (b *correlateBench) readAll(ctx context.Context) error {
	n := 0
	var begun, last time.Time
	err := streams.ReadLog(ctx, b.reader, streams.ReadOptions{Stream: streams.DefaultShard, Idle: func() error { return measure.ErrDone }}, func(batch []events.LogMessage) error {
		if n == 0 {
			begun = time.Now()
		}
		n, last = n+len(batch), time.Now()
		return nil
	})
	if !errors.Is(err, measure.ErrDone) {
		return err
	}
	b.floor = float64(n) / last.Sub(begun).Seconds()
	return b.print(measure.Result{What: "floor: ordered consumer that decodes nothing", Count: n, PerSecond: b.floor, EachMessage: 1e6 / b.floor})
}

// await waits until the correlator has consumed a sequence.
func (b *correlateBench) await(ctx context.Context, seq uint64) error {
	for {
		m, err := streams.LastBySubject(ctx, b.reader, streams.DefaultShard, subject.Space{}.Control(streams.DefaultShard, events.ControlCursor))
		if err != nil {
			return err
		}
		if m != nil {
			c, err := events.DecodeRecord[events.Cursor](m.Body)
			if err != nil || c.Consumed >= seq {
				return err
			}
		}
		if err := retry.Sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// written is the correlator's output.
type written struct {
	own        []uint64 // sequences of its messages
	cursors    []cursor // one per atomic batch
	violations int
	violation  string          // the last one
	lags       []time.Duration // from storing a message to storing its output
}

// cursor is a recorded position and the time of its record.
type cursor struct {
	consumed uint64
	at       time.Time
}

func (w written) first() cursor { return w.cursors[0] }
func (w written) last() cursor  { return w.cursors[len(w.cursors)-1] }

// upTo counts the correlator's input messages that a cursor covers.
func (w written) upTo(c cursor) int {
	own, _ := slices.BinarySearch(w.own, c.consumed+1)
	return int(c.consumed) - own
}

func (w written) between(a, b cursor) int { return w.upTo(b) - w.upTo(a) }

// rate is the inputs per second from the first cursor to the last, without the start of the
// process.
func (w written) rate() float64 {
	return float64(w.between(w.first(), w.last())) / w.last().at.Sub(w.first().at).Seconds()
}

func (b *correlateBench) outputs(ctx context.Context, from uint64) (w written, err error) {
	space := subject.Space{}
	err = streams.ReadLog(ctx, b.reader, streams.ReadOptions{Stream: streams.DefaultShard, From: from, Idle: func() error { return measure.ErrDone }}, func(batch []events.LogMessage) error {
		for _, m := range batch {
			p, err := space.Parse(m.Subject)
			switch {
			case err != nil:
				return err
			case p.Class == subject.Control && p.Kind == events.ControlCursor:
				c, err := events.DecodeRecord[events.Cursor](m.Body)
				if err != nil {
					return err
				}
				w.cursors = append(w.cursors, cursor{c.Consumed, m.Time})
				w.own = append(w.own, m.Seq)
			case p.Class == subject.Calls || p.Class == subject.Findings:
				at, err := time.Parse(time.RFC3339Nano, m.HeaderValue("ce-time"))
				if err != nil {
					return err
				}
				w.lags = append(w.lags, m.Time.Sub(at))
				w.own = append(w.own, m.Seq)
				if p.Class == subject.Findings && p.State != string(events.SeverityInfo) {
					w.violations++
					w.violation = string(m.Body)
				}
			}
		}
		return nil
	})
	if errors.Is(err, measure.ErrDone) {
		err = nil
	}
	if err == nil && len(w.lags) == 0 {
		err = errors.New("the correlator put nothing out")
	}
	return w, err
}

// stop stops the processes, the service first.
func (b *correlateBench) stop(ctx context.Context) (err error) {
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), pipeline.StopTimeout)
	defer cancel()
	slices.Reverse(b.procs)
	for _, p := range b.procs {
		err = errors.Join(err, p.Stop(stop))
	}
	return err
}
