// Package atomicfile writes files whole or not at all, even across a crash: a truncated key,
// password or ready file is worse than none. Write and Stream replace a file; Create refuses to.
package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Write creates or replaces the file at path. The data is on disk before the name points to it, and the
// name when Write returns nil.
func Write(path string, data []byte, mode fs.FileMode) error {
	return Stream(path, mode, func(w io.Writer) error { _, err := w.Write(data); return err })
}

// Stream is Write with data that fill writes.
func Stream(path string, mode fs.FileMode, fill func(io.Writer) error) error {
	tmp, err := writeTemporary(path, mode, fill)
	if err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return syncDirectory(path)
}

// Create creates a file that must not exist yet; otherwise it returns fs.ErrExist and leaves the
// file unchanged.
func Create(path string, data []byte, mode fs.FileMode) error {
	tmp, err := writeTemporary(path, mode, func(w io.Writer) error { _, err := w.Write(data); return err })
	if err != nil {
		return err
	}
	if err := errors.Join(os.Link(tmp, path), os.Remove(tmp)); err != nil {
		return err
	}
	return syncDirectory(path)
}

// syncDirectory writes the directory of a file to disk: without it a power failure could take a new name
// back.
func syncDirectory(path string) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// writeTemporary writes a file beside path, with mode 0600 until it is complete.
func writeTemporary(path string, mode fs.FileMode, fill func(io.Writer) error) (name string, err error) {
	f, err := os.CreateTemp(filepath.Dir(path), temporaryPrefix(path)+"*") // mode 0600
	if err != nil {
		return "", err
	}
	err = fill(f)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}

// temporaryPrefix begins the names of the files that become path.
func temporaryPrefix(path string) string { return "." + filepath.Base(path) + "-" }

// RemoveLeftovers removes what writers of path left behind that were killed. No other process may write the file
// meanwhile.
func RemoveLeftovers(path string) error {
	list, err := os.ReadDir(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range list {
		if strings.HasPrefix(e.Name(), temporaryPrefix(path)) {
			err = errors.Join(err, os.Remove(filepath.Join(filepath.Dir(path), e.Name())))
		}
	}
	return err
}

// ReadPrivate reads a file with secrets. It refuses a file that other users may read.
func ReadPrivate(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s may be read by others (mode %04o): chmod 600 it, and replace what it holds if others had access", path, info.Mode().Perm())
	}
	return os.ReadFile(path)
}
