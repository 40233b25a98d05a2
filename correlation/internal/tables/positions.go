// Package tables has the bounded tables of a correlator: FIFO forgets what came first, LRU
// what was used least recently, and neither depends on anything but the calls made. Where
// the publishers of a shard share an LRU, it knows what each of them holds, so that the one
// that holds most makes room (LRU.Surplus). Both have a form for snapshots.
//
// A table finds a key by its hash, which must not be predictable by the publishers that
// choose keys.
package tables

// hashed is a key of a table.
type hashed interface {
	comparable
	Hash() uint32
}

// A table says where things lie: in each of its places the hash of a key, and a
// number that is not 0; 0 where there is nothing. A key is looked for from the
// place on that its hash names.

// MinTableSize is the size of a table at first; it is always a power of two, and
// half of a table at least is free.
const MinTableSize = 8

// InsertPosition notes where something lies that is not in the table yet.
func InsertPosition(table []uint64, hash, number uint32) {
	mask := len(table) - 1
	at := int(hash) & mask
	for table[at] != 0 {
		at = (at + 1) & mask
	}
	table[at] = uint64(hash)<<32 | uint64(number)
}

// removePosition takes out of a table what is in it. What lies behind it moves up if it could
// not be found otherwise.
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
