// Package browser drives a Chromium that is installed on this machine, over the
// DevTools protocol on a pipe: no port is opened and nothing is fetched. It
// prints pages and takes pictures of them.
package browser

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// ErrNotFound says that there is no Chromium here.
var ErrNotFound = errors.New("no Chromium was found: install chromium or google-chrome, or name the program with --chromium or COUNTERSIGN_CHROMIUM")

// ErrBrowser says that the browser did not do what it was asked for.
var ErrBrowser = errors.New("the browser failed")

// Find gives the program: the one that is named, or the first of the usual names
// on PATH.
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

// pageTimeout is how long a browser may take for a page.
const pageTimeout = 2 * time.Minute

// Browser is a running Chromium with one page. It is not for concurrent use.
type Browser struct {
	cmd     *exec.Cmd
	cancel  context.CancelFunc
	dir     string // its profile, removed at the end
	send    *os.File
	receive *bufio.Reader
	pipe    *os.File
	last    int
	session string
}

// Start starts the program. The caller must Close it.
func Start(ctx context.Context, program string) (b *Browser, err error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	dir, err := os.MkdirTemp("", "countersign-browser-*")
	if err != nil {
		cancel()
		return nil, err
	}
	b = &Browser{cancel: cancel, dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
			b = nil
		}
	}()
	theirIn, ourOut, err := os.Pipe()
	if err != nil {
		return b, err
	}
	defer theirIn.Close()
	b.send = ourOut
	ourIn, theirOut, err := os.Pipe()
	if err != nil {
		return b, err
	}
	defer theirOut.Close()
	b.pipe, b.receive = ourIn, bufio.NewReaderSize(ourIn, 1<<20)
	b.cmd = exec.CommandContext(ctx, program, browserArgs(dir)...)
	b.cmd.ExtraFiles = []*os.File{theirIn, theirOut} // file descriptors 3 and 4
	b.cmd.Stderr, b.cmd.Stdout = io.Discard, io.Discard
	b.cmd.Env = append(os.Environ(), "HOME="+dir)
	b.cmd.WaitDelay = 5 * time.Second
	if err = b.cmd.Start(); err != nil {
		b.cmd = nil
		return b, fmt.Errorf("%w: %s does not start: %w", ErrBrowser, program, err)
	}
	context.AfterFunc(ctx, func() { _ = ourIn.Close() }) // ends a read that waits
	return b, b.attachPage()
}

func browserArgs(dir string) []string {
	args := []string{"--headless", "--remote-debugging-pipe", "--user-data-dir=" + dir, "--disable-gpu", "--no-first-run", "--no-default-browser-check",
		"--disable-extensions", "--disable-background-networking", "--disable-dev-shm-usage", "--hide-scrollbars"}
	if os.Geteuid() == 0 { // its sandbox does not run as root; the page has no script and loads nothing
		args = append(args, "--no-sandbox", "--no-zygote")
	}
	return append(args, "about:blank")
}

// Close ends the browser.
func (b *Browser) Close() error {
	b.cancel()
	if b.cmd != nil {
		_ = b.cmd.Wait() // it was killed
	}
	for _, f := range []*os.File{b.send, b.pipe} {
		if f != nil {
			_ = f.Close()
		}
	}
	return os.RemoveAll(b.dir)
}

func (b *Browser) attachPage() error {
	var target struct{ TargetID string }
	if err := b.sendCommand("Target.createTarget", map[string]any{"url": "about:blank"}, &target); err != nil {
		return err
	}
	var attached struct{ SessionID string }
	if err := b.sendCommand("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached); err != nil {
		return err
	}
	b.session = attached.SessionID
	return b.sendCommand("Page.enable", nil, nil)
}

