package publisher

import (
	"errors"
	"fmt"
	"io/fs"
)

// ErrEmpty reports a directory without documents.
var ErrEmpty = errors.New("publisher: there is no *.json file")

// Load compiles the files *.json of a directory, for decisions without a service. They apply to
// every tenant. A missing or empty directory and an unusable file are errors: missing rules
// must not be read as no restrictions.
func Load(dir fs.FS) (*Set, error) {
	names, err := fs.Glob(dir, "*.json")
	if err != nil {
		return nil, err
	}
	if _, err := fs.Stat(dir, "."); err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, ErrEmpty
	}
	seen := map[string]string{}
	var docs []Document
	for _, name := range names {
		data, err := fs.ReadFile(dir, name)
		if err != nil {
			return nil, err
		}
		p, err := Parse(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if other, twice := seen[p.Name]; twice {
			return nil, fmt.Errorf("%s: the document %s is in %s, too", name, p.Name, other)
		}
		seen[p.Name] = name
		docs = append(docs, Document{Tenant: AnyTenant, Name: p.Name, Data: data})
	}
	s := Compile(docs, 0)
	return s, s.Err()
}
