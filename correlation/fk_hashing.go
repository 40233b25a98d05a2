package correlation

import (
	"encoding/binary"
	"hash/maphash"
)

// The hash of a key depends on hashSeed, so that a publisher that chooses keys cannot choose
// their hashes. Nothing else depends on the hashes.

var hashSeed = maphash.MakeSeed()

// hashKeys are hashSeed for what is a hash already.
var hashKeys = [2]uint64{maphash.String(hashSeed, "add"), maphash.String(hashSeed, "times") | 1}

func textHash(s string) uint64 { return maphash.String(hashSeed, s) }

func mixHash64(a, b uint64) uint64 { return ((a ^ hashKeys[0]) * hashKeys[1]) ^ b }

func mixHash(a, b uint64) uint32 { return uint32(mixHash64(a, b) * hashKeys[1] >> 32) }

func (s sum) Hash() uint32 {
	return mixHash(binary.LittleEndian.Uint64(s[:8]), binary.LittleEndian.Uint64(s[8:]))
}

// What tenants have in common, as the sum of a token, must not lie at one place for
// all of them.

func (k sourceKey) Hash() uint32  { return hashesOf(sessionKey{k.tenant, k.source, ""}).source }
func (k sessionKey) Hash() uint32 { return hashesOf(k).session }

// protocolSessionHash is the hash of a protocolSessionKey whose session's hash is known. The protocols
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

func (k callKey) Hash() uint32 { return mixHash(textHash(k.id), textHash(k.tool)) }
