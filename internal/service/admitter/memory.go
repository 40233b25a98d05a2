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
	"github.com/countersign-dev/countersign/internal/service/shares"
)

// memoryBudget keeps an admitter below its memory limit. The worst-case need of requests in
// flight and of running evaluations is known before they start, and what does not fit is refused.
// Half of the limit is for requests, a quarter for evaluations; the rest is for views and the
// connection.
type memoryBudget struct {
	limit      int64
	requests   *shares.Shares // half of the limit, in bytes: requests in flight
	evaluating *shares.Places // concurrent evaluations
}

const (
	// requestMemory is how many bytes of memory one byte of a request may need until it is
	// answered, for its headers, its document, the record and their encodings.
	requestMemory = 64
	// requestBase is what every request needs in addition.
	requestBase = 64 << 10
	// refusedMemory replaces requestMemory for a body above the size limit: it is copied but
	// not parsed.
	refusedMemory = 4
	// evaluationMemory is what one evaluation may hold: the values of its conditions, with the
	// overhead of the interpreter and of growing lists.
	evaluationMemory = 4 * policy.MaxCallBytes
	// minMemory is the lowest limit: below it a request of the largest size would not fit.
	minMemory = 256 << 20
)

// newMemoryBudget divides a limit given in MiB.
func newMemoryBudget(mebibytes int64) (*memoryBudget, error) {
	limit := mebibytes << 20
	if mebibytes > math.MaxInt64>>20 || limit < minMemory {
		return nil, fmt.Errorf("--memory-limit is %d MiB; it must be at least %d", mebibytes, minMemory>>20)
	}
	n := max(min(limit/4/evaluationMemory, int64(4*runtime.GOMAXPROCS(0))), 1)
	return &memoryBudget{limit: limit, requests: shares.New(limit / 2), evaluating: shares.NewPlaces(n)}, nil
}

// pendingLimit is how many bytes of requests may wait for acceptRequest, which handles them at once.
// Beyond it requests of all callers are lost.
func (m *memoryBudget) pendingLimit() int { return int(max(m.limit/8, minArrived)) }

const minArrived = 64 << 20

// setGCLimit sets the runtime's memory limit, unless GOMEMLIMIT is set.
func (m *memoryBudget) setGCLimit() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(m.limit)
	}
}

// requestNeeds is how much memory a request with headers and a body of these sizes may need.
func requestNeeds(header, body int) int64 {
	ofBody := int64(requestMemory)
	if body > strictjson.DefaultLimits.MaxBytes {
		ofBody = refusedMemory
	}
	return requestBase + requestMemory*int64(header) + ofBody*int64(body)
}

// reserve takes the memory that a request of these sizes may need. fits is false if there is not
// enough, or if it would leave other callers nothing; the request is then refused.
func (m *memoryBudget) reserve(caller shares.Caller, header, body int) (reserved int64, fits bool) {
	n := requestNeeds(header, body)
	if !m.requests.Take(caller, n) {
		return 0, false
	}
	return n, true
}

// release returns what reserve took.
func (m *memoryBudget) release(caller shares.Caller, reserved int64) {
	m.requests.Release(caller, reserved)
}

// errDeadlineExceeded reports that the policies could not be evaluated in time.
var errDeadlineExceeded = errors.New("the policies could not be evaluated in time")

// runEvaluation runs f, which decides a request of this caller, once the caller gets a place.
func (m *memoryBudget) runEvaluation(ctx context.Context, caller shares.Caller, f func()) error {
	if m.evaluating.Acquire(ctx, caller) != nil {
		return errDeadlineExceeded
	}
	defer m.evaluating.Release(caller)
	f()
	return nil
}
