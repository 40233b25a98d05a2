package correlate

import (
	"bytes"
	"fmt"
	"runtime"
	"time"

	"github.com/countersign-dev/countersign/correlation"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/bench/measure"
	"github.com/countersign-dev/countersign/internal/bench/traffic"
	"github.com/countersign-dev/countersign/internal/service/correlator"
	"github.com/countersign-dev/countersign/streams"
)

// decodeChunk is how many messages are decoded before they are applied: as many as a decoder of
// the correlator takes at once. So the parts are measured separately, and reading the clock is
// negligible.
const decodeChunk = 64

// coreBench measures the three parts of the core on messages that it makes itself, without a
// server.
type coreBench struct {
	traffic traffic.Traffic
	options correlation.Options
	core    *correlation.Correlator
	decoder *correlation.Decoder
	seq     uint64
	inputs  []correlation.Input
	memory  correlation.InputArena
	outs    []correlation.Output
	garbage correlator.GCTuner // as in the correlator

	decode, step, encode part
	unexpected           string // a finding; there should be none
}

// part is the total of one part.
type part struct {
	calls         int
	messages      int // with measured time
	took          time.Duration
	counted       int // messages with counted memory
	allocs, bytes uint64
}

// countedEvery is the number of calls of work of which one has its memory counted instead of its
// time. Counting flushes the runtime's allocation caches, so what follows is slower.
const countedEvery = 16

// do measures one call of work, which handles n messages.
func (p *part) do(n int, work func()) {
	if p.calls++; p.calls%countedEvery == 0 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		work()
		runtime.ReadMemStats(&after)
		p.counted += n
		p.allocs += after.Mallocs - before.Mallocs
		p.bytes += after.TotalAlloc - before.TotalAlloc
		return
	}
	begun := time.Now()
	work()
	p.took += time.Since(begun)
	p.messages += n
}

func (p *part) result(what string) correlateResult {
	n, counted := float64(p.messages), float64(max(p.counted, 1))
	return correlateResult{What: what, Count: p.messages, PerSecond: n / p.took.Seconds(), Each: measure.Micros(p.took) / n,
		Allocs: float64(p.allocs) / counted, Bytes: float64(p.bytes) / counted}
}

func newCoreBench(mostOpen int) (*coreBench, error) {
	key, err := signing.NewPrivateKey(bytes.Repeat([]byte{1}, 32))
	if err != nil {
		return nil, err
	}
	tenantKey := bytes.Repeat([]byte{2}, 32)
	b := &coreBench{inputs: make([]correlation.Input, decodeChunk), traffic: traffic.Traffic{Tenant: "acme", Source: "bench", Key: key, TenantKey: tenantKey}, options: correlation.Options{
		TenantKey: func(string) []byte { return tenantKey }, KeyVoucher: func(events.KeyRecord) bool { return true },
		// A call that stays open for the whole measurement must not count as abandoned.
		MissingAfter: 1000 * time.Hour, MaxCalls: max(correlation.DefaultMaxCalls, 2*mostOpen), MaxIDs: max(correlation.DefaultMaxIDs, 2*mostOpen),
	}}
	b.use(correlation.New(b.options))
	record, err := events.Encode(events.KeyRecord{KeyID: key.ID, Use: "receipt", Algorithm: "EdDSA", PublicKey: signing.EncodePublic(key.Public()), CreatedAt: events.At(time.Now())})
	if err != nil {
		return nil, err
	}
	b.apply([]streams.Msg{{Subject: subject.Space{}.Control(streams.DefaultShard, events.ControlKey), Body: record}}, time.Now())
	return b, nil
}

func (b *coreBench) use(core *correlation.Correlator) { b.core, b.decoder = core, core.NewDecoder() }

// apply passes messages through the three parts.
func (b *coreBench) apply(msgs []streams.Msg, now time.Time) {
	for len(msgs) > 0 {
		b.garbage.Adapt(time.Now())
		chunk := msgs[:min(len(msgs), decodeChunk)]
		msgs = msgs[len(chunk):]
		inputs, outs := b.inputs[:len(chunk)], b.outs[:0] // reused, as by the writer of outputs
		b.memory.Reset()
		b.decode.do(len(chunk), func() {
			for i, m := range chunk {
				b.seq++
				b.decoder.DecodeInto(&inputs[i], events.LogMessage{Seq: b.seq, Subject: m.Subject, Time: now, Header: m.Header, Body: m.Body}, &b.memory)
			}
		})
		b.step.do(len(chunk), func() {
			for i := range inputs {
				outs = append(outs, b.core.Step(&inputs[i])...)
			}
		})
		b.encode.do(len(chunk), func() {
			for i := range outs {
				outs[i].Encode()
			}
		})
		for _, o := range outs {
			if f := o.Finding; f != nil && f.Severity != events.SeverityInfo {
				b.unexpected = f.Rule + ": " + f.Explanation
			}
		}
		for i := range outs {
			b.core.ReleaseOutput(&outs[i])
		}
		b.outs = outs
	}
}

