package policy

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"testing"
	"time"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"github.com/countersign-dev/countersign/events"
)

// allocatedBy gives the bytes that the heap handed out while f ran, garbage
// included: more than f held at any time.
func allocatedBy(f func()) uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	runtime.GC()
	metrics.Read(sample)
	before := sample[0].Value.Uint64()
	f()
	runtime.GC() // what small allocations have used of their caches is counted by now
	metrics.Read(sample)
	return sample[0].Value.Uint64() - before
}

// maxAllocated is what one call may make the heap hand out: what conditions may
// make (MaxCallBytes) with the growth of lists and the boxes of the interpreter.
const maxAllocated = 16 * MaxCallBytes

// growing are conditions that make more than they are given. args.s is a text of
// 100 KB, args.t one of 1 KB, args.list has 1000 entries.
var growing = map[string]string{
	"concatenation in map":       `args.list.map(x, args.s + args.s).size() > 0`,
	"concatenation in exists":    `args.list.exists(x, args.s + args.s == "no")`,
	"doubling":                   `[args.s].map(a, a + a).map(a, a + a).map(a, a + a).map(a, a + a).map(a, a + a).map(a, a + a).map(a, a + a).map(a, a + a).size() > 0`,
	"bytes":                      `args.list.map(x, bytes(args.s)).size() > 0`,
	"concatenation of bytes":     `args.list.map(x, bytes(args.t) + bytes(args.s)).size() > 0`,
	"string of bytes":            `args.list.map(x, string(bytes(args.s))).size() > 0`,
	"replace":                    `args.s.replace("", args.s).size() > 0`,
	"replace, counted":           `args.s.replace("a", args.t, 100000).size() > 0`,
	"join":                       `args.list.map(x, args.s).join().size() > 0`,
	"join with a separator":      `args.list.join(args.s).size() > 0`,
	"format":                     `"%s%s%s".format([args.list.map(x, args.s), args.list.map(x, args.s), args.s]).size() > 0`,
	"format by the request":      `args.format.format(args.list).size() > 0`,
	"format by a long request":   `args.list.map(x, (args.format + args.format).format(args.list)).size() > 0`,
	"split":                      `args.list.map(x, args.s.split("")).size() > 0`,
	"split, counted":             `args.list.map(x, args.s.split("", 90000)).size() > 0`,
	"reverse":                    `args.list.map(x, args.s.reverse()).size() > 0`,
	"upperAscii":                 `args.list.map(x, args.s.upperAscii()).size() > 0`,
	"quote":                      `args.list.map(x, strings.quote(args.s)).size() > 0`,
	"substring":                  `args.list.map(x, args.s.substring(1)).size() > 0`,
	"list of lists":              `args.list.map(x, args.list.map(y, y)).size() > 0`,
	"list in list":               `args.list.map(x, [args.list, args.list]) == args.list.map(x, [args.list, args.list, 1])`,
	"concatenation of lists":     `args.list.map(x, args.list + args.list + [x]) == []`,
	"map":                        `args.list.map(x, {"a": args.s + "1", "b": args.s + "2"}).size() > 0`,
	"pattern of the request":     `args.list.exists(x, args.t.matches(args.pattern))`,
	"long pattern":               `args.t.matches(args.s)`,
	"errors that CEL can ignore": `args.list.map(x, bytes(args.s)).size() > 0 || true`,
}

func growingArgs() map[string]any {
	list := make([]any, 1000)
	for i := range list {
		list[i] = fmt.Sprint("x", i)
	}
	return map[string]any{
		"s": strings.Repeat("a", 100_000), "t": strings.Repeat("b", 1000), "list": list,
		"format": strings.Repeat("%.100f", 2) + strings.Repeat("%s", 900), "pattern": strings.Repeat(`(\pL{900})`, 90),
	}
}

