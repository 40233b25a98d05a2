package admitter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// memoryBudget keeps an admitter below its limit: what requests in flight and the
// evaluations under way may take together is known before it is taken, and what
// does not fit is refused. Half of the limit is for requests, a quarter for
// evaluations; the rest is for what decisions rest on and for the connection.
type memoryBudget struct {
	limit      int64
	requests   *shares // of half of the limit: requests in flight, in bytes
	evaluating *places // evaluations at the same time
}

const (
	// requestMemory is how many bytes of memory one byte of a request may take until
	// it is answered: its document, the record and their encodings.
	requestMemory = 64
	// requestBase is what a request takes however small it is.
	requestBase = 64 << 10
	// refusedMemory is requestMemory for a request that is larger than what is read: it
	// is copied, and no document is made of it.
	refusedMemory = 4
	// evaluationMemory is what one evaluation may hold: what its conditions make, with
	// what the interpreter and the growth of lists add to it.
	evaluationMemory = 4 * policy.MaxCallBytes
	// minMemory is the lowest limit: below it an admitter could not take one request
	// of the largest size.
	minMemory = 256 << 20
)

// newMemoryBudget makes the accounts of a limit in MiB.
func newMemoryBudget(mebibytes int64) (*memoryBudget, error) {
	limit := mebibytes << 20
	if mebibytes > math.MaxInt64>>20 || limit < minMemory {
		return nil, fmt.Errorf("--memory-limit is %d MiB; it must be at least %d", mebibytes, minMemory>>20)
	}
	n := max(min(limit/4/evaluationMemory, int64(4*runtime.GOMAXPROCS(0))), 1)
	return &memoryBudget{limit: limit, requests: newShares(limit / 2), evaluating: newPlaces(n)}, nil
}

// arrived is how many bytes of requests can have arrived that accept has not looked
// at. It looks at them at once: beyond it, requests of all callers are lost.
func (m *memoryBudget) arrived() int { return int(max(m.limit/8, minArrived)) }

const minArrived = 64 << 20

// setGCLimit makes the garbage collector work harder near the limit, unless the
// environment says otherwise.
func (m *memoryBudget) setGCLimit() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(m.limit)
	}
}

// requestNeeds is what a request of a size may take.
func requestNeeds(size int) int64 {
	if size > strictjson.DefaultLimits.MaxBytes {
		return requestBase + refusedMemory*int64(size)
	}
	return requestBase + requestMemory*int64(size)
}

// reserve takes what a request of a size may need. It is false where that does not
// fit, or would leave others nothing; the request is refused then.
func (m *memoryBudget) reserve(a asker, size int) (reserved int64, fits bool) {
	n := requestNeeds(size)
	if !m.requests.take(a, n) {
		return 0, false
	}
	return n, true
}

// release gives back what reserve took.
func (m *memoryBudget) release(a asker, reserved int64) { m.requests.release(a, reserved) }

// errExpired says that the policies could not be evaluated within the request's
// time.
var errExpired = errors.New("the policies could not be evaluated in time")

// runEvaluation runs f, which decides a request of a, when it is a's turn.
func (m *memoryBudget) runEvaluation(ctx context.Context, a asker, f func()) error {
	if m.evaluating.acquire(ctx, a) != nil {
		return errExpired
	}
	defer m.evaluating.leave(a)
	f()
	return nil
}
