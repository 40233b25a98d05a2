package strictjson

// Names maps names of members to values, for looking up members of a document: a map that
// reads as little of a name as possible. NamesOf makes it; the zero Names cannot be used.
type Names[T any] struct {
	slots []nameSlot[T] // a power of two, at least half of them free
}

type nameSlot[T any] struct {
	name     string
	nameHash nameHash
	taken    bool
	value    T
}

// NamesOf makes Names from a map.
func NamesOf[T any](m map[string]T) *Names[T] {
	size := 4
	for size < 2*len(m) {
		size *= 2
	}
	n := &Names[T]{make([]nameSlot[T], size)}
	for name, value := range m {
		s := nameHashOf(name)
		at := n.firstSlot(s)
		for n.slots[at].taken {
			at = (at + 1) & (len(n.slots) - 1)
		}
		n.slots[at] = nameSlot[T]{name, s, true, value}
	}
	return n
}

func (n *Names[T]) firstSlot(s nameHash) int {
	return int(uint32(s)*0x9e3779b1>>16) & (len(n.slots) - 1)
}

// Of returns the value for the name of a member.
func (n *Names[T]) Of(v Value) (value T, known bool) {
	return n.find(v.nodes[0].key, v.nodes[0].nameHash)
}

// Get returns the value for a name.
func (n *Names[T]) Get(name string) (value T, known bool) { return n.find(name, nameHashOf(name)) }

func (n *Names[T]) find(name string, s nameHash) (value T, known bool) {
	for at := n.firstSlot(s); n.slots[at].taken; at = (at + 1) & (len(n.slots) - 1) {
		if p := &n.slots[at]; p.nameHash == s && p.name == name {
			return p.value, true
		}
	}
	return value, false
}

// nameHash is a cheap hash of a name.
type nameHash uint32

func nameHashOf(name string) nameHash {
	n := len(name)
	if n == 0 {
		return 0
	}
	return nameHash(uint32(n)<<24 | uint32(name[0])<<16 | uint32(name[n/2])<<8 | uint32(name[n-1]))
}

// maskBit is the same bit for names that differ only in case.
func (s nameHash) maskBit() uint64 {
	length, begin, end := uint(s>>24), uint(s>>16&0xff|0x20), uint(s&0xff|0x20)
	return 1 << ((7*length + 5*begin + end) & 63)
}
