package verify

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/internal/atomicfile"
	"github.com/countersign-dev/countersign/internal/filelock"
)

// witnessMemory is the last checkpoint that a witness signed of every log, in a file that one
// process at a time may use. A witness depends on it: without it, two histories could be
// presented to it.
type witnessMemory struct {
	path string
	lock *os.File
	logs map[string]string // the signed checkpoints, by shard
}

// openMemory reads the memory and locks it until it is closed.
func openMemory(path string) (*witnessMemory, error) {
	lock, err := filelock.Try(path + ".lock")
	if errors.Is(err, filelock.ErrHeld) {
		return nil, fmt.Errorf("%s is in use: this witness is signing already", path)
	}
	if err != nil {
		return nil, fmt.Errorf("--state: %w", err)
	}
	m := &witnessMemory{path: path, lock: lock, logs: map[string]string{}}
	if err := m.read(); err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

func (m *witnessMemory) close() { _ = m.lock.Close() }

func (m *witnessMemory) read() error {
	b, err := os.ReadFile(m.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // nothing signed yet
	}
	if err != nil {
		return fmt.Errorf("--state: %w", err)
	}
	broken := fmt.Errorf("%s is not what a witness wrote; restore it, for a witness must not forget", m.path)
	rest, ok := strings.CutPrefix(string(b), formatState(nil))
	if !ok {
		return broken
	}
	for _, text := range splitNotes(rest) {
		cp, err := tree.PeekCheckpoint(text)
		if err != nil || m.logs[cp.Shard] != "" {
			return broken
		}
		m.logs[cp.Shard] = text
	}
	return nil
}

// splitNotes splits signed notes that are separated by an empty line. A note itself contains one
// empty line.
func splitNotes(text string) (notes []string) {
	parts := strings.Split(text, "\n\n")
	for i := 0; i+1 < len(parts); i += 2 {
		notes = append(notes, parts[i]+"\n\n"+strings.TrimSuffix(parts[i+1], "\n")+"\n")
	}
	if len(parts)%2 == 1 && parts[len(parts)-1] != "" {
		notes = append(notes, parts[len(parts)-1]) // truncated: not a checkpoint
	}
	return notes
}

// last is the last signed checkpoint of a log, nil without one.
func (m *witnessMemory) last(shard string) *tree.Checkpoint {
	cp, err := tree.PeekCheckpoint(m.logs[shard])
	if err != nil {
		return nil
	}
	return &cp
}

// otherOf is another remembered incarnation of the log of a shard, "" without one.
func (m *witnessMemory) otherOf(shard string) string {
	stream, _, _ := strings.Cut(shard, "@")
	for _, other := range slices.Sorted(maps.Keys(m.logs)) {
		if of, _, _ := strings.Cut(other, "@"); of == stream && other != shard {
			return other
		}
	}
	return ""
}

// remember stores a signed checkpoint. It is on disk when remember returns nil, and nothing is
// remembered if it returns an error: what only the process knew, another one would not know.
func (m *witnessMemory) remember(cp tree.Checkpoint, signed string) error {
	logs := maps.Clone(m.logs)
	logs[cp.Shard] = signed
	var notes []string
	for _, shard := range slices.Sorted(maps.Keys(logs)) {
		notes = append(notes, logs[shard])
	}
	if err := atomicfile.Write(m.path, []byte(formatState(notes)), 0o600); err != nil {
		return fmt.Errorf("nothing was signed, because it could not be remembered: %w", err)
	}
	m.logs = logs
	return nil
}
