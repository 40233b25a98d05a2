package policy

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"go.yaml.in/yaml/v3"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictyaml"
)

// Count is one counter that a call adds to if it is allowed.
type Count struct {
	Key    string        // unique among all counters of all tenants; see CounterTenant
	Window time.Duration // how long an addition counts
	Amount int64         // 0 to MaxAmount
	Total  int64         // what Counters returned before the call; -1 if not known

	// Max is what Total and Amount together must not exceed for the verdict to hold. It is
	// Unbounded if the verdict holds whatever other calls have added meanwhile.
	Max int64
}

// Unbounded is a Max that no total exceeds.
const Unbounded = math.MaxInt64

// Counters returns what was counted before the call.
type Counters interface {
	// Total returns the sum of the amounts added to a counter within its window before now; 0
	// for a counter without additions. known is false if the sum cannot be determined, which
	// denies.
	Total(key string, window time.Duration, now time.Time) (total int64, known bool)
}

// WindowSlots is the resolution of a window: an addition counts for its window and up to a sixtieth of
// it longer, never shorter.
const WindowSlots = 60

// WindowSlot is the number of the slot that contains a time. An addition counts until its slot is more
// than WindowSlots before that of now.
func WindowSlot(window time.Duration, t time.Time) int64 {
	return t.UnixNano() / max(1, int64(window)/WindowSlots)
}

// NoCounts are the counters of a decision that keeps no state: nothing was
// counted before.
type NoCounts struct{}

// Total implements Counters.
func (NoCounts) Total(string, time.Duration, time.Time) (int64, bool) { return 0, true }

// Totals are the counters of a recorded decision, by key. A negative or missing total is not
// known.
type Totals map[string]int64

// Total implements Counters.
func (t Totals) Total(key string, _ time.Duration, _ time.Time) (int64, bool) {
	total, there := t[key]
	return total, there && total >= 0
}

// RecordedTotals rebuilds the counters of a decision from its record.
func RecordedTotals(counts []events.Count) Totals {
	t := Totals{}
	for _, c := range counts {
		t[c.Key] = c.Total
	}
	return t
}

// RecordCounts converts counts to the form of a decision record.
func RecordCounts(counts []Count) []events.Count {
	if len(counts) == 0 {
		return nil
	}
	out := make([]events.Count, len(counts))
	for i, c := range counts {
		out[i] = events.Count{Key: c.Key, WindowMS: c.Window.Milliseconds(), Amount: c.Amount, Total: c.Total}
	}
	return out
}

// KnownCounts leaves out the counters of which the total is not known. An allow has them only for
// trials, which must not refuse it. Where the totals are kept, they are counted from its record.
func KnownCounts(counts []Count) []Count {
	return slices.DeleteFunc(slices.Clone(counts), func(c Count) bool { return c.Total < 0 })
}

// limit is a compiled limit.
type limit struct {
	max    int64
	window time.Duration
	by     []string // sorted, without tenant
	amount *program // nil is 1
	unit   string   // the amount's definition; "" without one
}

// counterFields are the allowed entries of limit.by. Every counter belongs to one tenant.
var counterFields = map[string]func(*Input) string{
	"tenant":  func(in *Input) string { return in.Tenant },
	"source":  func(in *Input) string { return in.Source },
	"session": func(in *Input) string { return in.Session },
	"agent":   func(in *Input) string { return in.Agent },
	"tool":    func(in *Input) string { return in.Tool },
	"action":  func(in *Input) string { return in.Action },
}

// tenantKeyLength is the number of characters of a key that identify the tenant.
const tenantKeyLength = 12

// CounterTenant returns the part of a key that all counters of one tenant share, and no other
// tenant's counters have.
func CounterTenant(key string) string { return key[:min(len(key), tenantKeyLength)] }

// counterKey names the counter of a rule for a call: a hash of the tenant followed by a hash of
// all fields, each field with its length before it.
func (l *limit) counterKey(rule string, in *Input) string {
	fields := []string{"countersign/counter/v1", in.Tenant, rule, l.window.String()}
	for _, name := range l.by {
		fields = append(fields, name, counterFields[name](in))
	}
	if l.unit != "" { // another amount may count in another unit
		fields = append(fields, "amount", l.unit)
	}
	return hashFields(fields[:2])[:tenantKeyLength] + hashFields(fields)[:32]
}

