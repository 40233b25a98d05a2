package engine

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func sha256Hex(b []byte) string { s := sha256.Sum256(b); return hex.EncodeToString(s[:]) }

// cachedFile is a cache with content in the library's place.
func cachedFile(t *testing.T, content, digestOf string) library {
	t.Helper()
	l := library{filepath.Join(t.TempDir(), "libchdb.so"), sha256Hex([]byte(digestOf))}
	if err := os.WriteFile(l.path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return l
}

func TestVerifyLibrary(t *testing.T) {
	l := cachedFile(t, "engine", "engine")
	hashed := 0
	progress := func(string, int64, int64) { hashed++ }
	for i, want := range []int{1, 1} { // hashed on first use, not again
		if err := l.verify(progress); err != nil {
			t.Fatal(err)
		}
		if hashed != want {
			t.Errorf("after check %d: hashed %d times, want %d", i+1, hashed, want)
		}
	}
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(l.path, later, later); err != nil {
		t.Fatal(err)
	}
	if err := l.verify(progress); err != nil || hashed != 2 {
		t.Errorf("after a touch: hashed %d times (%v), want 2", hashed, err)
	}
	if err := os.WriteFile(l.path, []byte("enginE"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := l.verify(nil); !errors.Is(err, ErrDigest) || !strings.Contains(err.Error(), l.path) {
		t.Errorf("changed content: %v", err)
	}
	other := l
	other.sha256 = sha256Hex([]byte("another version"))
	if err := other.verify(nil); !errors.Is(err, ErrDigest) {
		t.Errorf("another version: %v", err)
	}
	if err := (library{filepath.Join(t.TempDir(), "none"), ""}).verify(nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

func TestEngineRefusesAForeignLibrary(t *testing.T) {
	if checkPlatform() != nil {
		t.Skip(checkPlatform())
	}
	cache := t.TempDir()
	l := pinnedLibrary(cache)
	if err := os.MkdirAll(filepath.Dir(l.path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(l.path, []byte("not the engine"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := Start(t.Context(), Options{DataDir: t.TempDir(), CacheDir: cache, Embedded: true})
	if !errors.Is(err, ErrDigest) || !strings.Contains(err.Error(), "remove the file") {
		t.Errorf("error %v, want ErrDigest and the way out", err)
	}
}

// packageOf makes a .tgz as npm does, and its integrity.
func packageOf(t *testing.T, member, content string) (path, integrity string) {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, m := range [][2]string{{"package/package.json", "{}"}, {member, content}} {
		if err := w.WriteHeader(&tar.Header{Name: m[0], Mode: 0o644, Size: int64(len(m[1]))}); err != nil {
			t.Fatal(err)
		}
		_, _ = w.Write([]byte(m[1]))
	}
	w.Close()
	z.Close()
	sum := sha512.Sum512(b.Bytes())
	path = filepath.Join(t.TempDir(), "package.tgz")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, "sha512-" + base64.StdEncoding.EncodeToString(sum[:])
}

// fakeNPM puts a program called npm first on PATH. In it $4 is where to put packages.
func fakeNPM(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "npm"), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
}

func TestFetch(t *testing.T) {
	good, integrity := packageOf(t, libraryMember, "engine")
	empty, emptyIntegrity := packageOf(t, "package/other", "engine")
	for _, c := range []struct {
		name, script, integrity, content string
		want                             error
		text                             string
	}{
		{"good", "cp " + good + " $4/", integrity, "engine", nil, ""},
		{"another package", "cp " + good + " $4/", emptyIntegrity, "engine", ErrDigest, "integrity"},
		{"another library", "cp " + good + " $4/", integrity, "another", ErrDigest, "SHA-256"},
		{"no library in it", "cp " + empty + " $4/", emptyIntegrity, "engine", ErrFetch, libraryMember},
		{"npm fails", "echo npm error network >&2; exit 1", integrity, "engine", ErrFetch, "npm error network"},
		{"npm does nothing", "exit 0", integrity, "engine", ErrFetch, "0 archives"},
	} {
		t.Run(c.name, func(t *testing.T) {
			fakeNPM(t, c.script)
			l := library{filepath.Join(t.TempDir(), "v", "libchdb.so"), sha256Hex([]byte(c.content))}
			if err := os.MkdirAll(filepath.Join(filepath.Dir(l.path), "fetch-killed", "npm"), 0o755); err != nil {
				t.Fatal(err)
			}
			err := fetcher{l, c.integrity, nil}.fetch(t.Context())
			if !errors.Is(err, c.want) || (c.want != nil && !strings.Contains(err.Error(), c.text)) {
				t.Fatalf("error %v, want %v with %q", err, c.want, c.text)
			}
			left, _ := filepath.Glob(filepath.Join(filepath.Dir(l.path), "fetch-*"))
			if len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
			if c.want != nil {
				if _, err := os.Stat(l.path); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("a failed fetch left a library: %v", err)
				}
				return
			}
			if b, err := os.ReadFile(l.path); string(b) != "engine" || l.readStamp() == (verifiedStamp{}) {
				t.Errorf("cached %q (%v), stamp %+v", b, err, l.readStamp())
			}
		})
	}
}

func TestFetchWithoutNPM(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	l := library{filepath.Join(t.TempDir(), "libchdb.so"), "x"}
	err := fetcher{l, "", nil}.fetch(t.Context())
	if !errors.Is(err, ErrFetch) || !strings.Contains(err.Error(), "npm is not on PATH") || !strings.Contains(err.Error(), "--clickhouse") {
		t.Errorf("error %v", err)
	}
}

func TestFetchIsCancelled(t *testing.T) {
	started := filepath.Join(t.TempDir(), "started")
	fakeNPM(t, "touch "+started+"; exec sleep 600")
	ctx, cancel := context.WithCancel(t.Context())
	var fetching sync.WaitGroup
	var err error
	fetching.Go(func() {
		err = fetcher{library{filepath.Join(t.TempDir(), "libchdb.so"), "x"}, "", nil}.fetch(ctx)
	})
	for {
		if _, err := os.Stat(started); err == nil {
			break
		}
		time.Sleep(time.Millisecond) // polling; npm is another process
	}
	cancel()
	fetching.Wait()
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestFetchersWaitForEachOther(t *testing.T) {
	good, integrity := packageOf(t, libraryMember, "engine")
	runs := filepath.Join(t.TempDir(), "runs")
	fakeNPM(t, fmt.Sprintf("echo run >> %s; cp %s $4/", runs, good))
	f := fetcher{library{filepath.Join(t.TempDir(), "libchdb.so"), sha256Hex([]byte("engine"))}, integrity, nil}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := f.fetch(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if b, _ := os.ReadFile(runs); strings.Count(string(b), "run") != 1 {
		t.Errorf("npm ran: %q", b)
	}
}
