package engine

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/internal/filelock"
)

// Fetch ensures that the pinned engine is in cacheDir (empty: DefaultCacheDir) and
// returns the path of its library. It verifies and uses a cached library. Otherwise it fetches
// the package with `npm pack` from the registry that npm is configured for (178 MB), checks
// its pinned integrity, unpacks it (566 MB), checks the digest and moves it into place in one
// step. Processes that fetch at the same time wait for each other.
func Fetch(ctx context.Context, cacheDir string, progress func(stage string, done, total int64)) (string, error) {
	lib, err := engineIn(cacheDir)
	if err != nil {
		return "", err
	}
	f := fetcher{lib, libraryIntegrity, progress}
	if err := f.library.verify(progress); !errors.Is(err, fs.ErrNotExist) {
		return f.library.path, err
	}
	if err := f.fetch(ctx); err != nil {
		return "", err
	}
	return f.library.path, nil
}

// cachedEngine is Fetch without fetching; it returns ErrNotFetched instead.
func cachedEngine(cacheDir string, progress func(stage string, done, total int64)) (string, error) {
	lib, err := engineIn(cacheDir)
	if err != nil {
		return "", err
	}
	if err := lib.verify(progress); errors.Is(err, fs.ErrNotExist) {
		return "", ErrNotFetched
	} else if err != nil {
		return "", err
	}
	return lib.path, nil
}

// engineIn is the pinned library in a cache directory.
func engineIn(cacheDir string) (lib library, err error) {
	if err := checkPlatform(); err != nil {
		return lib, err
	}
	if cacheDir == "" {
		if cacheDir, err = DefaultCacheDir(); err != nil {
			return lib, err
		}
	}
	return pinnedLibrary(cacheDir), nil
}

// fetcher fetches one library into the cache.
type fetcher struct {
	library   library
	integrity string // of the package, in npm's form
	progress  progressFunc
}

func (f fetcher) fetch(ctx context.Context) error {
	dir := filepath.Dir(f.library.path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("%w: %w", ErrFetch, err)
	}
	lock, err := filelock.Wait(ctx, filepath.Join(dir, "fetch.lock"), func() {
		f.progress.report("waiting for another process that fetches the ClickHouse engine", 0, 0)
	})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFetch, err)
	}
	defer lock.Close()
	if err := f.library.verify(f.progress); !errors.Is(err, fs.ErrNotExist) {
		return err // another process fetched it meanwhile
	}
	removeUnfinished(dir)
	work, err := os.MkdirTemp(dir, workPattern)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFetch, err)
	}
	defer os.RemoveAll(work)
	tarball, err := f.runNPMPack(ctx, work)
	if err != nil {
		return err
	}
	return f.installLibrary(tarball, work)
}

// workPattern is the name of the directory that one fetch works in.
const workPattern = "fetch-*"

// removeUnfinished removes what processes that were killed during a fetch left behind. The caller
// holds the lock: no other process works there.
func removeUnfinished(dir string) {
	left, _ := filepath.Glob(filepath.Join(dir, workPattern))
	for _, path := range left {
		if info, err := os.Lstat(path); err == nil && info.IsDir() {
			_ = os.RemoveAll(path)
		}
	}
}

// runNPMPack runs npm and returns the path of the package. npm's cache is in the work
// directory, so that progress can be measured and nothing of it is left behind.
func (f fetcher) runNPMPack(ctx context.Context, work string) (string, error) {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return "", fmt.Errorf("%w: npm is not on PATH: install Node.js (which brings npm) or the clickhouse program, %s", ErrFetch, clickHouseUnavailable)
	}
	cmd := exec.CommandContext(ctx, npm, "pack", libraryPackage+"@"+LibraryVersion, "--pack-destination", work, "--ignore-scripts", "--loglevel=error")
	cmd.Dir = work
	cmd.Env = append(os.Environ(), "npm_config_cache="+filepath.Join(work, "npm"), "npm_config_update_notifier=false")
	cmd.WaitDelay = time.Second
	stop := f.watchDownload(work)
	out, err := cmd.CombinedOutput()
	stop()
	if err != nil {
		if ctx.Err() != nil {
			return "", fmt.Errorf("%w: %w", ErrFetch, ctx.Err())
		}
		return "", fmt.Errorf("%w: npm pack %s@%s failed (%w): %s; check the network and npm's registry (npm config get registry), %s",
			ErrFetch, libraryPackage, LibraryVersion, err, firstLines(string(out), 3), clickHouseUnavailable)
	}
	found, _ := filepath.Glob(filepath.Join(work, "*.tgz"))
	if len(found) != 1 {
		return "", fmt.Errorf("%w: npm pack left %d archives instead of one", ErrFetch, len(found))
	}
	return found[0], nil
}

