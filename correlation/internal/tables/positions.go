// Package tables has the bounded tables of a correlator. FIFO forgets the oldest entries, LRU
// the least recently used ones. What the tenants of a shard hold together is in a Shared, a
// FIFO with shares of tenants, or in an LRU that counts what each publisher holds: the one that
// holds most makes room. All depend only on the calls made, and can be written in a snapshot.
//
// A table finds a key by its hash. Publishers choose keys, so they must not be able to predict
// the hashes.
package tables

// hashed is the key of a table.
type hashed interface {
	comparable
	Hash() uint32
}

// A table of positions is an open-addressing hash table. An element has a hash in its upper
// half and a number in its lower half; 0 is a free element. The search for a key starts at the
// element that its hash selects.

// minTableSize is the initial size of a table. The size is always a power of two, and at least
// half of the elements are free.
const minTableSize = 8

// insertPosition inserts a number under a hash. The number must not be in the table.
func insertPosition(table []uint64, hash, number uint32) {
	mask := len(table) - 1
	at := int(hash) & mask
	for table[at] != 0 {
		at = (at + 1) & mask
	}
	table[at] = uint64(hash)<<32 | uint64(number)
}

// removePosition removes a number that is in the table. Later elements move up if the search
// would not find them otherwise.
func removePosition(table []uint64, hash, number uint32) {
	mask := len(table) - 1
	hole := int(hash) & mask
	for table[hole] != uint64(hash)<<32|uint64(number) {
		hole = (hole + 1) & mask
	}
	for at := (hole + 1) & mask; table[at] != 0; at = (at + 1) & mask {
		if home := int(uint32(table[at]>>32)) & mask; (at-home)&mask >= (at-hole)&mask {
			table[hole] = table[at]
			hole = at
		}
	}
	table[hole] = 0
}