// message is a call, an answer to one, or an event.
type message struct {
	ID        int             `json:"id,omitempty"`
	SessionID string          `json:"sessionId,omitempty"`
	Method    string          `json:"method,omitempty"`
	Params    any             `json:"params,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Error     *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// sendCommand sends a command and waits for its answer; events in between are dropped.
func (b *Browser) sendCommand(method string, params map[string]any, into any) error {
	b.last++
	raw, err := json.Marshal(message{ID: b.last, SessionID: b.session, Method: method, Params: params})
	if err != nil {
		return err
	}
	if _, err := b.send.Write(append(raw, 0)); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrBrowser, method, err)
	}
	for {
		m, err := b.readMessage()
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrBrowser, method, err)
		}
		if m.ID != b.last {
			continue
		}
		if m.Error != nil {
			return fmt.Errorf("%w: %s: %.200s", ErrBrowser, method, m.Error.Message)
		}
		if into == nil {
			return nil
		}
		return json.Unmarshal(m.Result, into)
	}
}

func (b *Browser) readMessage() (m message, err error) {
	raw, err := b.receive.ReadBytes(0)
	if err != nil {
		return m, err
	}
	return m, json.Unmarshal(raw[:len(raw)-1], &m)
}

// Open loads a page and waits until it is there.
func (b *Browser) Open(url string) error {
	var nav struct{ ErrorText string }
	if err := b.sendCommand("Page.navigate", map[string]any{"url": url}, &nav); err != nil {
		return err
	}
	if nav.ErrorText != "" {
		return fmt.Errorf("%w: %.200s", ErrBrowser, nav.ErrorText)
	}
	var state struct{ Result struct{ Value string } }
	for state.Result.Value != "complete" {
		if err := b.sendCommand("Runtime.evaluate", map[string]any{"expression": "new Promise(r => document.readyState == 'complete' ? r('complete') : addEventListener('load', () => r('complete')))",
			"awaitPromise": true, "returnByValue": true}, &state); err != nil {
			return err
		}
	}
	return nil
}

// SetViewport sets how the page is looked at: the window's width, in CSS pixels, and
// the colours that the person prefers.
func (b *Browser) SetViewport(width, height int, dark bool) error {
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	if err := b.sendCommand("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, nil); err != nil {
		return err
	}
	return b.sendCommand("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// PageSize gives the width that the page takes, and its height.
func (b *Browser) PageSize() (width, height float64, err error) {
	var m struct {
		CSSContentSize struct{ Width, Height float64 } `json:"cssContentSize"`
	}
	err = b.sendCommand("Page.getLayoutMetrics", nil, &m)
	return m.CSSContentSize.Width, m.CSSContentSize.Height, err
}

// Screenshot takes a picture of the window, PNG.
func (b *Browser) Screenshot() ([]byte, error) {
	return b.base64Result("Page.captureScreenshot", map[string]any{"format": "png"})
}

// PDF prints the page on A4, with page numbers.
func (b *Browser) PDF() ([]byte, error) {
	return b.base64Result("Page.printToPDF", map[string]any{"paperWidth": 8.27, "paperHeight": 11.69, "preferCSSPageSize": true, "printBackground": true,
		"generateTaggedPDF": true, "displayHeaderFooter": true, "headerTemplate": "<span></span>",
		"footerTemplate": `<div style="font-size:7pt;width:100%;text-align:center"><span class="pageNumber"></span> / <span class="totalPages"></span></div>`})
}

func (b *Browser) base64Result(method string, params map[string]any) ([]byte, error) {
	var out struct{ Data string }
	if err := b.sendCommand(method, params, &out); err != nil {
		return nil, err
	}
	return base64.StdEncoding.DecodeString(out.Data)
}

// Evaluate runs an expression in the page and reads its value.
func (b *Browser) Evaluate(expression string, into any) error {
	var out struct {
		Result struct{ Value json.RawMessage }
	}
	if err := b.sendCommand("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true}, &out); err != nil {
		return err
	}
	return json.Unmarshal(out.Result.Value, into)
}
