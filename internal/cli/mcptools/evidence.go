package mcptools

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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
	case out.Len() == 0:
		return "Nothing is on record.", nil
	case out.Len() > maxEvidence:
		return "", fmt.Errorf("the answer has %d bytes, more than %d: ask for less", out.Len(), maxEvidence)
	}
	return out.String(), nil
}
