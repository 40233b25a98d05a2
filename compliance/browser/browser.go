// Package browser prints pages with a Chromium that is installed on this machine. The export
// command uses it for reports as PDF. It opens no port and downloads nothing. It does not render
// pages itself. Begin with Find and PDF.
package browser

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// ErrNotFound says that no Chromium was found.
var ErrNotFound = errors.New("no Chromium was found: install chromium or google-chrome, or name the program with --chromium or COUNTERSIGN_CHROMIUM")

// ErrBrowser says that the browser did not do what was asked.
var ErrBrowser = errors.New("the browser failed")

// Find returns the path of the program: the named one, or the first of the usual names on PATH.
func Find(named string) (string, error) {
	if named != "" {
		path, err := exec.LookPath(named)
		if err != nil {
			return "", fmt.Errorf("the named Chromium: %w", err)
		}
		return path, nil
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome-headless-shell", "headless_shell", "microsoft-edge"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", ErrNotFound
}

// printTimeout bounds the life of a browser.
const printTimeout = 2 * time.Minute

// PDF prints a page on the paper that its style sheet asks for.
func PDF(ctx context.Context, program, url string) (pdf []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, printTimeout)
	defer cancel()
	dir, err := os.MkdirTemp("", "countersign-browser-*")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	file := filepath.Join(dir, "page.pdf")
	cmd := exec.CommandContext(ctx, program, append(Args(dir), "--no-pdf-header-footer", "--print-to-pdf="+file, url)...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.Env = append(os.Environ(), "HOME="+dir)
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%w: %s: %w: %.400q", ErrBrowser, program, err, output.Bytes())
	}
	if pdf, err = os.ReadFile(file); err != nil {
		return nil, fmt.Errorf("%w: %s printed nothing: %.400q", ErrBrowser, program, output.Bytes())
	}
	return pdf, nil
}

// Args are the arguments of a browser without a window. dir is the directory of its profile.
func Args(dir string) []string {
	args := []string{"--headless", "--user-data-dir=" + dir, "--disable-gpu", "--no-first-run", "--no-default-browser-check",
		"--disable-extensions", "--disable-background-networking", "--disable-dev-shm-usage", "--hide-scrollbars"}
	if os.Geteuid() == 0 { // the sandbox does not run as root; the page has no script and loads nothing
		args = append(args, "--no-sandbox", "--no-zygote")
	}
	return args
}