func hashFields(fields []string) string {
	var b []byte
	for _, f := range fields {
		b = binary.BigEndian.AppendUint32(b, uint32(len(f)))
		b = append(b, f...)
	}
	h := sha256.Sum256(b)
	return base64.RawURLEncoding.EncodeToString(h[:])
}

// callAmount is what one call adds. Anything but a whole number of at least 0 is a fault: a
// negative amount would let other calls exceed the limit.
func (l *limit) callAmount(v cel.Activation) (int64, Fault) {
	if l.amount == nil {
		return 1, ""
	}
	out, fault := runProgram(l.amount, v)
	if fault != "" {
		return 0, fault
	}
	n, isInt := out.(types.Int)
	if !isInt || n < 0 || n > MaxAmount {
		return 0, FaultEvaluation
	}
	return int64(n), ""
}

// exceedsLimit reports whether the call takes the rule beyond its limit, and records the
// counter that the call adds to.
func (j *judgement) exceedsLimit(p *policy, r *rule, v cel.Activation) (bool, Fault) {
	b := j.budgetOf(p)
	if b.counts >= MaxCounts {
		return false, FaultCounters
	}
	price, fault := r.limit.callAmount(v)
	if fault != "" {
		return false, fault
	}
	c := Count{Key: r.limit.counterKey(r.id, j.in), Window: r.limit.window, Amount: price, Total: -1, Max: Unbounded}
	known := false
	if j.in.Counters != nil {
		var total int64
		if total, known = j.in.Counters.Total(c.Key, c.Window, j.in.Now); known {
			c.Total = min(max(total, 0), MaxAmount)
		}
	}
	over := c.Total > r.limit.max-price
	if known && !over && p.action == "" {
		c.Max = r.limit.max
	}
	j.out.Counts = append(j.out.Counts, c)
	b.counts++
	if !known {
		return false, FaultCounters
	}
	return over, ""
}

// LongestWindow returns the longest window of all limits of the set, and whether there is a
// limit.
func (s *Set) LongestWindow() (longest time.Duration, found bool) {
	if s == nil {
		return 0, false
	}
	for _, p := range s.policies {
		for i := range p.rules {
			if l := p.rules[i].limit; l != nil {
				longest, found = max(longest, l.window), true
			}
		}
	}
	return longest, found
}

// sortedCounterFields sorts by into the order of keys and drops tenant, which every key has.
func sortedCounterFields(by []string) []string {
	return slices.Sorted(slices.Values(slices.DeleteFunc(slices.Clone(by), func(b string) bool { return b == "tenant" })))
}

// limitSpec is limit as written.
type limitSpec struct {
	Max    int64         `json:"max"`
	Per    time.Duration `json:"per_ns"`
	By     []string      `json:"by,omitempty"`
	Amount string        `json:"amount,omitempty"`

	line, amountLine int
}

var byForm = regexp.MustCompile("^(" + strings.Join(slices.Sorted(maps.Keys(counterFields)), "|") + ")$")

func (r *reader) readLimit(n *yaml.Node, into **limitSpec) {
	l := &limitSpec{line: n.Line}
	r.Mapping(n, "limit", strictyaml.Fields{
		"max": r.Int("limit.max", 0, MaxAmount, &l.Max),
		"per": r.Duration("limit.per", MinWindow, MaxWindow, &l.Per),
		"by": r.List("limit.by", len(counterFields), func(n *yaml.Node) {
			var b string
			r.Form("an entry of limit.by", 16, byForm, &b)(n)
			if b != "" && slices.Contains(l.By, b) {
				r.Fail(n, "limit.by lists %s twice", b)
			}
			l.By = append(l.By, b)
		}),
		"amount": func(n *yaml.Node) {
			l.amountLine = n.Line
			r.Text("limit.amount", MaxExpression, &l.Amount)(n)
		},
	}, "max", "per")
	*into = l
}
