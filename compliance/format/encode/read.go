package encode

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

// ReadRecord decodes the body of a service record. If the body is not one, it counts the record as
// skipped.
func ReadRecord[T any](w *Writer, r evidence.Record) (v T, ok bool) {
	if r.Reason == "" {
		var err error
		if v, err = events.DecodeRecord[T](r.Body); err == nil && isComplete(v) {
			maskNames(&v)
			return v, true
		}
	}
	w.CountSkipped(SkippedUnreadable)
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

// Object is the redacted body of a request or an event, or nil if it is no object.
func Object(r evidence.Record) map[string]any {
	tree, err := strictjson.ParseObject(r.Body, strictjson.DefaultLimits)
	if err != nil {
		return nil
	}
	return tree
}

// ValueAt follows names into a tree.
func ValueAt(tree any, names ...string) any {
	for _, n := range names {
		m, _ := tree.(map[string]any)
		tree = m[n]
	}
	return tree
}

// TextAt is the string at a place, or "".
func TextAt(tree any, names ...string) string {
	s, _ := ValueAt(tree, names...).(string)
	return s
}

// ProtocolOf is the protocol of a request or an event, by its subject.
func (w *Writer) ProtocolOf(r evidence.Record) string {
	p, err := w.Space.Parse(r.Subject)
	if err != nil {
		return ""
	}
	return p.Protocol
}

// HeaderValue is the value of a header, "" if there is not exactly one.
func HeaderValue(r evidence.Record, name string) string {
	if v := r.Headers[name]; len(v) == 1 {
		return v[0]
	}
	return ""
}

// Proof is the source of a line: the decision, and the record that holds it.
type Proof struct {
	Decision   string `json:"decision_id,omitempty"`
	Session    string `json:"session,omitempty"`
	Shard      string `json:"shard"`
	Seq        uint64 `json:"seq"`
	RecordHash string `json:"record_hash"`
}

// ProofOf is the source of a line about a decision; "" for a line about a record alone.
func ProofOf(i Item, decision string) Proof {
	return Proof{Decision: decision, Session: SafeName(i.Record.Session), Shard: i.Record.Shard, Seq: i.Record.Seq, RecordHash: hex.EncodeToString(i.Hash[:])}
}

// Bounds of the requests that wait for their decision. Request and decision are committed together, so
// few records are ever between them.
const (
	maxPending      = 4096
	maxPendingBytes = 64 << 20
)

// Requests holds requests until their decision comes. Beyond the bounds it drops the oldest.
type Requests struct {
	out       *Writer
	protocols []string
	byID      map[string]Request
	order     []string // decision ids, oldest first; may include removed ones
	bytes     int

	// Also takes decisions in other protocols, without their requests; nil takes none.
	Also func(events.Decision) bool
}

// Request is a request of a decision.
type Request struct {
	Record evidence.Record
	Body   map[string]any // redacted; nil if there is none
}

// NewRequests returns an empty store of the requests in some protocols; records that it drops are
// counted in w.
func NewRequests(w *Writer, protocols ...string) *Requests {
	return &Requests{out: w, protocols: protocols, byID: map[string]Request{}}
}

// Match keeps a record that is a request, and calls decided for a decision with the request that it
// answers; there is false if that one is missing. Records of other kinds, or in other protocols, do
// nothing.
func (q *Requests) Match(r evidence.Record, decided func(d events.Decision, req Request, there bool) error) error {
	switch r.Kind {
	case evidence.KindRequest:
		if slices.Contains(q.protocols, q.out.ProtocolOf(r)) {
			q.put(r)
		}
	case evidence.KindDecision:
		d, ok := ReadRecord[events.Decision](q.out, r)
		if !ok || !slices.Contains(q.protocols, d.Protocol) && (q.Also == nil || !q.Also(d)) {
			return nil
		}
		req, there := q.pop(d.DecisionID)
		return decided(d, req, there)
	}
	return nil
}

// put keeps a request.
func (q *Requests) put(r evidence.Record) {
	id := HeaderValue(r, events.HeaderDecisionID)
	if _, twice := q.byID[id]; id == "" || twice {
		q.out.CountSkipped(SkippedNoDecision)
		return
	}
	q.byID[id] = Request{r, Object(r)}
	q.order = append(q.order, id)
	q.bytes += len(r.Body)
	for len(q.byID) > maxPending || q.bytes > maxPendingBytes {
		oldest := q.order[0]
		q.order = q.order[1:]
		if _, still := q.pop(oldest); still {
			q.out.CountSkipped(SkippedNoDecision)
		}
	}
}

// pop removes and returns the request of a decision.
func (q *Requests) pop(decision string) (Request, bool) {
	r, ok := q.byID[decision]
	if !ok {
		return Request{}, false
	}
	delete(q.byID, decision)
	q.bytes -= len(r.Record.Body)
	if len(q.order) > 2*maxPending {
		q.order = slices.DeleteFunc(q.order, func(id string) bool { _, still := q.byID[id]; return !still })
	}
	return r, true
}

// CountRemaining counts the requests without a decision as skipped.
func (q *Requests) CountRemaining() {
	for range q.byID {
		q.out.CountSkipped(SkippedNoDecision)
	}
	clear(q.byID)
}

// TextPointer returns a pointer to s, or nil (JSON's null) if s is empty.
func TextPointer(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// DecidingCodes lists the codes of the reasons that affected the verdict, each once.
func DecidingCodes(d events.Decision) []string {
	out := []string{}
	for _, r := range d.Reasons {
		if r.Action == "" && !slices.Contains(out, r.Code) {
			out = append(out, r.Code)
		}
	}
	return out
}

// DecisionLatency is the time from receipt to decision in milliseconds with three decimals, or nil if
// either time is unknown.
func DecisionLatency(d events.Decision) *float64 {
	if d.ReceivedAt.IsZero() || d.DecidedAt.Before(d.ReceivedAt.Time) {
		return nil
	}
	ms := float64(d.DecidedAt.Sub(d.ReceivedAt.Time).Microseconds()) / 1000
	return &ms
}

// FormatUint writes a number.
func FormatUint(n uint64) string { return strconv.FormatUint(n, 10) }

// FloatOf returns a number of a tree.
func FloatOf(v any) (float64, bool) {
	switch n := v.(type) {
	case json.Number:
		f, err := n.Float64()
		return f, err == nil
	case float64:
		return n, true
	}
	return 0, false
}

// Members are the proof as metadata of an event, with more of them.
func (p Proof) Members(more ...string) map[string]any {
	return Scalars(append(more, "decision_id", p.Decision, "session", p.Session, "shard", p.Shard, "seq", FormatUint(p.Seq), "record_hash", p.RecordHash)...)
}

// Scalars makes an object of pairs of a name and a value, without empty values.
func Scalars(pairs ...string) map[string]any {
	out := map[string]any{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			out[pairs[i]] = pairs[i+1]
		}
	}
	return out
}

// AddOnce appends a text that the list does not have.
func AddOnce(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}
