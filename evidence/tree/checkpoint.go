package tree

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// originPrefix begins the origin line; the shard follows.
const originPrefix = "countersign.dev/"

// maxCheckpoint bounds the text of a checkpoint, signatures included.
const maxCheckpoint = 64 << 10

// Checkpoint states the size and root of a shard's Merkle tree (c2sp.org/tlog-checkpoint).
type Checkpoint struct {
	Shard      string
	Size       int64 // leaves: the log sequence of the last record
	Root       tlog.Hash
	Extensions []string // further lines, signed but not interpreted
}

// Text is the note text that is signed.
func (c Checkpoint) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s%s\n%d\n%s\n", originPrefix, c.Shard, c.Size, c.Root)
	for _, line := range c.Extensions {
		b.WriteString(line + "\n")
	}
	return b.String()
}

// ParseCheckpointText parses the text of a checkpoint. It accepts exactly what Text writes
// and checks no signature.
func ParseCheckpointText(text string) (Checkpoint, error) {
	lines := strings.Split(text, "\n")
	if len(lines) < 4 || lines[len(lines)-1] != "" || len(text) > maxCheckpoint {
		return Checkpoint{}, fmt.Errorf("%w: not origin, size and root", ErrCheckpoint)
	}
	shard, ok := strings.CutPrefix(lines[0], originPrefix)
	size, err := strconv.ParseInt(lines[1], 10, 64)
	root, rootErr := base64.StdEncoding.DecodeString(lines[2])
	if !ok || err != nil || size < 0 || size > MaxSeq || rootErr != nil || len(root) != tlog.HashSize {
		return Checkpoint{}, fmt.Errorf("%w: origin, size or root is malformed", ErrCheckpoint)
	}
	c := Checkpoint{Shard: shard, Size: size, Root: tlog.Hash(root)}
	if rest := lines[3 : len(lines)-1]; len(rest) > 0 {
		c.Extensions = rest
	}
	if !c.isValid() || c.Text() != text {
		return Checkpoint{}, fmt.Errorf("%w: not in its one spelling", ErrCheckpoint)
	}
	return c, nil
}

func (c Checkpoint) isValid() bool {
	for _, line := range c.Extensions {
		if line == "" || strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return false
		}
	}
	return ValidShard(c.Shard) && c.Size >= 0 && c.Size <= MaxSeq
}

// SignCheckpoint signs a checkpoint and returns the signed note.
func SignCheckpoint(signer note.Signer, c Checkpoint) (string, error) {
	if !c.isValid() {
		return "", fmt.Errorf("%w: shard %.80q, size %d", ErrCheckpoint, c.Shard, c.Size)
	}
	signed, err := note.Sign(&note.Note{Text: c.Text()}, signer)
	if err != nil {
		return "", fmt.Errorf("signing a checkpoint: %w", err)
	}
	return string(signed), nil
}

// OpenCheckpoint checks that a note is a checkpoint signed by one of the known keys.
// Further signatures, such as those of witnesses, are allowed.
func OpenCheckpoint(text string, known note.Verifiers) (Checkpoint, error) {
	if len(text) > maxCheckpoint {
		return Checkpoint{}, fmt.Errorf("%w: %d bytes", ErrCheckpoint, len(text))
	}
	n, err := note.Open([]byte(text), known)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("%w: %s", ErrCheckpoint, noteErrorText(err))
	}
	return ParseCheckpointText(n.Text)
}

// noteErrorText describes why a note did not open, without quoting the note.
func noteErrorText(err error) string {
	var unverified *note.UnverifiedNoteError
	var invalid *note.InvalidSignatureError
	switch {
	case errors.As(err, &unverified):
		return "not signed by a known key"
	case errors.As(err, &invalid):
		return "the signature does not match the text"
	default:
		return "not a signed note"
	}
}

// PeekCheckpoint parses a checkpoint without checking its signature, so that the caller can
// sort checkpoints by shard and size before it verifies them.
func PeekCheckpoint(signed string) (Checkpoint, error) {
	text, _, ok := strings.Cut(signed, "\n\n")
	if !ok || len(signed) > maxCheckpoint {
		return Checkpoint{}, fmt.Errorf("%w: not a signed note", ErrCheckpoint)
	}
	return ParseCheckpointText(text + "\n")
}

// ValidShard reports whether a name can stand in records and in the origin line
// of checkpoints.
func ValidShard(shard string) bool {
	for i := range len(shard) {
		if c := shard[i]; c <= ' ' || c >= 0x7f || c == '+' {
			return false
		}
	}
	return shard != "" && len(shard) <= 200
}
