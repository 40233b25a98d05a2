package admitter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"sync/atomic"

	"github.com/countersign-dev/countersign/admission/policy"
)

// memory keeps an admitter below its limit: what requests in flight and the
// evaluations under way may take together is known before it is taken, and what
// does not fit is refused. Half of the limit is for requests, a quarter for
// evaluations; the rest is for what decisions rest on and for the connection.
type memory struct {
	limit      int64
	requests   atomic.Int64  // reserved for requests in flight, in bytes
	evaluating chan struct{} // a place for every evaluation at the same time
}

const (
	// requestMemory is how many bytes of memory one byte of a request may take until
	// it is answered: its document, the record and their encodings.
	requestMemory = 64
	// requestBase is what a request takes however small it is.
	requestBase = 64 << 10
	// evaluationMemory is what one evaluation may hold: what its conditions make, with
	// what the interpreter and the growth of lists add to it.
	evaluationMemory = 4 * policy.MaxCallBytes
	// minMemory is the lowest limit: below it an admitter could not take one request
	// of the largest size.
	minMemory = 256 << 20
)

// newMemory makes the accounts of a limit in MiB.
func newMemory(mebibytes int64) (*memory, error) {
	limit := mebibytes << 20
	if mebibytes > math.MaxInt64>>20 || limit < minMemory {
		return nil, fmt.Errorf("--memory-limit is %d MiB; it must be at least %d", mebibytes, minMemory>>20)
	}
	places := max(min(limit/4/evaluationMemory, int64(4*runtime.GOMAXPROCS(0))), 1)
	return &memory{limit: limit, evaluating: make(chan struct{}, places)}, nil
}

// enforce makes the garbage collector work harder near the limit, unless the
// environment says otherwise.
func (m *memory) enforce() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(m.limit)
	}
}

// reserve takes what a request of a size may need. It is false where that does not
// fit; the request is refused then.
func (m *memory) reserve(size int) (reserved int64, fits bool) {
	n := requestBase + requestMemory*int64(size)
	if m.requests.Add(n) > m.limit/2 {
		m.requests.Add(-n)
		return 0, false
	}
	return n, true
}

// release gives back what reserve took.
func (m *memory) release(reserved int64) { m.requests.Add(-reserved) }

// errExpired says that the policies could not be evaluated within the request's
// time.
var errExpired = errors.New("the policies could not be evaluated in time")

// evaluate runs f, which decides, when there is a place for one more evaluation.
func (m *memory) evaluate(ctx context.Context, f func()) error {
	select {
	case m.evaluating <- struct{}{}:
	case <-ctx.Done():
		return errExpired
	}
	defer func() { <-m.evaluating }()
	f()
	return nil
}
