package snapshot

import (
	"reflect"
	"strings"
	"testing"
	"time"
	"unsafe"
)

// variants are samples in which the field of that name is zero.
func variants() map[string]*everything {
	list := map[string]*everything{"none": sample(), "all": {}}
	for f := range reflect.TypeFor[everything]().Fields() {
		list[f.Name] = sample()
		field := reflect.ValueOf(list[f.Name]).Elem().FieldByIndex(f.Index)
		reflect.NewAt(field.Type(), field.Addr().UnsafePointer()).Elem().SetZero()
	}
	return list
}

// TestZeroFields: a field that is zero is read as zero, also over one that is not.
func TestZeroFields(t *testing.T) {
	for zero, want := range variants() {
		got, b := sample(), written(t, nil, want, 0)
		err := Read(b, only(got))
		if clear(b); err != nil || !reflect.DeepEqual(got, want) { // nothing of it is part of the bytes
			t.Errorf("with %s zero: %v", zero, err)
		}
	}
}

// TestValueCodec: a value gives the same bytes whatever was encoded before, and the bytes the value.
func TestValueCodec(t *testing.T) {
	var codec ValueCodec[everything]
	for zero, want := range variants() {
		text := string(codec.Encode(want))
		if fresh := new(ValueCodec[everything]); string(fresh.Encode(want)) != text {
			t.Errorf("with %s zero: the bytes depend on the values before", zero)
		}
		got := sample()
		if codec.Decode(text, got); !reflect.DeepEqual(got, want) {
			t.Errorf("with %s zero: read another value", zero)
		}
		if a := got.byName["a"]; a != nil && got.head != nil && (a != got.head.next || a.friend != got.head) {
			t.Errorf("with %s zero: one object has become several", zero)
		}
	}
}

// TestValuesAreSmall: what is zero takes a bit of its struct, and a text or number one byte more than it has.
func TestValuesAreSmall(t *testing.T) {
	type times struct{ a, b time.Time }
	type value struct {
		text, again string
		times       times
		sum         [32]byte
		list        []string
		n           uint8
	}
	var codec ValueCodec[value]
	text := strings.Repeat("x", 50)
	for _, tc := range []struct {
		value value
		size  int
	}{
		{value{}, 1},
		{value{n: 7}, 2},
		{value{text: text, again: text}, 1 + 51 + 1},
		{value{sum: [32]byte{31: 1}}, 33},
		{value{times: times{b: time.Unix(5, 0)}}, 1 + 1 + 2},
		{value{times: times{time.Unix(5, 0), time.Unix(0, 0)}}, 1 + 1 + 2 + 2},
		{value{list: []string{"", text, text}}, 1 + 1 + 1 + 51 + 1},
	} {
		if got := codec.Encode(&tc.value); len(got) != tc.size {
			t.Errorf("%+v takes %d bytes, not %d: %x", tc.value, len(got), tc.size, got)
		}
	}
}

// TestTextsOfAValue: no text of a decoded value is a copy, and none of an encoded one stays in the bytes of the next.
func TestTextsOfAValue(t *testing.T) {
	var codec ValueCodec[string]
	secret := strings.Repeat("secret", 3)
	in := string(codec.Encode(&secret))
	var out string
	if codec.Decode(in, &out); out != secret || unsafe.StringData(out) != unsafe.StringData(in[1:]) {
		t.Errorf("%q is a copy", out)
	}
	if allocs := testing.AllocsPerRun(100, func() { codec.Encode(&secret); codec.Decode(in, &out) }); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}
