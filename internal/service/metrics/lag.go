package metrics

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Head asks the log how far it goes: its last sequence, and when the message
// with the sequence next was stored, the zero time if there is none.
type Head func(ctx context.Context, next uint64) (last uint64, stored time.Time, err error)

const (
	headTimeout = time.Second
	headFresh   = 500 * time.Millisecond // how long an answer is used
)

// readerLag is how far a reader is behind the log. It asks the log when somebody looks
// at it.
type readerLag struct {
	done atomic.Uint64 // the last sequence that the reader has dealt with

	mu      sync.Mutex
	head    Head
	at      time.Time // of the last answer
	known   bool
	behind  uint64
	seconds float64
}

func (l *readerLag) setHead(head Head) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.head = head
}

func (l *readerLag) refresh() (behind uint64, seconds float64, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.head == nil {
		return 0, 0, false
	}
	if time.Since(l.at) < headFresh {
		return l.behind, l.seconds, l.known
	}
	ctx, cancel := context.WithTimeout(context.Background(), headTimeout)
	defer cancel()
	done := l.done.Load()
	last, stored, err := l.head(ctx, done+1)
	l.at, l.known, l.behind, l.seconds = time.Now(), err == nil, 0, 0
	if last > done {
		l.behind = last - done
		if !stored.IsZero() {
			l.seconds = max(0, time.Since(stored).Seconds())
		}
	}
	return l.behind, l.seconds, l.known
}

func (l *readerLag) messagesBehind() (float64, bool) {
	n, _, known := l.refresh()
	return float64(n), known
}

func (l *readerLag) secondsBehind() (float64, bool) {
	_, s, known := l.refresh()
	return s, known
}
