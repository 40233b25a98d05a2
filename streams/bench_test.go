package streams

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/events"
)

// BenchmarkCommit compares group commit with plain publishes under sync
// always, by number of concurrent clients. Each operation stores two messages
// (a request and its decision) and waits for both.
func BenchmarkCommit(b *testing.B) {
	f := start(b)
	body := bytes.Repeat([]byte("x"), benchBytes())
	two := []Msg{
		{Subject: "gov.events.acme.runtime.aaep.s1.request", Body: body},
		{Subject: "gov.decisions.acme.allow.s1", Body: body},
	}
	nc := f.conn("admitter")
	c, err := NewCommitter(nc, CommitterOptions{Stream: DefaultShard})
	ok(b, err)
	defer c.Close()
	js := f.js(nc)
	raw := func() error {
		for _, m := range two {
			if _, err := js.Publish(context.Background(), m.Subject, m.Body); err != nil {
				return err
			}
		}
		return nil
	}
	grouped := func() error {
		_, err := c.Append(context.Background(), two...)
		return err
	}
	for _, clients := range []int{1, 64, 256} {
		b.Run(fmt.Sprintf("committer/clients=%d", clients), func(b *testing.B) { concurrently(b, clients, grouped) })
		b.Run(fmt.Sprintf("js.Publish/clients=%d", clients), func(b *testing.B) { concurrently(b, clients, raw) })
	}
}

func concurrently(b *testing.B, clients int, op func() error) {
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	b.ResetTimer()
	start := time.Now()
	for range clients {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := op(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	el := time.Since(start)
	b.ReportMetric(float64(b.N)/el.Seconds(), "appends/s")
	b.ReportMetric(el.Seconds()*1e3*float64(min(clients, b.N))/float64(b.N), "ms/append")
}

// BenchmarkReadLog measures catching up.
func BenchmarkReadLog(b *testing.B) {
	f := start(b, func(c *ServerConfig) { c.SyncInterval = "2m" })
	const n = 200_000
	body := bytes.Repeat([]byte("x"), benchBytes())
	msgs := make([]Msg, 1000)
	for i := range msgs {
		msgs[i] = event("runtime", i)
		msgs[i].Body = body
	}
	nc := f.conn("admitter")
	for range n / len(msgs) {
		ok(b, StoreAll(ctx(b), nc, msgs))
	}
	js := f.js(f.conn("auditor"))
	errStop := errors.New("stop")
	b.Run("ReadLog", func(b *testing.B) {
		for range b.N {
			count := 0
			start := time.Now()
			err := ReadLog(context.Background(), js, ReadOptions{Stream: DefaultShard}, func(batch []events.LogMessage) error {
				if count += len(batch); count == n {
					return errStop
				}
				return nil
			})
			if !errors.Is(err, errStop) {
				b.Fatal(err)
			}
			b.ReportMetric(n/time.Since(start).Seconds(), "msg/s")
		}
	})
}

// BenchmarkErase erases single messages of 1.6 KB that lie apart, as those of a session do: for each the server writes
// its block anew. Run it with -benchtime 200x.
func BenchmarkErase(b *testing.B) {
	const messages, apart = 12_000, 50
	f := start(b)
	body := bytes.Repeat([]byte("x"), 1600)
	for i := range messages / 100 {
		list := make([]Msg, 100)
		for j := range list {
			list[j] = event("runtime", 100*i+j)
			list[j].Body = body
		}
		ok(b, StoreAll(context.Background(), f.conn("admitter"), list))
	}
	custodian := f.conn("custodian")
	b.ResetTimer()
	for i := range b.N {
		_, err := Erase(context.Background(), custodian, DefaultShard, uint64(1+i*apart%messages+i*apart/messages))
		ok(b, err)
	}
}
