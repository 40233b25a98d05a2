package mcptools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

const (
	maxEvidence  = 256 << 10 // bytes that an agent is given at once
	evidenceTime = time.Minute
)

// evidence reads evidence with the commands of countersign: they verify what they print.
type evidence struct{ readyFile string }

// run runs a command that only reads and returns what it prints.
func (e evidence) run(ctx context.Context, command string, args ...string) (string, error) {
	if e.readyFile == "" {
		return "", errors.New("evidence needs a ready file: start countersign mcp tools with --ready-file FILE")
	}
	ctx, cancel := context.WithTimeout(ctx, evidenceTime)
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	words := append(strings.Fields(command), "--json", "--ready-file="+e.readyFile)
	cmd := exec.CommandContext(ctx, self, append(words, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case err != nil && !errors.As(err, &exit):
		return "", err
	case exit != nil: // what was printed before may be a part only
		return "", fmt.Errorf("%s: %w: %s", command, exit, bytes.TrimSpace(errs.Bytes()))
	case out.Len() > maxEvidence:
		return "", fmt.Errorf("the answer has %d bytes, more than %d: ask for less", out.Len(), maxEvidence)
	}
	return out.String(), nil
}

// recordsOf is what a command prints, JSON values one behind the other, as one object.
func recordsOf(text string) (json.RawMessage, error) {
	records, values := []json.RawMessage{}, json.NewDecoder(strings.NewReader(text))
	for {
		var record json.RawMessage
		err := values.Decode(&record)
		if errors.Is(err, io.EOF) {
			return json.Marshal(map[string]any{"records": records})
		}
		if err != nil {
			return nil, errors.New("the records cannot be read")
		}
		records = append(records, record)
	}
}
