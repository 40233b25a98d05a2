package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/countersign-dev/countersign/internal/atomicfile"
)

// The pinned engine. The version is a semver pre-release, so only the exact version selects
// it; other builds have no native listener.
const (
	// LibraryVersion is the version of the npm package that holds the engine.
	LibraryVersion = "26.7.3-stable.1"
	// LibrarySHA256 is the digest of libchdb.so. The embedded engine also relies
	// on the layout of exactly this build (storage/engine/internal/chdb).
	LibrarySHA256 = "36ad4e999882821ef13cf2d0f52c93f48e6ee1b4498b35a201c23ce4b8d15bf5"

	libraryPackage   = "@chdb/lib-linux-x64-gnu"
	libraryIntegrity = "sha512-XP97mMqnc5tZpKQywR8N7cLTsHNiTmHr30pC5mzo3jWmukjKn2IBa60c2B/gWUNcuFjOMjWoorQICCqBVj5wpw=="
	libraryMember    = "package/libchdb.so"
	librarySize      = 566_330_096
	tarballSize      = 177_817_999
)

// glibcLoader is the dynamic loader that the engine's library needs.
const glibcLoader = "/lib64/ld-linux-x86-64.so.2"

// library is a shared library in the cache: its path and its expected digest.
type library struct {
	path   string
	sha256 string
}

// pinnedLibrary is the engine's library below cacheDir.
func pinnedLibrary(cacheDir string) library {
	return library{filepath.Join(cacheDir, "libchdb", LibraryVersion, "libchdb.so"), LibrarySHA256}
}

// DefaultCacheDir is the default directory in which Fetch and Start keep the
// engine: "countersign" in the user's cache directory.
func DefaultCacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no cache directory for the ClickHouse engine (%w): set HOME or XDG_CACHE_HOME", err)
	}
	return filepath.Join(dir, "countersign"), nil
}

// verifiedStamp records that a file with this size and modification time had this digest.
type verifiedStamp struct {
	Size    int64  `json:"size"`
	MTimeNS int64  `json:"mtime_ns"`
	SHA256  string `json:"sha256"`
}

func (l library) stampPath() string { return l.path + ".verified" }

// verify checks the cached file. It returns fs.ErrNotExist if there is none.
//
// It hashes the whole file on first use and when its size or modification time has changed;
// otherwise it trusts the stamp beside the file. Hashing 566 MB at every start would protect
// only against an attacker that can write to this user's cache directory and reset the time
// stamp; such an attacker could also replace the stamp, this program or its data. The stamp
// still detects the faults that do occur: a file that is cut short, damaged in transit or of
// another version.
func (l library) verify(progress progressFunc) error {
	info, err := os.Stat(l.path)
	if err != nil {
		return err
	}
	want := verifiedStamp{info.Size(), info.ModTime().UnixNano(), l.sha256}
	if l.readStamp() == want {
		return nil
	}
	sum, err := hashFile(l.path, info.Size(), progress)
	if err != nil {
		return err
	}
	if sum != l.sha256 {
		return fmt.Errorf("%w: %s has SHA-256 %s, not %s; remove the file and start again to fetch it anew", ErrDigest, l.path, sum, l.sha256)
	}
	return l.writeStamp(want)
}

func (l library) readStamp() verifiedStamp {
	var s verifiedStamp
	b, err := os.ReadFile(l.stampPath())
	if err != nil || json.Unmarshal(b, &s) != nil {
		return verifiedStamp{}
	}
	return s
}

// writeStamp stores the result of a verification. A cache that cannot be written to (one that
// several users share, say) is no error: the file is then hashed at every start.
func (l library) writeStamp(s verifiedStamp) error {
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(l.stampPath(), b, 0o644); err != nil && !errors.Is(err, os.ErrPermission) {
		return err
	}
	return nil
}

func hashFile(path string, size int64, progress progressFunc) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, progress.wrapReader("verifying the ClickHouse engine", size, f)); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// checkPlatform returns an error if the embedded engine cannot run on this machine.
func checkPlatform() error {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return fmt.Errorf("%w, and this is %s/%s: install the clickhouse program, %s", ErrPlatform, runtime.GOOS, runtime.GOARCH, clickHouseUnavailable)
	}
	if _, err := os.Stat(glibcLoader); err != nil {
		return fmt.Errorf("%w, and %s is missing: install glibc or the clickhouse program, %s", ErrPlatform, glibcLoader, clickHouseUnavailable)
	}
	return nil
}
