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

// listDifferences are the places where b is not what a is. The pointers are RFC 6901,
// in the order of the members' bytes. more is how many there are beside the list.
// Values are only compared: what is said of them is that they differ.
func listDifferences(a, b any) (list []events.Difference, more int) {
	d := differenceList{}
	d.walk("", a, b)
	return d.list, d.more
}

type differenceList struct {
	list     []events.Difference
	more     int
	size     int
	deepPath string // the place above what lies too deep, said last
}

func (d *differenceList) walk(at string, a, b any) {
	switch a := a.(type) {
	case map[string]any:
		if b, is := b.(map[string]any); is {
			d.compareObjects(at, a, b)
			return
		}
	case []any:
		if b, is := b.([]any); is {
			d.compareLists(at, a, b)
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

func (d *differenceList) compareObjects(at string, a, b map[string]any) {
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
		d.compareMember(at, name, inA, inB, isA, isB)
	}
}

func (d *differenceList) compareLists(at string, a, b []any) {
	for i := range max(len(a), len(b)) {
		var inA, inB any
		if i < len(a) {
			inA = a[i]
		}
		if i < len(b) {
			inB = b[i]
		}
		d.compareMember(at, strconv.Itoa(i), inA, inB, i < len(a), i < len(b))
	}
}

var escapePointer = strings.NewReplacer("~", "~0", "/", "~1")

func (d *differenceList) compareMember(at, name string, a, b any, isA, isB bool) {
	if len(name) <= maxPointer {
		name = escapePointer.Replace(name)
	}
	if len(at)+1+len(name) > maxPointer {
		if !isA || !isB || !equalTrees(a, b) {
			d.addDeep(at)
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

func equalTrees(a, b any) bool {
	inner := differenceList{}
	inner.walk("", a, b)
	return inner.more+len(inner.list) == 0
}

// addDeep says once that something below a place differs.
func (d *differenceList) addDeep(at string) {
	if n := len(d.list); n > 0 && d.list[n-1].Pointer == at || d.deepPath == at && at != "" {
		return
	}
	d.deepPath = at
	d.add(at, events.DifferenceChanged)
}

func (d *differenceList) add(at, kind string) {
	if len(d.list) == maxDifferences || d.size+len(at) > maxPointers {
		d.more++
		return
	}
	d.size += len(at)
	d.list = append(d.list, events.Difference{Pointer: at, Kind: kind})
}

// unmaskedTree is the tree of arguments without the redacted places.
func (a arguments) unmaskedTree(paths []string) (any, bool) {
	tree, err := strictjson.Parse(a.canonical, strictjson.Limits{})
	if err != nil {
		return nil, false
	}
	for _, p := range paths {
		if segments := argumentPath(p); len(segments) > 0 {
			removePath(tree, segments)
		}
	}
	return tree, true
}