func (b *coreBench) forget() { b.decode, b.step, b.encode = part{}, part{}, part{} }

// check returns an error if the traffic led to an unexpected finding, so the measurement is not
// what it claims.
func (b *coreBench) check() error {
	if b.unexpected != "" {
		return fmt.Errorf("the benchmark's own traffic breaks a rule: %s", b.unexpected)
	}
	return nil
}

// cores measures the core alone, its parts and all together.
func (b *correlateBench) cores() error {
	c, err := newCoreBench(0)
	if err != nil {
		return err
	}
	warm := b.messages / traffic.Messages / measure.WarmUp / traffic.Group * traffic.Group
	for i := 0; i*traffic.Messages < b.messages; i += traffic.Group {
		if i == warm {
			c.forget()
		}
		now := time.Now().Round(0) // without a monotonic clock, like a broker's time
		msgs, err := c.traffic.Admitted(i, traffic.Group, now)
		if err != nil {
			return err
		}
		c.apply(append(msgs, c.traffic.Reported(i, traffic.Group, now, now)...), now)
	}
	if err := c.check(); err != nil {
		return err
	}
	for _, r := range []correlateResult{
		c.decode.result("core: decode, validate, verify (one core)"), c.step.result("core: decoded messages (one core)"),
		c.encode.result("core: encode outputs (one core)"),
	} {
		if err := b.print(r); err != nil {
			return err
		}
	}
	return nil
}

// openSteps is how many calls are announced, and as many completed, to measure a message while
// other calls are open.
const openSteps = 30_000

// open measures the cost of a message while n calls are open, and of writing and reading a
// snapshot.
func (b *correlateBench) open(n int) error {
	c, err := newCoreBench(n + openSteps)
	if err != nil {
		return err
	}
	now := time.Now().Round(0)
	empty := heap()
	fill := func(from, to int, message func(i int) []streams.Msg) {
		for i := from; i < to; i += decodeChunk / 2 {
			var msgs []streams.Msg
			for k := i; k < min(i+decodeChunk/2, to); k++ {
				msgs = append(msgs, message(k)...)
			}
			c.apply(msgs, now)
		}
	}
	fill(0, n, func(i int) []streams.Msg { return []streams.Msg{c.traffic.Announce(i, now)} })
	if open := c.core.Stats().Open; open != n {
		return fmt.Errorf("%d calls are open, not %d", open, n)
	}
	each := float64(heap()-empty) / float64(n)
	if err := b.print(correlateResult{What: "memory of an open call", OpenCalls: n, Count: n, Bytes: each}); err != nil {
		return err
	}
	c.forget()
	fill(n, n+openSteps, func(i int) []streams.Msg {
		return []streams.Msg{c.traffic.Announce(i, now), c.traffic.Complete(i-n, now, now)}
	})
	if err := c.check(); err != nil {
		return err
	}
	r := c.step.result("core: decoded messages, calls open")
	if b.firstOpen == 0 {
		b.firstOpen = r.Each
	}
	r.OpenCalls, r.Ratio = n, r.Each/b.firstOpen
	if err := b.print(r); err != nil {
		return err
	}
	return b.snapshot(c, n)
}

// heap is the live heap in bytes.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func (b *correlateBench) snapshot(c *coreBench, n int) error {
	begun := time.Now()
	image := c.core.Snapshot()
	wrote := time.Since(begun)
	c.use(correlation.New(c.options)) // the old core can be collected
	runtime.GC()
	begun = time.Now()
	if _, err := correlation.Restore(c.options, image); err != nil {
		return err
	}
	read := time.Since(begun)
	for _, r := range []correlateResult{
		{What: "snapshot written (the core stands still)", OpenCalls: n, Count: len(image), Took: measure.Micros(wrote) / 1000},
		{What: "snapshot read", OpenCalls: n, Count: len(image), Took: measure.Micros(read) / 1000},
	} {
		if err := b.print(r); err != nil {
			return err
		}
	}
	return nil
}
