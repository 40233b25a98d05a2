// Package atomicfile writes files that are there whole or not at all, whatever
// happens in the middle: a key, a password or a ready file cut off at some byte
// is worse than none.
package atomicfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Write replaces the file at path, or makes it. The data is on disk before the
// name points to it.
func Write(path string, data []byte, mode fs.FileMode) error {
	return Stream(path, mode, func(w io.Writer) error { _, err := w.Write(data); return err })
}

// Stream is Write for data that fill makes.
func Stream(path string, mode fs.FileMode, fill func(io.Writer) error) error {
	tmp, err := writeTemporary(path, mode, fill)
	if err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return nil
}

// Create makes a file that must not exist yet; if it does, the error is
// fs.ErrExist and the file stays as it is.
func Create(path string, data []byte, mode fs.FileMode) error {
	tmp, err := writeTemporary(path, mode, func(w io.Writer) error { _, err := w.Write(data); return err })
	if err != nil {
		return err
	}
	return errors.Join(os.Link(tmp, path), os.Remove(tmp))
}

// writeTemporary writes a file beside path, which nobody else may read meanwhile.
func writeTemporary(path string, mode fs.FileMode, fill func(io.Writer) error) (name string, err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // mode 0600
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
