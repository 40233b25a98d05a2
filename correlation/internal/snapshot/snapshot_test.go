//lint:file-ignore U1000 the fields are looked at by reflection

package snapshot

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

type word string

type node struct {
	name   word
	next   *node
	friend *node
	again  *int32
}

type everything struct {
	flag    bool
	i8      int8
	i64     int64
	u16     uint16
	u64     uint64
	text    string
	raw     []byte
	noRaw   []byte
	sum     [3]byte
	pairs   [2]int32
	list    []node
	none    []string
	empty   []string
	byName  map[word]*node
	sets    map[[2]byte]struct{}
	noMap   map[string]int
	at      time.Time
	zero    time.Time
	head    *node
	packed  stack
	skipped func() `snapshot:"-"`
}

// stack is written from the top.
type stack struct{ items []string }

func (s *stack) Pack() any {
	list := []string{}
	for i := len(s.items) - 1; i >= 0; i-- {
		list = append(list, s.items[i])
	}
	return &list
}

func (s *stack) Unpack(form any) {
	s.items = nil
	for _, item := range *form.(*[]string) {
		s.items = append([]string{item}, s.items...)
	}
}

func sample() *everything {
	n := int32(7)
	a := &node{name: "a", again: &n}
	b := &node{name: "b", next: a, friend: a, again: &n}
	a.friend = b // a circle
	return &everything{
		flag: true, i8: -8, i64: -1 << 62, u16: 65535, u64: 1 << 63, text: strings.Repeat("long ", 100), raw: []byte("raw"), sum: [3]byte{1, 2, 3},
		pairs: [2]int32{-1, 1}, list: []node{{name: "in", next: b}, {name: "in"}}, empty: []string{},
		byName: map[word]*node{"a": a, "b": b, "aa": a, "": nil}, sets: map[[2]byte]struct{}{{2, 1}: {}, {1, 2}: {}},
		at: time.Date(2026, 11, 20, 9, 0, 0, 5, time.UTC), head: b, packed: stack{[]string{"x", "y"}},
	}
}

// only is a snapshot of one section.
func only(root any) []Section { return []Section{{"only", root}} }

func written(tb testing.TB, b []byte, root any, objects int) []byte {
	tb.Helper()
	b, err := Append(b, only(root), objects, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// Whoever wants no snapshot any more is heard soon, wherever it is: in a list, in a
// map, in objects that lead to each other. Who does not is given all of it.
func TestStopped(t *testing.T) {
	text := strings.Repeat("x", stopCheckBytes/8)
	list, set, head := make([]string, 64), map[word]string{}, (*node)(nil)
	for i := range list {
		list[i] = text
		set[word(fmt.Sprint(i))] = text
		head = &node{name: word(text[i:]), next: head}
	}
	for name, root := range map[string]any{"a list": &list, "a map": &set, "objects that lead to each other": &head} {
		want := written(t, nil, root, 0)
		asked := 0
		if b, err := Append(nil, only(root), 0, func() bool { asked++; return false }); err != nil || !bytes.Equal(b, want) {
			t.Fatalf("%s: %v, %d bytes, want %d", name, err, len(b), len(want))
		}
		if least := len(want) / stopCheckBytes / 2; asked < least {
			t.Errorf("%s: asked %d times in %d bytes, want %d times at least", name, asked, len(want), least)
		}
		for last := range asked {
			n := 0
			b, err := Append(nil, only(root), 0, func() bool { n++; return n > last })
			if b != nil || !errors.Is(err, ErrStopped) || n != last+1 {
				t.Errorf("%s: stopped when asked for the %d. time: %v, %d bytes, asked %d times", name, last+1, err, len(b), n)
			}
		}
	}
}

func TestRoundTrip(t *testing.T) {
	want := sample()
	b := written(t, []byte("prefix"), want, 0)
	for range 20 { // whatever the order of a map
		if again := written(t, []byte("prefix"), sample(), 9); !bytes.Equal(b, again) {
			t.Fatal("the same graph gives other bytes")
		}
	}
	got := &everything{}
	if err := Read(b[len("prefix"):], only(got)); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read\n%+v\nwant\n%+v", got, want)
	}
	if a := got.byName["a"]; a != got.head.next || a.friend != got.head || a.again != got.head.again || got.list[0].next != got.head || got.byName["aa"] != a {
		t.Error("one object has become several")
	}
	if got.none != nil || got.empty == nil || got.noMap != nil || !got.zero.IsZero() {
		t.Error("nothing has become something, or the reverse")
	}
}

func TestRefused(t *testing.T) {
	for _, v := range []any{&struct{ v any }{}, &struct{ f func() }{}, &struct{ c chan int }{}, &struct{ f float64 }{}} {
		func() {
			defer func() {
				if r := recover(); r == nil {
					t.Errorf("%T is written", v)
				}
			}()
			_, _ = Append(nil, only(v), 0, nil)
		}()
	}
}

func TestShape(t *testing.T) {
	type one struct{ a, b int }
	type two struct{ a, c int }
	shapes := map[string]bool{}
	for _, s := range [][]Section{only(new(one)), only(new(two)), only(new(everything)), only(new(node)), only(new(stack)), {{"other", new(one)}}, {}} {
		shapes[Shape(s)] = true
	}
	if len(shapes) != 7 {
		t.Errorf("%d shapes, want 7", len(shapes))
	}
	if s := Shape(only(new(everything))); strings.Contains(s, "skipped") || !strings.Contains(s, "friend") {
		t.Error(s)
	}
}

func FuzzRead(f *testing.F) {
	good := written(f, nil, sample(), 0)
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Add([]byte{1})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		got := new(everything)
		err := Read(b, only(got))
		if err == nil {
			written(t, nil, got, 0)
		} else if !errors.Is(err, ErrDamaged) {
			t.Fatal(err)
		}
	})
}