// Whatever a condition makes of a request is bounded by bytes, not only by steps.
func TestMemoryOfOneCallIsBounded(t *testing.T) {
	for name, when := range growing {
		t.Run(name, func(t *testing.T) {
			set := compileDocs(t, doc("p", "", "allow ok: "+when))
			in := call("x")
			in.Args = growingArgs()
			var got Result
			begun := time.Now()
			allocated := allocatedBy(func() { got = set.Evaluate(in) })
			t.Logf("%s, %d MiB, %s", codes(got), allocated>>20, time.Since(begun))
			if allocated > maxAllocated {
				t.Errorf("%d MiB were allocated, at most %d may be", allocated>>20, maxAllocated>>20)
			}
			if got.Verdict != events.Deny || name == "errors that CEL can ignore" && got.Reasons[0].Code != CodePolicyMemory {
				t.Errorf("got %s", codes(got))
			}
		})
	}
}

// Policies on trial have a budget of their own: one that uses it up denies nothing.
func TestTrialPoliciesHaveTheirOwnBudget(t *testing.T) {
	wasteful := growing["concatenation in map"]
	set := compileDocs(t, doc("z", "", "allow ok: 'a' + tool == 'ax'"), written("a", "validationActions: [audit]", ruleOf("deny", wasteful)))
	in := call("x")
	in.Args = growingArgs()
	expect(t, set.Evaluate(in), "allow ok,policy_memory")
}

// All policies that decide share what one call may cost: many conditions, each
// within its own limit, are bounded together.
func TestConditionsShareTheStepsOfOneCall(t *testing.T) {
	var docs []string
	for i := range 40 {
		docs = append(docs, doc(fmt.Sprint("p", i), "", "allow ok: args.list.all(x, args.list.all(y, y >= 0))"))
	}
	set := compileDocs(t, docs...)
	in := call("x")
	in.Args = map[string]any{"list": slices.Repeat([]any{int64(1)}, 300)} // some 400,000 steps each
	got := set.Evaluate(in)
	if got.Verdict != events.Deny || got.Fault != FaultLimit {
		t.Errorf("%s %s", got.Verdict, got.Fault)
	}
	in.Args = map[string]any{"list": slices.Repeat([]any{int64(1)}, 100)}
	if got := set.Evaluate(in); got.Verdict != events.Allow {
		t.Errorf("%s %s", got.Verdict, got.Fault)
	}
}

// A request's deadline ends an evaluation between conditions and inside loops.
func TestDeadlineEndsAnEvaluation(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	set := compileDocs(t, doc("p", "", "allow ok: tool == 'x'"))
	in := call("x")
	in.Context = ended
	got := set.Evaluate(in)
	expect(t, got, "deny policy_deadline")
	if !got.DeadlineExceeded {
		t.Error("it does not say that the deadline ended it")
	}
	in.Context = context.Background()
	expect(t, set.Evaluate(in), "allow ok")

	set = compileDocs(t, doc("p", "", "allow ok: args.list.all(x, args.list.all(y, y >= 0)) || true"))
	in.Args = map[string]any{"list": slices.Repeat([]any{int64(1)}, 450)} // most of what a condition may cost
	in.Context = &endsInside{Context: context.Background(), seen: math.MaxInt}
	expect(t, set.Evaluate(in), "deny policy_deadline")
	in.Context = &endsInside{Context: context.Background(), seen: 1} // by the loop alone, which does not end without an error
	expect(t, set.Evaluate(in), "deny policy_error")
}

// endsInside is a context that ends between the look before a condition and the next one, which is
// inside it. So many looks see that it has ended.
type endsInside struct {
	context.Context
	looks, seen int
}

func (c *endsInside) Done() <-chan struct{} {
	if c.looks++; c.looks == 1 || c.looks-1 > c.seen {
		return nil
	}
	ended := make(chan struct{})
	close(ended)
	return ended
}

func (c *endsInside) Err() error {
	if c.looks > 1 {
		return context.Canceled
	}
	return nil
}

// What conditions of everyday policies make stays far below the budget.
func TestOrdinaryConditionsFitTheBudget(t *testing.T) {
	set := compileDocs(t, doc("p", "", `allow ok: args.to.all(r, r.split("@")[1] + ".example" != tool) && args.to.map(r, r.lowerAscii()).size() == 500 && "x" + args.body != tool`,
		`allow re: args.to.all(r, r.matches(".*@" + args.domain + "[a-z]{2,8}$"))`))
	in := call("x")
	in.Args = map[string]any{"to": slices.Repeat([]any{"somebody@example.com"}, 500), "body": strings.Repeat("a", 1_000_000), "domain": "example."}
	expect(t, set.Evaluate(in), "allow ok,re")
}

