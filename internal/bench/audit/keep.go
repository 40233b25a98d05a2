package audit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/internal/cli/ui"
)

// keptFile, in a directory that is kept, holds how many messages were audited there.
const keptFile = "bench-audit.messages"

// checkKept returns an error unless a directory to keep is new, empty or kept by an earlier run.
func checkKept(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, keptFile)); err != nil {
		return ui.UsageError{Err: fmt.Errorf("%s is not empty, and no finished benchmark either: remove it or name another directory", dir)}
	}
	return nil
}

// kept is how many messages an earlier run audited in this directory, 0 without one.
func (b *auditBench) kept(ctx context.Context) (int, error) {
	if b.keptIn == "" {
		return 0, nil
	}
	text, err := os.ReadFile(filepath.Join(b.keptIn, keptFile))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if b.messages, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
		return 0, fmt.Errorf("%s: %w", keptFile, err)
	}
	base, _, err := b.counted(ctx)
	if err == nil && (base != b.messages || base == 0) {
		err = fmt.Errorf("%s holds %d records of %d messages: remove it", b.keptIn, base, b.messages)
	}
	return base, err
}

// keep records that the first part is done.
func (b *auditBench) keep(ctx context.Context) error {
	base, _, err := b.counted(ctx)
	if err != nil {
		return err
	}
	if base != b.messages {
		return fmt.Errorf("there are %d records of %d messages", base, b.messages)
	}
	if b.keptIn == "" {
		return nil
	}
	return os.WriteFile(filepath.Join(b.keptIn, keptFile), []byte(strconv.Itoa(base)+"\n"), 0o600)
}

// counted counts the auditor's records and the complete copies of them. An incomplete copy is an
// error: it cannot be continued.
func (b *auditBench) counted(ctx context.Context) (base, copies int, err error) {
	var own, copied, last uint64
	if err := b.conn.QueryRow(ctx, fmt.Sprintf("SELECT countIf(shard != '%s'), countIf(shard = '%[1]s'), maxIf(seq, shard = '%[1]s') FROM evidence", scaleShard)).Scan(&own, &copied, &last); err != nil {
		return 0, 0, err
	}
	if own == 0 {
		return 0, 0, nil
	}
	if copied != last || copied%own != 0 {
		return 0, 0, fmt.Errorf("the directory that is kept holds %d rows up to sequence %d, which is no whole number of copies: remove it", copied, last)
	}
	return int(own), int(copied / own), nil
}
