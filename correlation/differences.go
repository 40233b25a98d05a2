package correlation

import (
	"slices"
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// Bounds of what is said of one call's differences; see Options for what is kept
// of its arguments.
const (
	maxDifferences = 32
	maxPointer     = 256  // bytes; what lies deeper is said of the place above it
	maxPointers    = 2048 // bytes of all pointers of one call
)

// differences are the places where b is not what a is. The pointers are RFC 6901,
// in the order of the members' bytes. more is how many there are beside the list.
// Values are only compared: what is said of them is that they differ.
func differences(a, b any) (list []events.Difference, more int) {
	d := differ{}
	d.walk("", a, b)
	return d.list, d.more
}

type differ struct {
	list []events.Difference
	more int
	size int
	deep string // the place above what lies too deep, said last
}

func (d *differ) walk(at string, a, b any) {
	switch a := a.(type) {
	case map[string]any:
		if b, is := b.(map[string]any); is {
			d.objects(at, a, b)
			return
		}
	case []any:
		if b, is := b.([]any); is {
			d.lists(at, a, b)
			return
		}
	default:
		switch b.(type) {
		case map[string]any, []any:
		default: // texts, numbers in their canonical form, booleans and null
			if a == b {
				return
			}
		}
	}
	d.add(at, events.DifferenceChanged)
}

func (d *differ) objects(at string, a, b map[string]any) {
	names := make([]string, 0, len(a)+len(b))
	for name := range a {
		names = append(names, name)
	}
	for name := range b {
		if _, both := a[name]; !both {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		inA, isA := a[name]
		inB, isB := b[name]
		d.child(at, name, inA, inB, isA, isB)
	}
}

func (d *differ) lists(at string, a, b []any) {
	for i := range max(len(a), len(b)) {
		var inA, inB any
		if i < len(a) {
			inA = a[i]
		}
		if i < len(b) {
			inB = b[i]
		}
		d.child(at, strconv.Itoa(i), inA, inB, i < len(a), i < len(b))
	}
}

var escapePointer = strings.NewReplacer("~", "~0", "/", "~1")

func (d *differ) child(at, name string, a, b any, isA, isB bool) {
	if len(name) <= maxPointer {
		name = escapePointer.Replace(name)
	}
	if len(at)+1+len(name) > maxPointer {
		if !isA || !isB || !sameTree(a, b) {
			d.beneath(at)
		}
		return
	}
	switch at += "/" + name; {
	case !isA:
		d.add(at, events.DifferenceAdded)
	case !isB:
		d.add(at, events.DifferenceRemoved)
	default:
		d.walk(at, a, b)
	}
}

func sameTree(a, b any) bool {
	inner := differ{}
	inner.walk("", a, b)
	return inner.more+len(inner.list) == 0
}

// beneath says once that something below a place differs.
func (d *differ) beneath(at string) {
	if n := len(d.list); n > 0 && d.list[n-1].Pointer == at || d.deep == at && at != "" {
		return
	}
	d.deep = at
	d.add(at, events.DifferenceChanged)
}

func (d *differ) add(at, kind string) {
	if len(d.list) == maxDifferences || d.size+len(at) > maxPointers {
		d.more++
		return
	}
	d.size += len(at)
	d.list = append(d.list, events.Difference{Pointer: at, Kind: kind})
}

// unmasked is the tree of arguments without the redacted places.
func (a arguments) unmasked(paths []string) (any, bool) {
	tree, err := strictjson.Parse(a.raw, strictjson.Limits{})
	if err != nil {
		return nil, false
	}
	for _, p := range paths {
		if segments := argumentPath(p); len(segments) > 0 {
			mask(tree, segments)
		}
	}
	return tree, true
}
