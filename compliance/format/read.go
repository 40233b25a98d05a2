package format

import (
	"encoding/hex"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/evidence"
)

// readRecord decodes the body of a service record. If the body is not one, it counts the record as
// skipped.
func readRecord[T any](w *lineWriter, r evidence.Record) (v T, ok bool) {
	if r.Reason == "" {
		var err error
		if v, err = events.DecodeRecord[T](r.Body); err == nil && isComplete(v) {
			maskNames(&v)
			return v, true
		}
	}
	w.countSkipped(SkippedUnreadable)
	return v, false
}

// isComplete reports whether a record has what its kind requires here: an identifier that can be part
// of another, and for decisions a time. The log accepts less.
func isComplete(v any) bool {
	switch r := v.(type) {
	case events.Decision:
		return plainID.MatchString(r.DecisionID) && !r.DecidedAt.IsZero()
	case events.Call:
		return r.CallID != ""
	case events.Approval:
		return r.WorkflowID != ""
	case events.Finding:
		return r.FindingID != ""
	}
	return true
}

var plainID = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// object is the redacted body of a request or an event, or nil if it is no object.
func object(r evidence.Record) map[string]any {
	tree, err := strictjson.ParseObject(r.Body, strictjson.DefaultLimits)
	if err != nil {
		return nil
	}
	return tree
}

// valueAt follows names into a tree.
func valueAt(tree any, names ...string) any {
	for _, n := range names {
		m, _ := tree.(map[string]any)
		tree = m[n]
	}
	return tree
}

// textAt is the string at a place, or "".
func textAt(tree any, names ...string) string {
	s, _ := valueAt(tree, names...).(string)
	return s
}

// protocolOf is the protocol of a request or an event, by its subject.
func (w *lineWriter) protocolOf(r evidence.Record) string {
	p, err := w.Space.Parse(r.Subject)
	if err != nil {
		return ""
	}
	return p.Protocol
}

func headerValue(r evidence.Record, name string) string {
	if v := r.Headers[name]; len(v) == 1 {
		return v[0]
	}
	return ""
}

// recordProof is the source of a line: the decision, and the record that holds it.
type recordProof struct {
	Decision   string `json:"decision_id,omitempty"`
	Session    string `json:"session,omitempty"`
	Shard      string `json:"shard"`
	Seq        uint64 `json:"seq"`
	RecordHash string `json:"record_hash"`
}

func proofOf(i Item, decision string) recordProof {
	return recordProof{Decision: decision, Session: safeName(i.Record.Session), Shard: i.Record.Shard, Seq: i.Record.Seq, RecordHash: hex.EncodeToString(i.Hash[:])}
}

// Bounds of the requests that wait for their decision. Request and decision are committed together, so
// few records are ever between them.
const (
	maxPending      = 4096
	maxPendingBytes = 64 << 20
)

// pendingRequests holds requests until their decision comes. Beyond the bounds it drops the oldest.
type pendingRequests struct {
	out   *lineWriter
	byID  map[string]request
	order []string // decision ids, oldest first; may include removed ones
	bytes int
}

type request struct {
	record evidence.Record
	body   map[string]any // redacted; nil if there is none
}

func newPendingRequests(w *lineWriter) *pendingRequests {
	return &pendingRequests{out: w, byID: map[string]request{}}
}

// put keeps a request.
func (q *pendingRequests) put(r evidence.Record) {
	id := headerValue(r, events.HeaderDecisionID)
	if _, twice := q.byID[id]; id == "" || twice {
		q.out.countSkipped(SkippedNoDecision)
		return
	}
	q.byID[id] = request{r, object(r)}
	q.order = append(q.order, id)
	q.bytes += len(r.Body)
	for len(q.byID) > maxPending || q.bytes > maxPendingBytes {
		oldest := q.order[0]
		q.order = q.order[1:]
		if _, still := q.pop(oldest); still {
			q.out.countSkipped(SkippedNoDecision)
		}
	}
}

// pop removes and returns the request of a decision.
func (q *pendingRequests) pop(decision string) (request, bool) {
	r, ok := q.byID[decision]
	if !ok {
		return request{}, false
	}
	delete(q.byID, decision)
	q.bytes -= len(r.record.Body)
	if len(q.order) > 2*maxPending {
		q.order = slices.DeleteFunc(q.order, func(id string) bool { _, still := q.byID[id]; return !still })
	}
	return r, true
}

// countRemaining counts the requests without a decision as skipped.
func (q *pendingRequests) countRemaining() {
	for range q.byID {
		q.out.countSkipped(SkippedNoDecision)
	}
	clear(q.byID)
}

// textPointer returns a pointer to s, or nil (JSON's null) if s is empty.
func textPointer(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// decidingCodes lists the codes of the reasons that affected the verdict, each once.
func decidingCodes(d events.Decision) []string {
	out := []string{}
	for _, r := range d.Reasons {
		if r.Action == "" && !slices.Contains(out, r.Code) {
			out = append(out, r.Code)
		}
	}
	return out
}

// decisionLatency is the time from receipt to decision in milliseconds with three decimals, or nil if
// either time is unknown.
func decisionLatency(d events.Decision) *float64 {
	if d.ReceivedAt.IsZero() || d.DecidedAt.Before(d.ReceivedAt.Time) {
		return nil
	}
	ms := float64(d.DecidedAt.Sub(d.ReceivedAt.Time).Microseconds()) / 1000
	return &ms
}

func formatUint(n uint64) string { return strconv.FormatUint(n, 10) }

// floatOf returns a number of a tree.
func floatOf(v any) (float64, bool) {
	switch n := v.(type) {
	case json.Number:
		f, err := n.Float64()
		return f, err == nil
	case float64:
		return n, true
	}
	return 0, false
}