// FuzzMemoryOfOneCall puts expressions together at random, as a policy's author
// could, and runs them on random requests: whatever comes out, one call must not
// make more than the bound.
func FuzzMemoryOfOneCall(f *testing.F) {
	for i := range 12 {
		f.Add(int64(i), uint16(300))
	}
	f.Fuzz(func(t *testing.T, seed int64, size uint16) {
		r := rand.New(rand.NewPCG(uint64(seed), uint64(size)))
		when := "size(" + randomExpression(r, 5, "x") + ") > 0"
		set, err := Compile([]Document{{Name: "t", Data: []byte(doc("p", "", "allow ok: "+when))}})
		if err != nil {
			return
		}
		in := call("x")
		in.Args = growingArgs()
		in.Args["list"] = in.Args["list"].([]any)[:size%1000]
		in.Args["s"] = strings.Repeat("a", int(size))
		if allocated := allocatedBy(func() { set.Evaluate(in) }); allocated > maxAllocated {
			t.Errorf("%d MiB were allocated by %s", allocated>>20, when)
		}
	})
}

// randomExpression is of a type that has a size; it need not compile.
func randomExpression(r *rand.Rand, depth int, element string) string {
	if depth == 0 {
		return [...]string{"args.s", "args.t", "args.list", element, `"a"`, "[1]", "args"}[r.IntN(7)]
	}
	next := func() string { return randomExpression(r, depth-1, element) }
	switch r.IntN(14) {
	case 0, 1:
		return "(" + next() + " + " + next() + ")"
	case 2, 3:
		return fmt.Sprintf("%s.map(v%d, %s)", next(), depth, randomExpression(r, depth-1, fmt.Sprint("v", depth)))
	case 4:
		return fmt.Sprintf("%s.replace(%s, %s)", next(), next(), next())
	case 5:
		return fmt.Sprintf("%s.join(%s)", next(), next())
	case 6:
		return fmt.Sprintf("%s.split(%s)", next(), next())
	case 7:
		return fmt.Sprintf(`"%%s%%s".format([%s, %s])`, next(), next())
	case 8:
		return "[" + next() + ", " + next() + "]"
	case 9:
		return `{"a": ` + next() + `, "b": ` + next() + "}"
	case 10:
		return "string(bytes(" + next() + "))"
	case 11:
		return fmt.Sprintf("(%s == %s ? %s : %s)", next(), next(), next(), next())
	case 12:
		return next() + "." + [...]string{"reverse()", "upperAscii()", "trim()", "substring(1)", "join()"}[r.IntN(5)]
	}
	return fmt.Sprintf("%s.filter(v%d, v%d != %s)", next(), depth, depth, next())
}

// walkedList counts the elements that are looked at.
type walkedList struct {
	traits.Lister
	walked *int
}

func (l walkedList) Value() any { return nil }

func (l walkedList) Iterator() traits.Iterator { return walkedIterator{l.Lister.Iterator(), l.walked} }

type walkedIterator struct {
	traits.Iterator
	walked *int
}

func (i walkedIterator) Next() ref.Val {
	*i.walked++
	return i.Iterator.Next()
}

// TestComparisonsArePricedCheaply: the price of a comparison is the smaller size, and to find it looks at no more than
// a multiple of that. A loop that compares a large list with each of 80,000 numbers took a minute otherwise.
func TestComparisonsArePricedCheaply(t *testing.T) {
	sizes := []int{0, 1, 5, 100, 3000, 100_000}
	for _, m := range sizes {
		for _, n := range sizes {
			walked := 0
			list := func(size int) ref.Val {
				return walkedList{types.DefaultTypeAdapter.NativeToValue(make([]int, size)).(traits.Lister), &walked}
			}
			small := min(m, n)
			if got, want := smallerSize(list(m), list(n)), int64(listSize+small*scalarSize); got != want {
				t.Errorf("%d and %d elements: %d bytes, want %d", m, n, got, want)
			}
			if walked > 20*small+1000 {
				t.Errorf("%d and %d elements: %d are looked at", m, n, walked)
			}
		}
	}
	if got := smallerSize(types.String("text"), types.Int(1)); got != scalarSize {
		t.Error(got)
	}
}