// watchDownload reports how much has arrived in dir until stop is called.
func (f fetcher) watchDownload(dir string) (stop func()) {
	const stage = "fetching the ClickHouse engine"
	f.progress.report(stage, 0, tarballSize)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				f.progress.report(stage, min(treeSize(dir), tarballSize), tarballSize)
			}
		}
	}()
	return func() { close(done); <-ended }
}

// treeSize adds up the sizes of the files below dir; it ignores files that vanish meanwhile.
func treeSize(dir string) (sum int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		if info, err := d.Info(); err == nil {
			sum += info.Size()
		}
		return nil
	})
	return sum
}

// installLibrary checks the package, unpacks the library and moves it into place.
func (f fetcher) installLibrary(tarball, work string) error {
	if err := checkIntegrity(tarball, f.integrity); err != nil {
		return err
	}
	fresh := library{filepath.Join(work, "libchdb.so"), f.library.sha256}
	sum, err := extractMember(tarball, libraryMember, fresh.path, f.progress)
	if err != nil {
		return fmt.Errorf("%w: unpacking %s: %w", ErrFetch, filepath.Base(tarball), err)
	}
	if sum != fresh.sha256 {
		return fmt.Errorf("%w: the fetched library has SHA-256 %s, not %s", ErrDigest, sum, fresh.sha256)
	}
	if err := os.Rename(fresh.path, f.library.path); err != nil {
		return fmt.Errorf("%w: %w", ErrFetch, err)
	}
	info, err := os.Stat(f.library.path)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFetch, err)
	}
	return f.library.writeStamp(verifiedStamp{info.Size(), info.ModTime().UnixNano(), sum})
}

// checkIntegrity compares a file with a Subresource Integrity string (sha512).
func checkIntegrity(path, integrity string) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFetch, err)
	}
	defer file.Close()
	h := sha512.New()
	if _, err := io.Copy(h, file); err != nil {
		return fmt.Errorf("%w: %w", ErrFetch, err)
	}
	if got := "sha512-" + base64.StdEncoding.EncodeToString(h.Sum(nil)); got != integrity {
		return fmt.Errorf("%w: the fetched package has integrity %s, not %s", ErrDigest, got, integrity)
	}
	return nil
}

// extractMember writes one member of a .tgz to path, durably, and returns its SHA-256.
func extractMember(tarball, member, path string, progress progressFunc) (string, error) {
	file, err := os.Open(tarball)
	if err != nil {
		return "", err
	}
	defer file.Close()
	z, err := gzip.NewReader(file)
	if err != nil {
		return "", err
	}
	for t := tar.NewReader(z); ; {
		h, err := t.Next()
		if err != nil {
			return "", fmt.Errorf("looking for %s: %w", member, err)
		}
		if h.Name == member {
			return writeHashed(path, progress.wrapReader("unpacking the ClickHouse engine", h.Size, t))
		}
	}
}

func writeHashed(path string, r io.Reader) (string, error) {
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return "", err
	}
	defer out.Close()
	h := sha256.New()
	if _, err := io.Copy(io.MultiWriter(out, h), io.LimitReader(r, librarySize+1)); err != nil {
		return "", err
	}
	if err := out.Sync(); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// firstLines returns the first n lines of a program's output, on one line.
func firstLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[:min(n, len(lines))], " | ")
}

// lastLines returns the last n lines of a program's output, on one line.
func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], " | ")
}

// progressFunc reports the progress of a stage; it may be nil. done and total are bytes; total
// is 0 if it is not known.
type progressFunc func(stage string, done, total int64)

func (p progressFunc) report(stage string, done, total int64) {
	if p != nil {
		p(stage, done, total)
	}
}

// wrapReader reports progress on reading r, at most once per progressStep bytes.
func (p progressFunc) wrapReader(stage string, total int64, r io.Reader) io.Reader {
	return &progressReader{r: r, report: p, stage: stage, total: total}
}

// progressStep is the number of bytes between reports; it keeps their cost small.
const progressStep = 4 << 20

type progressReader struct {
	r                     io.Reader
	report                progressFunc
	stage                 string
	done, reported, total int64
}

func (p *progressReader) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	p.done += int64(n)
	if p.done-p.reported >= progressStep || (err == io.EOF && p.done != p.reported) {
		p.reported = p.done
		p.report.report(p.stage, p.done, p.total)
	}
	return n, err
}
