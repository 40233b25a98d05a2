package export

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"github.com/countersign-dev/countersign/compliance/browser"
	"github.com/countersign-dev/countersign/compliance/bundle"
	"github.com/countersign-dev/countersign/internal/atomicfile"
)

// printToPDF prints the report of a bundle that was just written.
func printToPDF(ctx context.Context, program, from, out string) (err error) {
	page, err := reportOf(from)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "countersign-report-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	file := filepath.Join(dir, bundle.MemberReport)
	if err := os.WriteFile(file, page, 0o600); err != nil {
		return err
	}
	pdf, err := browser.PDF(ctx, program, (&url.URL{Scheme: "file", Path: file}).String())
	if err != nil {
		return err
	}
	return atomicfile.Write(out, pdf, 0o600)
}

func reportOf(from string) ([]byte, error) {
	f, err := os.Open(from)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	page := bundle.File(f, info.Size(), bundle.MemberReport)
	if page == nil {
		return nil, fmt.Errorf("%s has no %s", from, bundle.MemberReport)
	}
	return page, nil
}
