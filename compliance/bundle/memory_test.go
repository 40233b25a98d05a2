package bundle

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// allocated is how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// directoryOnly is a ZIP that consists of directory entries without members. Its end says that there
// are count of them in length bytes.
func directoryOnly(entries, count, length int) []byte {
	var dir bytes.Buffer
	for range entries {
		whole("x", nil).appendDirectory(&dir, 0)
	}
	b := zipEnd(dir.Bytes(), count, 0)
	binary.LittleEndian.PutUint32(b[len(b)-10:], uint32(length))
	return b
}

// A file of a stranger whose directory has many entries is refused before the directory is read.
func TestDirectoryIsBounded(t *testing.T) {
	const entries, entry = 100_000, 47
	f := everything(t)
	for name, file := range map[string][]byte{
		"as it is":           directoryOnly(entries, entries, entries*entry),
		"fewer, by its end":  directoryOnly(entries, 1, entry),
		"shorter, by 65,536": directoryOnly(entries, entries%65536, 4000),
		"more, by its end":   directoryOnly(1, 65535, entry),
		"before a comment":   append(directoryOnly(entries, entries, entries*entry), make([]byte, 1000)...),
		"of a 64-bit form":   directoryOnly(entries, 65535, 0),
	} {
		var err error
		n := allocated(func() { _, err = verifyBundle(f, file) })
		if !errors.Is(err, ErrInvalid) || n > 1<<20 {
			t.Errorf("%s: %v, %d bytes allocated for a file of %d", name, err, n, len(file))
		}
	}
}

// A member that is dense with values would take many times its size when it is decoded.
func TestDenseMembersAreRefused(t *testing.T) {
	f := everything(t)
	dense := slices.Concat([]byte("["), bytes.Repeat([]byte("{},"), 1<<20), []byte("{}]"))
	for name, text := range map[string][]byte{
		memberKeys:     dense,
		memberExpiries: dense,
		MemberInForce:  slices.Concat([]byte(`{"format":"countersign/in-force/v1","mandates":[],"policies":`), dense, []byte(`}`)),
	} {
		_, files := unzip(t, f.bundle("sess-b"))
		if files[name] = text; name == memberExpiries {
			swap(memberManifest, `"records":`, `"expired":1,"records":`)(files)
		}
		file := pack(t, memberNames(name == memberExpiries, false), files)
		var err error
		n := allocated(func() { _, err = verifyBundle(f, file) })
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), name) || n > uint64(2*len(file)) {
			t.Errorf("%s: %v, %d bytes allocated for a file of %d", name, err, n, len(file))
		}
	}
	manifest := slices.Concat([]byte(`{"format":"`+Format+`","members":`), bytes.Repeat([]byte(" "), maxManifest), []byte("[]}"))
	file := repack(t, f.bundle("sess-b"), func(m map[string][]byte) { m[memberManifest] = manifest })
	if _, err := verifyBundle(f, file); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "at most") {
		t.Errorf("a large manifest: %v", err)
	}
}
