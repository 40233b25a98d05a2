package system

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/countersign-dev/countersign/client"
	"github.com/countersign-dev/countersign/internal/atomicfile"
	"github.com/countersign-dev/countersign/internal/cli/ui"
)

// ReportOutages returns a function that prints once that the connection is lost, and once that it
// is back.
func ReportOutages(io ui.Stdio) func(error) {
	return func(err error) {
		if err == nil {
			fmt.Fprintln(io.Err, "countersign: there again; nothing was missed")
			return
		}
		fmt.Fprintf(io.Err, "countersign: waiting: %v\n", err)
	}
}

// ReadPosition reads a kept position; the zero position if there is no file.
func ReadPosition(path string) (at client.Position, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return at, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &at)
	}
	if err == nil && at.Log == "" {
		err = errors.New("it names no log")
	}
	if err != nil {
		return at, fmt.Errorf("%s holds no position: %w (move it away to begin anew)", path, err)
	}
	return at, nil
}

// WritePosition stores a position in a file.
func WritePosition(path string, at client.Position) error {
	text, err := json.Marshal(at)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(path, append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("keeping the position: %w", err)
	}
	return nil
}
