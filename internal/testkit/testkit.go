// Package testkit has what tests of all packages share. It links nothing of ours, so that any package's
// tests can use it.
package testkit

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"time"
)

// Guard bounds every wait. A passing test never reaches it, even on a busy machine.
const Guard = 90 * time.Second

// OK fails the test on an error.
func OK(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// Eventually polls a condition until it holds.
func Eventually(tb testing.TB, what string, cond func() bool) {
	tb.Helper()
	for end := time.Now().Add(Guard); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("did not come about: %s", what)
		}
	}
}

// Log keeps what is logged. It may be written to while it is read.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// Count is how often a text was logged.
func (l *Log) Count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}
