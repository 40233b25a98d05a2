package mandate

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/countersign-dev/countersign/events/aump"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// ErrNotAMandate says that a file of a directory is neither a mandate nor a
// profile.
var ErrNotAMandate = errors.New("mandate: neither a mandate nor a profile")

// Directory is a Source made of files, for decisions without a service. It
// serves every tenant the same. The zero Directory has no mandates.
type Directory struct {
	byID map[string][]*Mandate
	keys aump.KeySet
}

// Load reads the files *.json of a directory: mandates, and profiles whose keys
// may sign mandates. Several documents of one id are revisions, told apart by
// their hashes. A file that is not JSON, or that is nothing of AUMP, is an error
// that names it; a mandate that breaks the schema is not: requests under it are
// denied. An empty directory is no error: nothing can be done under it.
func Load(dir fs.FS) (*Directory, error) {
	if _, err := fs.Stat(dir, "."); err != nil {
		return nil, err
	}
	names, err := fs.Glob(dir, "*.json")
	if err != nil {
		return nil, err
	}
	d := &Directory{byID: map[string][]*Mandate{}, keys: aump.KeySet{}}
	var mandates []directoryFile
	for _, name := range names {
		f, err := readFile(dir, name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if f.kind != aump.TypeProfile {
			mandates = append(mandates, f)
			continue
		}
		if err := d.addProfile(f.raw); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	for _, f := range mandates { // after all keys are known
		m, err := Compile(f.raw, d.keys)
		if errors.Is(err, ErrNoID) {
			err = ErrNotAMandate
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		d.byID[m.ID] = append(d.byID[m.ID], m)
	}
	return d, nil
}

type directoryFile struct {
	name, kind string
	raw        []byte
}

func readFile(dir fs.FS, name string) (directoryFile, error) {
	raw, err := fs.ReadFile(dir, name)
	if err != nil {
		return directoryFile{}, err
	}
	tree, err := strictjson.ParseObject(raw, strictjson.DefaultLimits)
	if err != nil {
		return directoryFile{}, err
	}
	return directoryFile{name: name, kind: aump.TypeOf(tree), raw: raw}, nil
}

func (d *Directory) addProfile(raw []byte) error {
	p, err := aump.DecodeProfile(raw, strictjson.DefaultLimits)
	if err != nil {
		return err
	}
	return d.keys.Add(p)
}

// Len is how many mandates the directory holds, revisions counted.
func (d *Directory) Len() int {
	n := 0
	for _, revisions := range d.byID {
		n += len(revisions)
	}
	return n
}

// Mandate implements Source.
func (d *Directory) Mandate(_, id, hash string) *Mandate {
	revisions := d.byID[id]
	if i := slices.IndexFunc(revisions, func(m *Mandate) bool { return m.Hash == hash }); i >= 0 {
		return revisions[i]
	}
	if len(revisions) == 0 {
		return nil
	}
	return revisions[0]
}
