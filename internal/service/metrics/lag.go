package metrics

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Head reads the end of the log: its last sequence, and when the message with sequence next was
// stored, the zero time if there is none.
type Head func(ctx context.Context, next uint64) (last uint64, stored time.Time, err error)

const (
	headTimeout = time.Second
	headFresh   = 500 * time.Millisecond // how long an answer is used
)

// readerLag is how far a reader is behind the log. It reads the end of the log when the metrics
// are scraped.
type readerLag struct {
	done atomic.Uint64 // last sequence that the reader has processed

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

// MessagesBehind is how many messages of the log a correlator or an auditor has not read, by its metrics.
func MessagesBehind(text []byte) (n uint64, known bool) {
	for line := range strings.Lines(string(text)) {
		if name, _, _ := strings.Cut(line, "{"); name != descCorrLag.name && name != descAuditLag.name {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' ')+1:]), 64)
		if err != nil {
			return 0, false
		}
		n, known = n+uint64(value), true
	}
	return n, known
}

func (l *readerLag) secondsBehind() (float64, bool) {
	_, s, known := l.refresh()
	return s, known
}
