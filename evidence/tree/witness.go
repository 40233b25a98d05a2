package tree

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/events/signing"
)

// cosignatureKeyType is the type byte of Ed25519 cosigner keys (c2sp.org/tlog-cosignature).
const cosignatureKeyType = 4

// cosignedMessage is what a witness signs: a header, the time and the checkpoint's text.
func cosignedMessage(seconds uint64, text []byte) []byte {
	return append(fmt.Appendf(nil, "cosignature/v1\ntime %d\n", seconds), text...)
}

// Witness is the private key of a witness.
type Witness struct {
	name string
	hash uint32
	key  func() ed25519.PrivateKey // a function, so that fmt cannot print it
}

// Name is the witness's name, as it appears in its signature lines.
func (w Witness) Name() string { return w.name }

// NewWitnessKey makes a witness's key pair from 32 bytes of seed. skey is the secret key, vkey
// the public one, both in the text form of note keys with type byte 4.
func NewWitnessKey(seed io.Reader, name string) (skey, vkey string, err error) {
	var b [ed25519.SeedSize]byte
	if _, err := io.ReadFull(seed, b[:]); err != nil {
		return "", "", fmt.Errorf("%w: no seed: %w", ErrWitnessKey, err)
	}
	if !isKeyName(name) || name == signing.CheckpointKeyName {
		return "", "", fmt.Errorf("%w: a name such as witness.example.com/w1, without blanks and plus signs", ErrWitnessKey)
	}
	pub := ed25519.NewKeyFromSeed(b[:]).Public().(ed25519.PublicKey)
	hash := cosignerHash(name, pub)
	encode := func(key []byte) string {
		return fmt.Sprintf("%s+%08x+%s", name, hash, base64.StdEncoding.EncodeToString(append([]byte{cosignatureKeyType}, key...)))
	}
	return "PRIVATE+KEY+" + encode(b[:]), encode(pub), nil
}

func isKeyName(name string) bool {
	return name != "" && len(name) <= 200 && !strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '+' })
}

func cosignerHash(name string, pub ed25519.PublicKey) uint32 {
	sum := sha256.Sum256(append([]byte(name+"\n"), append([]byte{cosignatureKeyType}, pub...)...))
	return binary.BigEndian.Uint32(sum[:])
}

// WitnessSigner parses a witness's secret key. Errors never quote it.
func WitnessSigner(skey string) (Witness, error) {
	rest, ok := strings.CutPrefix(strings.TrimSpace(skey), "PRIVATE+KEY+")
	name, hash, key, fine := splitNoteKey(rest)
	if !ok || !fine {
		return Witness{}, fmt.Errorf("%w (secret key)", ErrWitnessKey)
	}
	private := ed25519.NewKeyFromSeed(key)
	w := Witness{name: name, hash: cosignerHash(name, private.Public().(ed25519.PublicKey)), key: func() ed25519.PrivateKey { return private }}
	if w.hash != hash {
		return Witness{}, fmt.Errorf("%w (secret key)", ErrWitnessKey)
	}
	return w, nil
}

// splitNoteKey parses name+hash+key, the text form of note keys.
func splitNoteKey(text string) (name string, hash uint32, key []byte, ok bool) {
	parts := strings.SplitN(text, "+", 3)
	if len(parts) != 3 || !isKeyName(parts[0]) || len(parts[1]) != 8 || strings.Trim(parts[1], "0123456789abcdef") != "" {
		return "", 0, nil, false
	}
	var n uint32
	if _, err := fmt.Sscanf(parts[1], "%08x", &n); err != nil {
		return "", 0, nil, false
	}
	b, err := base64.StdEncoding.DecodeString(parts[2])
	if err != nil || len(b) != 1+ed25519.SeedSize || b[0] != cosignatureKeyType {
		return "", 0, nil, false
	}
	return parts[0], n, b[1:], true
}

// NewWitness parses a witness's public key.
func NewWitness(vkey string) (note.Verifier, error) {
	name, hash, key, ok := splitNoteKey(strings.TrimSpace(vkey))
	if !ok || hash != cosignerHash(name, key) {
		return nil, fmt.Errorf("%w (public key)", ErrWitnessKey)
	}
	return witnessVerifier{name, hash, key}, nil
}

// witnessVerifier checks the cosignatures of one witness. It does not check their times,
// which are by the witness's own clock.
type witnessVerifier struct {
	name string
	hash uint32
	pub  ed25519.PublicKey
}

func (w witnessVerifier) Name() string    { return w.name }
func (w witnessVerifier) KeyHash() uint32 { return w.hash }

func (w witnessVerifier) Verify(msg, sig []byte) bool {
	if len(sig) != 8+ed25519.SignatureSize {
		return false
	}
	seconds := binary.BigEndian.Uint64(sig)
	return seconds <= math.MaxInt64 && ed25519.Verify(w.pub, cosignedMessage(seconds, msg), sig[8:])
}

// Cosign adds a witness's signature to a checkpoint that one of the known keys signed, and
// returns the signed note. old is the last checkpoint of the same log that the witness
// signed, nil for its first; proof (ConsistencyProof) shows that the new one extends old,
// and may be nil if the sizes are the same.
//
// The caller MUST store the new checkpoint durably before it releases the result, and must
// not call Cosign concurrently with the same state: a witness that forgets can be made to
// sign two histories.
func Cosign(w Witness, signed string, known note.Verifiers, old *Checkpoint, proof tlog.TreeProof, now time.Time) (string, Checkpoint, error) {
	c, err := OpenCheckpoint(signed, known)
	if err != nil {
		return "", c, err
	}
	if old != nil {
		switch {
		case old.Shard != c.Shard:
			return "", c, fmt.Errorf("%w: the last one signed is of %s, this one of %s", ErrCheckpoint, old.Shard, c.Shard)
		case old.Size > c.Size:
			return "", c, fmt.Errorf("%w: size %d was signed already, this one is of %d", ErrRollback, old.Size, c.Size)
		case !CheckConsistency(proof, *old, c):
			return "", c, fmt.Errorf("%w: size %d, root %s was signed; size %d, root %s is not shown to extend it", ErrFork, old.Size, old.Root, c.Size, c.Root)
		}
	}
	n, err := note.Open([]byte(signed), known)
	if err != nil {
		return "", c, err
	}
	out, err := note.Sign(n, timedSigner{w, uint64(max(now.Unix(), 0))})
	if err != nil {
		return "", c, fmt.Errorf("signing as a witness: %w", err)
	}
	return string(out), c, nil
}

// timedSigner signs with a fixed time.
type timedSigner struct {
	Witness
	seconds uint64
}

func (s timedSigner) KeyHash() uint32 { return s.hash }

func (s timedSigner) Sign(msg []byte) ([]byte, error) {
	if s.key == nil {
		return nil, errors.New("evidence: the zero Witness cannot sign")
	}
	return append(binary.BigEndian.AppendUint64(nil, s.seconds), ed25519.Sign(s.key(), cosignedMessage(s.seconds, msg))...), nil
}
