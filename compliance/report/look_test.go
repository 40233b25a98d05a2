package report

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/countersign-dev/countersign/compliance/browser"
	"github.com/countersign-dev/countersign/internal/testkit"
)

func program(t *testing.T) string {
	t.Helper()
	program, err := browser.Find(os.Getenv("COUNTERSIGN_CHROMIUM"))
	if errors.Is(err, browser.ErrNotFound) {
		t.Skip(err)
	}
	ok(t, err)
	return program
}

// chromium starts a browser, or skips the test.
func chromium(t *testing.T) context.Context {
	t.Helper()
	options := []chromedp.ExecAllocatorOption{chromedp.ExecPath(program(t))}
	for _, arg := range browser.Args(t.TempDir()) {
		name, value, has := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		if has {
			options = append(options, chromedp.Flag(name, value))
		} else {
			options = append(options, chromedp.Flag(name, true))
		}
	}
	ctx, stop := chromedp.NewExecAllocator(t.Context(), options...)
	ctx, leave := chromedp.NewContext(ctx)
	t.Cleanup(func() { _ = chromedp.Cancel(ctx); leave(); stop() })
	return ctx
}

func write(t *testing.T, page string) (url string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report.html")
	if err := os.WriteFile(file, []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	return "file://" + file
}

// tooLow lists texts with too little contrast to their background (WCAG 2.2: 4.5 to 1).
const tooLow = `(() => {
 const lum = c => { const v = c.match(/[\d.]+/g).slice(0,3).map(x => x/255).map(x => x <= 0.03928 ? x/12.92 : ((x+0.055)/1.055)**2.4); return 0.2126*v[0]+0.7152*v[1]+0.0722*v[2] };
 const back = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (!/, 0\)$|transparent/.test(c)) return c } return 'rgb(255,255,255)' };
 const bad = [];
 for (const e of document.querySelectorAll('body *')) {
  if (![...e.childNodes].some(n => n.nodeType == 3 && n.data.trim())) continue;
  const a = lum(getComputedStyle(e).color), b = lum(back(e)), r = (Math.max(a,b)+.05)/(Math.min(a,b)+.05);
  if (r < 4.5) bad.push(e.tagName + '.' + e.className + ' ' + r.toFixed(2));
 }
 return [...new Set(bad)].join(', ');
})()`

const hostileText = "</pre><script>alert(1)</script>\u202E\x1b[2J\r\t" + "WWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWW"

// Pages are looked at in a browser at three widths, in both colour schemes:
// nothing runs out of the window, every text can be read. With LOOK set to a
// directory the pictures are kept there, to be looked at by people.
func TestPageInABrowser(t *testing.T) {
	b := chromium(t)
	for name, page := range map[string]string{"sample": renderWith(t, source(), sample(t), whatDecided("")), "hostile": renderWith(t, source(), hostile(t), whatDecided(hostileText)), "empty": render(t, source(), nil)} {
		url := write(t, page)
		for _, width := range []int{360, 800, 1400} {
			for _, dark := range []bool{false, true} {
				id := fmt.Sprintf("%s-%d-%s", name, width, map[bool]string{false: "light", true: "dark"}[dark])
				ok(t, chromedp.Do(b, chromedp.EmulateViewport(int64(width), 900), preferScheme(dark), chromedp.Navigate(url)))
				over, err := chromedp.Run(b, chromedp.Evaluate[float64]("document.documentElement.scrollWidth - innerWidth"))
				ok(t, err)
				if over > 0 {
					t.Errorf("%s: the page is %.0f pixels wider than the window", id, over)
				}
				low, err := chromedp.Run(b, chromedp.Evaluate[string](tooLow))
				ok(t, err)
				if low != "" {
					t.Errorf("%s: too little contrast: %s", id, low)
				}
				keep(t, b, id)
			}
		}
	}
}

// preferScheme sets the colour scheme that the reader prefers.
func preferScheme(dark bool) chromedp.Action[chromedp.Void] {
	scheme := map[bool]string{false: "light", true: "dark"}[dark]
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		return err
	})
}

func keep(t *testing.T, b context.Context, id string) {
	t.Helper()
	dir := os.Getenv("LOOK")
	if dir == "" {
		return
	}
	png, err := chromedp.Run(b, chromedp.FullScreenshot(100))
	ok(t, err)
	ok(t, os.WriteFile(filepath.Join(dir, id+".png"), png, 0o600))
}

var ok = testkit.OK

func TestPDF(t *testing.T) {
	pdf, err := browser.PDF(t.Context(), program(t), write(t, renderWith(t, source(), sample(t), whatDecided(""))))
	ok(t, err)
	if len(pdf) < 10_000 || string(pdf[:5]) != "%PDF-" {
		t.Errorf("%d bytes", len(pdf))
	}
	if dir := os.Getenv("LOOK"); dir != "" {
		ok(t, os.WriteFile(filepath.Join(dir, "sample.pdf"), pdf, 0o600))
	}
}
