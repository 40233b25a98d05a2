package correlation

import (
	"encoding/binary"
	"hash/maphash"
)

// hashed is a key of a table. Whoever chooses keys must not be able to choose
// their hashes: these depend on hashSeed, and nothing else depends on them.
type hashed interface {
	comparable
	hash() uint32
}

var hashSeed = maphash.MakeSeed()

// hashKeys are hashSeed for what is a hash already.
var hashKeys = [2]uint64{maphash.String(hashSeed, "add"), maphash.String(hashSeed, "times") | 1}

func textHash(s string) uint64 { return maphash.String(hashSeed, s) }

func mixHash64(a, b uint64) uint64 { return ((a ^ hashKeys[0]) * hashKeys[1]) ^ b }

func mixHash(a, b uint64) uint32 { return uint32(mixHash64(a, b) * hashKeys[1] >> 32) }

func (s sum) hash() uint32 {
	return mixHash(binary.LittleEndian.Uint64(s[:8]), binary.LittleEndian.Uint64(s[8:]))
}

// What tenants have in common, as the sum of a token, must not lie at one place for
// all of them.

func (k sourceKey) hash() uint32  { return hashesOf(sessionKey{k.tenant, k.source, ""}).source }
func (k sessionKey) hash() uint32 { return hashesOf(k).session }
func (k protocolSessionKey) hash() uint32 {
	return protocolSessionHash(k.sessionKey.hash(), k.protocol)
}

// protocolSessionHash is the hash of a flowKey whose session's hash is known. The protocols
// that are followed differ in length.
func protocolSessionHash(session uint32, protocol string) uint32 {
	return mixHash(uint64(session), uint64(len(protocol)))
}

// originHashes are those of whose a message is: of its tenant, publisher and session.
type originHashes struct {
	computed          bool
	source, session   uint32
	tenant, publisher uint64 // publisher is not for tables
}

func hashesOf(k sessionKey) originHashes {
	tenant, source := textHash(k.tenant), textHash(k.source)
	h := originHashes{computed: true, source: mixHash(tenant, source), tenant: tenant, publisher: mixHash64(tenant, source)}
	h.session = h.sessionHash(k.session)
	return h
}

// sessionHash is the hash of a session of the same publisher.
func (h *originHashes) sessionHash(session string) uint32 {
	return mixHash(h.publisher, textHash(session))
}

// originHashes are the hashes of the fact's key, which does not change any more.
func (f *fact) originHashes() *originHashes {
	if !f.cachedHashes.computed {
		f.cachedHashes = hashesOf(f.key)
	}
	return &f.cachedHashes
}

// protocolSessionHash is the hash of the fact's session in its protocol.
func (f *fact) protocolSessionHash() uint32 {
	return protocolSessionHash(f.originHashes().session, f.protocol)
}

func (k callKey) hash() uint32 { return mixHash(textHash(k.id), textHash(k.tool)) }

func (k linkKey) hash() uint32     { return linkKeyHash(textHash(k.tenant), k.target) }
func (k tenantToken) hash() uint32 { return mixHash(textHash(k.tenant), uint64(k.token.hash())) }
func (k workflowKey) hash() uint32 { return mixHash(textHash(k.tenant), uint64(k.workflow.hash())) }
func (k mandateKey) hash() uint32  { return mixHash(textHash(k.tenant), uint64(k.id.hash())) }

func (k tokenKey) hash() uint32 {
	return mixHash(mixHash64(textHash(k.tenant), textHash(k.source)), uint64(k.token.hash()))
}

// linkKeyHash is the hash of a tenantMark whose tenant's hash is known.
func linkKeyHash(tenant uint64, mark sum) uint32 { return mixHash(tenant, uint64(mark.hash())) }

// A table says where things lie: in each of its places the hash of a key, and a
// number that is not 0; 0 where there is nothing. A key is looked for from the
// place on that its hash names.

// minTableSize is the size of a table at first; it is always a power of two, and
// half of a table at least is free.
const minTableSize = 8

// insertPosition notes where something lies that is not in the table yet.
func insertPosition(table []uint64, hash, number uint32) {
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
