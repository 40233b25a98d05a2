package tree

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/events"
)

// Cosignature says that a witness signed a checkpoint of a size. At is the time by the
// witness's clock.
type Cosignature struct {
	Witness string      `json:"witness"`
	Size    int64       `json:"size"`
	At      events.Time `json:"at"`
}

// Cosignatures lists the cosignatures of a checkpoint that are valid under the given keys
// (NewWitness), in the order of the keys. It does not check the log's own signature.
func Cosignatures(signed string, witnesses []note.Verifier) (list []Cosignature) {
	c, err := PeekCheckpoint(signed)
	if err != nil {
		return nil
	}
	for _, w := range witnesses {
		n, err := note.Open([]byte(signed), note.VerifierList(w))
		if err != nil {
			continue
		}
		list = append(list, Cosignature{Witness: w.Name(), Size: c.Size, At: events.At(signedAt(n.Sigs[0]))})
	}
	return list
}

// Cosigners returns the names of the witnesses with a valid signature on a checkpoint. It
// does not check the log's own signature.
func Cosigners(signed string, witnesses []note.Verifier) (names []string) {
	for _, c := range Cosignatures(signed, witnesses) {
		names = append(names, c.Witness)
	}
	return names
}

// keyHashSize is the length of the key id that precedes a signature in its line.
const keyHashSize = 4

// signedAt reads the time in a verified cosignature. The year is bounded to what a record
// can express.
func signedAt(s note.Signature) time.Time {
	b, err := base64.StdEncoding.DecodeString(s.Base64)
	if err != nil || len(b) < keyHashSize+8 {
		return time.Time{}
	}
	const last = 253402300799 // the end of the year 9999
	return time.Unix(int64(min(binary.BigEndian.Uint64(b[keyHashSize:]), last)), 0).UTC()
}

// DistinctKeys removes repeated keys, because package note rejects them as ambiguous.
func DistinctKeys(keys []note.Verifier) []note.Verifier {
	type id struct {
		name string
		hash uint32
	}
	seen := map[id]bool{}
	var out []note.Verifier
	for _, k := range keys {
		if i := (id{k.Name(), k.KeyHash()}); !seen[i] {
			seen[i] = true
			out = append(out, k)
		}
	}
	return out
}

// MergeSignatures joins the signatures of notes that have the same text. Each signature
// appears once, in the order of the input.
func MergeSignatures(notes ...string) (string, error) {
	text, signatures := "", []string(nil)
	for i, one := range notes {
		body, lines, ok := strings.Cut(one, "\n\n")
		if !ok || i > 0 && body != text {
			return "", fmt.Errorf("%w: the signatures are of different texts", ErrCheckpoint)
		}
		text = body
		for line := range strings.Lines(lines) {
			if !slices.Contains(signatures, line) {
				signatures = append(signatures, line)
			}
		}
	}
	if len(signatures) == 0 {
		return "", fmt.Errorf("%w: it has no signatures", ErrCheckpoint)
	}
	return text + "\n\n" + strings.Join(signatures, ""), nil
}

// KeepSignatures removes from a checkpoint all signatures that are not valid under the given
// keys, which are the log's and those of witnesses. It keeps one for each key. Each line is
// checked by itself: one that is not valid hides no other.
func KeepSignatures(signed string, known ...note.Verifier) (string, error) {
	text, lines, ok := strings.Cut(signed, "\n\n")
	if !ok || len(signed) > maxCheckpoint {
		return "", fmt.Errorf("%w: not a signed note", ErrCheckpoint)
	}
	verifiers, kept, seen := note.VerifierList(DistinctKeys(known)...), "", map[string]bool{}
	for line := range strings.Lines(lines) {
		n, err := note.Open([]byte(text+"\n\n"+line), verifiers)
		if err != nil {
			continue
		}
		if key := fmt.Sprintf("%s+%08x", n.Sigs[0].Name, n.Sigs[0].Hash); !seen[key] {
			seen[key] = true
			kept += line
		}
	}
	if kept == "" {
		return "", fmt.Errorf("%w: not signed by a known key", ErrCheckpoint)
	}
	return text + "\n\n" + kept, nil
}
