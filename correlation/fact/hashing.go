package fact

import (
	"encoding/binary"
	"hash/maphash"
)

// The hash of a key depends on hashSeed, which is random, so that a publisher cannot choose
// keys with equal hashes. Outputs do not depend on hashes.

var hashSeed = maphash.MakeSeed()

// hashKeys seed the mixing of values that are hashes already.
var hashKeys = [2]uint64{maphash.String(hashSeed, "add"), maphash.String(hashSeed, "times") | 1}

// TextHash is the hash of a text.
func TextHash(s string) uint64 { return maphash.String(hashSeed, s) }

// mixHash64 combines two hashes.
func mixHash64(a, b uint64) uint64 { return ((a ^ hashKeys[0]) * hashKeys[1]) ^ b }

// MixHash combines two hashes to the hash of a table key.
func MixHash(a, b uint64) uint32 { return uint32(mixHash64(a, b) * hashKeys[1] >> 32) }

func (s Sum) Hash() uint32 {
	return MixHash(binary.LittleEndian.Uint64(s[:8]), binary.LittleEndian.Uint64(s[8:]))
}

// A key that names a publisher or a session hashes its tenant, too. A key that is a Sum without the
// tenant is of a table that each tenant has for itself (tables.Shared): no tenant can slow down
// another one by equal keys.

func (k PublisherKey) Hash() uint32  { return hashesOf(SourceSession{k.Tenant, k.Source, ""}).Source }
func (k SourceSession) Hash() uint32 { return hashesOf(k).Session }

// ProtocolSessionHash is the hash of a session in a protocol. session is the hash of the
// session. The lengths of the protocols' names differ.
func ProtocolSessionHash(session uint32, protocol string) uint32 {
	return MixHash(uint64(session), uint64(len(protocol)))
}

// OriginHashes are the hashes of a message's publisher and session.
type OriginHashes struct {
	Computed        bool
	Source, Session uint32
	publisher       uint64 // not a key of a table
}

func hashesOf(k SourceSession) OriginHashes {
	tenant, source := TextHash(k.Tenant), TextHash(k.Source)
	h := OriginHashes{Computed: true, Source: MixHash(tenant, source), publisher: mixHash64(tenant, source)}
	h.Session = h.SessionHash(k.Session)
	return h
}

// SessionHash is the hash of another session of the same publisher.
func (h *OriginHashes) SessionHash(session string) uint32 {
	return MixHash(h.publisher, TextHash(session))
}

// OriginHashes are the hashes of the fact's Key, which no longer changes.
func (f *Fact) OriginHashes() *OriginHashes {
	if !f.CachedHashes.Computed {
		f.CachedHashes = hashesOf(f.Key)
	}
	return &f.CachedHashes
}

// ProtocolSessionHash is the hash of the fact's session in its protocol.
func (f *Fact) ProtocolSessionHash() uint32 {
	return ProtocolSessionHash(f.OriginHashes().Session, f.Protocol)
}

// TokenKey is a table key made of a token that a publisher chose.
type TokenKey struct {
	Tenant, Source string
	Token          Sum
}

// Hash implements the keys of package tables.
func (k TokenKey) Hash() uint32 {
	return MixHash(mixHash64(TextHash(k.Tenant), TextHash(k.Source)), uint64(k.Token.Hash()))
}
