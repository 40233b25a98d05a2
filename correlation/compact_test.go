package correlation

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/correlation/fact"

	"github.com/countersign-dev/countersign/correlation/internal/tables"
	"github.com/countersign-dev/countersign/events"
)

// filled sets every field that v has, those within it included.
func filled(v reflect.Value, random *rand.Rand) {
	v = reflect.NewAt(v.Type(), v.Addr().UnsafePointer()).Elem()
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Unix(random.Int64N(1<<33)-1<<32, random.Int64N(1e9)).UTC()))
		return
	case []byte:
		v.SetBytes([]byte(strings.Repeat("raw", 1+random.IntN(3))))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		filled(v.Elem(), random)
	case reflect.Struct:
		for i := range v.NumField() {
			filled(v.Field(i), random)
		}
	case reflect.Array:
		for i := range v.Len() {
			filled(v.Index(i), random)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1+random.IntN(40), 64))
		for i := range v.Len() {
			filled(v.Index(i), random)
		}
	case reflect.String:
		v.SetString(codedWords[random.IntN(len(codedWords))] + strings.Repeat("x", random.IntN(2)*random.IntN(300)))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(1 + random.Int64N(100))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(1 + random.Uint64N(200))
	default:
		panic(fmt.Sprint("a field of kind ", v.Kind()))
	}
}

// emptied sets about every other field to nothing.
func emptied(v reflect.Value, random *rand.Rand) {
	v = reflect.NewAt(v.Type(), v.Addr().UnsafePointer()).Elem()
	_, isTime := v.Interface().(time.Time)
	switch {
	case random.IntN(2) == 0 && v.Kind() != reflect.Struct || isTime && random.IntN(2) == 0:
		v.SetZero()
	case v.Kind() == reflect.Pointer:
		emptied(v.Elem(), random)
	case v.Kind() == reflect.Struct && !isTime:
		for i := range v.NumField() {
			emptied(v.Field(i), random)
		}
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() != reflect.Uint8:
		for i := range v.Len() {
			emptied(v.Index(i), random)
		}
	}
}

func refolded(d *details) *details {
	var s callFreeLists
	p := &s.codec
	p.startWriting()
	p.codeDetails(d)
	packed := string(p.finishWriting())
	got := new(details)
	p.startReading(packed, &s)
	p.codeDetails(got)
	if p.input != "" {
		panic("something is left")
	}
	return got
}

// TestFoldingKnowsEveryField: what is folded is unfolded the same, whatever it is;
// a field of details that folding does not know is lost, and found here.
func TestFoldingKnowsEveryField(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		want := new(details)
		filled(reflect.ValueOf(want).Elem(), random)
		if seed > 0 { // at first, everything
			emptied(reflect.ValueOf(want).Elem(), random)
		}
		for _, a := range []*fact.Arguments{&want.args, &want.executedArgs} {
			if !a.Known { // then there are none
				*a = fact.Arguments{DecisionDigest: a.DecisionDigest}
			}
		}
		if got := refolded(want); !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d: folded\n%+v\nunfolded\n%+v", seed, want, got)
		}
	}
}

// TestLateForFoldedCalls: what comes late for a call finds it, however long it has
// been folded.
func TestLateForFoldedCalls(t *testing.T) {
	l := newLedger(t)
	var at []int
	for i := range 40 {
		l.admit(set(pre(2*i), "metadata.tool_call_id", "c"+strconv.Itoa(i)), "d"+strconv.Itoa(i), events.Allow)
		l.event(set(pre(2*i), "metadata.tool_call_id", "c"+strconv.Itoa(i)))
		at = append(at, len(l.msgs))
		l.event(set(post(2*i+1), "metadata.tool_call_id", "c"+strconv.Itoa(i)))
	}
	core := New(l.opts)
	for _, m := range l.msgs {
		core.Apply(m)
	}
	if st := core.Stats(); st.Open != 0 || st.Calls != 40 {
		t.Fatalf("%+v", st)
	}
	core.engine.calls.compactCalls()
	for _, s := range core.engine.calls.sessions.All() {
		for _, c := range s.closed {
			if c.details != nil || c.compacted == "" || len(c.compacted) > 600 {
				t.Fatalf("a closed call is kept in %d bytes, unfolded: %v", len(c.compacted), c.details != nil)
			}
		}
	}
	before := len(l.msgs)
	l.event(set(set(post(1001), "metadata.tool_call_id", "c7"), "metadata.execution.outcome", "failed"))
	l.event(set(set(set(pre(2*9), "metadata.tool_call_id", "c9"), "metadata.admission_verdict.decision", "allow"), "annotations", tree{"late": true}))
	r := l.run()
	if len(at) != 40 || len(r.outputs) == 0 || len(l.msgs) != before+2 {
		t.Fatal("nothing came of it")
	}
	var late []string
	for _, f := range r.findings {
		late = append(late, f.Rule+" "+f.ToolCallID)
	}
	if want := "[orphan_completion c7]"; fmt.Sprint(late) != want {
		t.Errorf("findings %v, want %s", late, want)
	}
}

// ordinal is a key of windows whose hashes are often the same.
type ordinal int

func (n ordinal) Hash() uint32 { return uint32(n) * 0x9e3779b9 >> 4 & 0x3fff }

// TestWindow: against a map and a list. Where there is room for many, several
// make room at once.
func TestWindow(t *testing.T) {
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 2))
		limit := 1 + random.IntN(40)
		if seed%10 == 0 {
			limit += 2048
		}
		w, values, order := tables.NewFIFO[ordinal, int](limit), map[ordinal]int{}, []ordinal{}
		for i := range 50 * limit {
			k := ordinal(random.IntN(3 * limit))
			if _, there := values[k]; !there {
				if len(order) == limit {
					for _, old := range order[:tables.EvictionBatch(limit)] {
						delete(values, old)
					}
					order = order[tables.EvictionBatch(limit):]
				}
				order = append(order, k)
			}
			values[k] = i
			w.Put(k, i)
			k = ordinal(random.IntN(3 * limit))
			got, there := w.Get(k)
			if want, is := values[k]; there != is || got != want || w.Len() != len(values) {
				t.Fatalf("seed %d: %d is %d, %v; want %d, %v", seed, k, got, there, want, is)
			}
		}
		for i, e := range w.All() {
			if e.Key != order[i] || e.Value != values[e.Key] {
				t.Fatalf("seed %d: entry %d is %v", seed, i, e)
			}
		}
	}
}

// TestWordCode: every usual word has the code of its place, and nothing else has one.
func TestWordCode(t *testing.T) {
	for i, w := range codedWords {
		if code := wordCode(w); int(code) != i+1 {
			t.Errorf("%q has code %d, want %d", w, code, i+1)
		}
	}
	if wordCode("") != 0 || wordCode("usual") != 0 {
		t.Error("what is no usual word has a code")
	}
}
