package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/cmd/internal/target"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/evidencereader"
	"github.com/countersign-dev/countersign/storage"
)

// openLedger connects to the evidence.
func openLedger(ctx context.Context, t *target.Target) (evidencereader.Reader, error) {
	dsn, err := t.DSN()
	if err != nil {
		return evidencereader.Reader{}, err
	}
	db, err := storage.Open(ctx, dsn)
	if err != nil {
		return evidencereader.Reader{}, err
	}
	return evidencereader.Reader{DB: db, Stream: t.Stream, Space: subject.Space{Prefix: t.Prefix}}, nil
}

// evidenceOf finds the running system and opens its evidence. The caller closes
// the ledger's DB.
func evidenceOf(ctx context.Context, f target.Flags) (*target.Target, evidencereader.Reader, error) {
	t, err := f.Resolve()
	if err != nil {
		return nil, evidencereader.Reader{}, err
	}
	l, err := openLedger(ctx, t)
	return t, l, err
}

// checkpointKey is the public key to verify against: a file, the key itself, or
// the ready file's. The evidence cannot vouch for itself.
func checkpointKey(flag string, t *target.Target) (string, error) {
	if flag == "" && t != nil && t.ReadyInfo() != nil {
		flag = t.ReadyInfo().PublicKey
	}
	if flag == "" {
		return "", usageError{fmt.Errorf("no public key to verify against: give --key FILE (checkpoint.pub of the installation), or --ready-file FILE")}
	}
	if b, err := os.ReadFile(flag); err == nil {
		flag = string(b)
	} else if !strings.Contains(flag, "+") { // a key has plus signs, so this was meant to be a file
		return "", usageError{fmt.Errorf("reading the public key: %w", err)}
	}
	flag = strings.TrimSpace(flag)
	if _, err := signing.CheckpointVerifier(flag); err != nil {
		return "", usageError{fmt.Errorf("--key: %w", err)}
	}
	return flag, nil
}

func verifiers(key string) ([]note.Verifier, error) {
	v, err := signing.CheckpointVerifier(key)
	if err != nil {
		return nil, err
	}
	return []note.Verifier{v}, nil
}

// compactJSON writes one value a line.
func compactJSON(io stdio, v any) error {
	enc := json.NewEncoder(io.out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
