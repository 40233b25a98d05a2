package admitter

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go/micro"

	"github.com/countersign-dev/countersign/internal/service/shares"
)

// job is a request for a worker.
type job struct {
	request  micro.Request
	from     shares.Caller
	received time.Time
	reserved int64 // bytes reserved in the memory budget
}

// workerPool bounds how many requests are worked on at once, and knows when none is any more.
type workerPool struct {
	places *shares.Shares // of concurrent admissions, divided among the callers
	jobs   chan job

	mu       sync.Mutex // guards stopping, and prevents adding to inflight once it is being waited for
	stopping bool
	inflight sync.WaitGroup
}

func newWorkerPool(places int) *workerPool {
	return &workerPool{places: shares.New(int64(places)), jobs: make(chan job)}
}

// acquire reserves a worker for a caller, or returns the reason code of the refusal. release
// gives it back.
func (p *workerPool) acquire(from shares.Caller) (code string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopping {
		return codeStopping
	}
	if !p.places.Take(from, 1) {
		return codeOverloaded
	}
	p.inflight.Add(1)
	return ""
}

func (p *workerPool) release(from shares.Caller) {
	p.places.Release(from, 1)
	p.inflight.Done()
}

// handOver gives a job to an idle worker. It returns false if there is none.
func (p *workerPool) handOver(j job) bool {
	select {
	case p.jobs <- j:
		return true
	default:
		return false
	}
}

// next waits for a worker's next job; false when ctx ends.
func (p *workerPool) next(ctx context.Context) (job, bool) {
	select {
	case j := <-p.jobs:
		return j, true
	case <-ctx.Done():
		return job{}, false
	}
}

// held is how many requests are being worked on.
func (p *workerPool) held() int { return int(p.places.Held()) }

// refuse makes acquire refuse from now on.
func (p *workerPool) refuse() {
	p.mu.Lock()
	p.stopping = true
	p.mu.Unlock()
}

// wait returns when no request is being worked on.
func (p *workerPool) wait() { p.inflight.Wait() }
