package tree

import (
	"fmt"
	"strings"

	"golang.org/x/mod/sumdb/note"
)

// intentOrigin is the first line of an intent. It does not begin with originPrefix, so an
// intent cannot be mistaken for a checkpoint.
const intentOrigin = "countersign.dev intent"

// SignIntent signs the tree that the next batch will make, and returns the signed note. The
// auditor makes an intent before it inserts the rows, so the tree may never come to be
// stored. An intent proves one thing: rows after the newest checkpoint that give the root of
// an intent are rows that an auditor with this key meant to insert.
func SignIntent(signer note.Signer, c Checkpoint) (string, error) {
	if !c.isValid() || len(c.Extensions) > 0 {
		return "", fmt.Errorf("%w: intent of shard %.80q, size %d", ErrCheckpoint, c.Shard, c.Size)
	}
	signed, err := note.Sign(&note.Note{Text: c.intentText()}, signer)
	if err != nil {
		return "", fmt.Errorf("signing an intent: %w", err)
	}
	return string(signed), nil
}

// intentText is the checkpoint's text after the line intentOrigin.
func (c Checkpoint) intentText() string { return intentOrigin + "\n" + c.Text() }

// OpenIntent checks that a note is an intent signed by one of the known keys, and returns
// the tree that it names.
func OpenIntent(text string, known note.Verifiers) (Checkpoint, error) {
	if len(text) > maxCheckpoint {
		return Checkpoint{}, fmt.Errorf("%w: %d bytes", ErrCheckpoint, len(text))
	}
	n, err := note.Open([]byte(text), known)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("%w: %s", ErrCheckpoint, noteErrorText(err))
	}
	rest, ours := strings.CutPrefix(n.Text, intentOrigin+"\n")
	if !ours {
		return Checkpoint{}, fmt.Errorf("%w: not an intent", ErrCheckpoint)
	}
	return ParseCheckpointText(rest)
}
