package mcpgate

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/countersign-dev/countersign/mcp"
)

// Bounds of the calls that wait for their outcome: 16,384 of them without arguments.
const (
	maxRunning  = 64 << 20 // bytes
	runningSize = 4 << 10  // of a call besides its arguments
)

// MaxOutcomes is the longest that a call waits for its outcome: later it would be taken for one that never
// completed.
const MaxOutcomes = 10 * time.Minute

// agentGateway answers agentgateway: unary calls of gRPC, which are HTTP/2 with a message and a status
// behind it. Every refusal and every failure is a result with an error. A status that is not 0 is left to
// what is no question: agentgateway may pass a request on if it gets one.
func (d *decider) agentGateway(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || !strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") || len(r.Header.Values("Origin")) > 0 {
		http.Error(w, "there is gRPC only", http.StatusUnsupportedMediaType)
		return
	}
	var result []byte
	switch r.URL.Path {
	case extCheckRequest:
		result = d.checkRequest(r)
	case extCheckResponse:
		result = d.checkResponse(r)
	default:
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Grpc-Status", "12") // unimplemented
		return
	}
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Trailer", "Grpc-Status")
	_, _ = w.Write(frame(result)) // a gateway that is gone passes nothing on
	w.Header().Set("Grpc-Status", "0")
}

// checkRequest decides about a request.
func (d *decider) checkRequest(r *http.Request) (result []byte) {
	defer func() {
		if recover() != nil { // no answer at all may be a permission
			result = extRefuses(refuse("internal_error", errors.New("the decision point failed")), false)
		}
	}()
	message, err := readFrame(r.Body, maxBody)
	var q extQuestion
	if err == nil {
		q, err = readExtQuestion(message)
	}
	if err != nil {
		d.log.print("agentgateway: " + err.Error())
		return extRefuses(refuse("bad_call", err), false)
	}
	var caller string
	if mcp.Governed(q.method, d.o.Reads) {
		if caller, err = q.caller(); err != nil {
			return extRefuses(refuse("bad_call", err), json.Valid(q.body))
		}
	}
	run, refusal := d.admit(r.Context(), q.server, caller, q.method, q.body)
	switch {
	case refusal != nil:
		return extRefuses(refusal, json.Valid(q.body))
	case run == nil: // it needs no admission
		return extPasses("")
	}
	return extPasses(d.awaitOutcome(run))
}

// caller names for whom the gateway asks: all that its configuration says of the request, but the id of
// the call.
func (q extQuestion) caller() (string, error) {
	texts, err := readExtMetadata(q.metadata)
	if err != nil {
		return "", err
	}
	delete(texts, metadataCall)
	if len(texts) == 0 {
		return "", nil
	}
	name, err := json.Marshal(texts) // in the order of the names
	return string(name), err
}

// checkResponse takes the result of a call, if the gateway's metadata says of which. It passes whatever
// comes: the call has run, and nothing is judged by what it gave.
func (d *decider) checkResponse(r *http.Request) []byte {
	message, err := readFrame(r.Body, mcp.MaxMessage)
	var q extQuestion
	if err == nil {
		q, err = readExtQuestion(message)
	}
	var texts map[string]string
	if err == nil {
		texts, err = readExtMetadata(q.metadata)
	}
	if err != nil {
		d.log.print("agentgateway: a result: " + err.Error())
	} else if id := texts[metadataCall]; id != "" {
		d.settle(id, mcp.Message{Result: q.body}.Outcome())
	}
	return extPasses("")
}

// awaitOutcome returns the id under which the outcome of a call will come, for a bounded time; "" if it is
// not waited for.
func (d *decider) awaitOutcome(r *admittedRun) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	size := runningSize + len(r.admitted.call.Arguments)
	if d.o.Outcomes <= 0 || d.runningBytes+size > maxRunning || d.closed {
		r.report(mcp.Unknown)
		return ""
	}
	id := uuid.NewString()
	d.running[id] = r
	d.runningBytes += size
	r.late = time.AfterFunc(d.o.Outcomes, func() { d.settle(id, mcp.Unknown) })
	return id
}

// settle reports how a call ended.
func (d *decider) settle(id, outcome string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r := d.running[id]; r != nil {
		delete(d.running, id)
		d.runningBytes -= runningSize + len(r.admitted.call.Arguments)
		r.late.Stop()
		r.report(outcome)
	}
}
