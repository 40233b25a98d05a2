package policy

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// LoadDir reads every *.yaml and *.yml file of a directory and its subdirectories, in the order
// of their paths. Names that begin with a dot are skipped. A directory that is missing or holds
// no such file is ErrNoPolicies: an empty or misspelt path must never read as "no rules".
func LoadDir(fsys fs.FS) ([]Document, error) {
	var docs []Document
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		switch base := path.Base(name); {
		case err != nil && name == "." && errors.Is(err, fs.ErrNotExist):
			return ErrNoPolicies
		case err != nil:
			return err
		case name != "." && strings.HasPrefix(base, "."):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir(), !slices.Contains(extensions, strings.ToLower(path.Ext(base))):
			return nil
		}
		data, err := fs.ReadFile(fsys, name)
		docs = append(docs, Document{Name: name, Data: data})
		return err
	})
	switch {
	case errors.Is(err, ErrNoPolicies):
		return nil, ErrNoPolicies
	case err != nil:
		return nil, fmt.Errorf("policy: reading policies: %w", err)
	case len(docs) == 0:
		return nil, ErrNoPolicies
	}
	return docs, nil
}

var extensions = []string{".yaml", ".yml"}