// TestSections: each section is read into the value of its name. A section refers to no other,
// and what is not written stays as it is.
func TestSections(t *testing.T) {
	shared := &node{name: "shared"}
	first, second := &node{name: "a", next: shared, friend: shared}, &node{name: "a", next: shared}
	sections := func(roots ...any) (list []Section) {
		for i, root := range roots {
			list = append(list, Section{fmt.Sprint("section ", i), root})
		}
		return list
	}
	write := func(list []Section) []byte {
		b, err := Append(nil, list, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	good := write(sections(first, second))
	a, b := &node{}, &node{}
	if err := Read(good, sections(a, b)); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(a, first) || !reflect.DeepEqual(b, second) || a.next != a.friend || a.next == b.next {
		t.Errorf("read %+v and %+v", a, b)
	}
	kept := &everything{skipped: func() {}}
	if err := Read(write(only(sample())), only(kept)); err != nil || kept.skipped == nil {
		t.Errorf("%v; a field that is left out is overwritten: %v", err, kept.skipped == nil)
	}
	one, two := write(sections(first, second)[:1]), write(sections(first, second)[1:])
	if !bytes.Equal(slices.Concat(one, two), good) {
		t.Error("a section depends on the one before it")
	}
	for name, b := range map[string][]byte{
		"missing at the end":   one,
		"missing at the start": two,
		"doubled":              slices.Concat(one, one, two),
		"doubled at the end":   slices.Concat(one, two, two),
		"swapped":              slices.Concat(two, one),
		"cut off":              good[:len(good)-1],
		"too short":            slices.Concat(one[:len(one)-1], two),
		"of another name":      bytes.Replace(good, []byte("section 1"), []byte("section 2"), 1),
		"of a longer name":     bytes.Replace(good, []byte("\x09section 1"), []byte("\x0asection 1"), 1),
		"longer than written":  bytes.Replace(good, []byte("section 0\x00\x00\x00\x00\x00\x00\x00"), []byte("section 0\x7f\x00\x00\x00\x00\x00\x00"), 1),
		"with a byte too many": slices.Concat(withLength(one, 1), []byte{0}, two),
		"nothing":              nil,
	} {
		if err := Read(b, sections(&node{}, &node{})); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// withLength adds to the length that the first section says it has.
func withLength(b []byte, more byte) []byte {
	b = bytes.Clone(b)
	b[1+int(b[0])+lengthSize-1] += more
	return b
}
