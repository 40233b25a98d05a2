// Package schemas holds Countersign's own JSON Schemas (2020-12) for the messages of agent
// runtimes, a folder for each protocol, and for the records that Countersign writes, and
// validates parsed documents by them. Begin reading with Default and Registry.Validate.
//
// A schema has the same content as the protocol's published schema. A demand that only the
// protocol's text makes is a named check in the folder of the protocol, so that both can be
// compared with their source. Package judge judges a message by both.
//
// The schemas are compiled by github.com/santhosh-tekuri/jsonschema with formats asserted and
// no way to load anything. This package evaluates the compiled form itself, on a
// strictjson.Value, for three reasons: the library panics on a number such as
// 0e99999999999999999999, its messages quote the values of the document, which may be secrets,
// and it would double the cost of a message in the correlator. Tests ensure that both give the
// same verdict.
//
// The package is pure and safe for concurrent use.
package schemas

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// Base is the prefix of the schemas' identifiers: the schema named n has the $id Base + n +
// "/v1". Nothing is ever fetched from there.
const Base = "https://schemas.countersign.dev/"

// ownSchemas are those of Countersign's own records.
//
//go:embed countersign/*.json
var ownSchemas embed.FS

// Registry is the set of compiled schemas.
type Registry struct {
	entries map[string]entry
	names   []string
}

type entry struct {
	source []byte
	root   *node
	fields map[string]bool // see Fields
}

// Default is the registry of the embedded schemas, compiled at the first call. It panics if
// they do not compile: they are part of the program.
func Default() *Registry { return embedded() }

var embedded = sync.OnceValue(func() *Registry {
	r, err := Load(protocols)
	if err != nil {
		panic("schemas: " + err.Error())
	}
	return r
})

// Names lists the schemas in order, such as "aaep/agent.tool.invoked".
func (r *Registry) Names() []string { return slices.Clone(r.names) }

// Source returns the JSON text of a schema; the caller may change it.
func (r *Registry) Source(name string) ([]byte, bool) {
	e, ok := r.entries[name]
	return slices.Clone(e.source), ok
}

// Has reports whether there is a schema of this name.
func (r *Registry) Has(name string) bool {
	_, ok := r.entries[name]
	return ok
}

// Fields are the top-level keys that a schema defines, those of the schemas it builds on
// included; nil if there is no schema of this name. The caller must not change them.
func (r *Registry) Fields(name string) map[string]bool { return r.entries[name].fields }

// Validate validates a document by one schema and returns its violations in order of Path, at
// most MaxViolations, nil if there are none. A value of a Go type that strictjson.Parse does not
// make (see strictjson.FromTree) satisfies no schema that names a type. A name that is not in Names
// is a violation too: nothing unknown passes.
func (r *Registry) Validate(name string, v strictjson.Value) []Violation {
	e, ok := r.entries[name]
	if !ok {
		return []Violation{{Keyword: "$ref", Message: "there is no schema of this name", Level: LevelError}}
	}
	if e.root.validate(v, nil) {
		return nil
	}
	c := &collector{}
	e.root.validate(v, c)
	sortViolations(c.found)
	return c.found
}

// Load compiles the schemas of protocols and those of Countersign's own records, in which the
// protocol of a message may be any of these protocols.
func Load(protocols []Protocol) (*Registry, error) {
	sources, err := readSources(protocols)
	if err != nil {
		return nil, err
	}
	return compileSources(sources)
}

func compileSources(sources map[string][]byte) (*Registry, error) {
	library, err := newLibrary(sources)
	if err != nil {
		return nil, err
	}
	r := &Registry{entries: map[string]entry{}}
	p := planner{planned: map[*librarySchema]*node{}}
	for name, src := range sources {
		compiled, err := library.Compile(Base + name + "/v1")
		if err != nil {
			return nil, fmt.Errorf("schema %s: %w", name, err)
		}
		root, err := p.planNode(compiled)
		if err != nil {
			return nil, fmt.Errorf("schema %s: %w", name, err)
		}
		fields := fieldsOf(compiled)
		r.entries[name] = entry{source: src, root: root, fields: fields}
		r.names = append(r.names, name)
	}
	slices.Sort(r.names)
	return r, nil
}

// readSources maps the name of every schema to its text.
func readSources(protocols []Protocol) (map[string][]byte, error) {
	sources := map[string][]byte{}
	if err := readFolder(sources, ownSchemas); err != nil {
		return nil, err
	}
	for _, p := range protocols {
		if err := readFolder(sources, p.Schemas); err != nil {
			return nil, fmt.Errorf("schemas of protocol %s: %w", p.Token, err)
		}
	}
	var err error
	sources[ownVocabulary], err = listTokens(sources[ownVocabulary], protocols)
	return sources, err
}

// readFolder adds the schemas of a folder. Equal texts may have one name, because protocols may
// share a folder.
func readFolder(sources map[string][]byte, folder fs.FS) error {
	return fs.WalkDir(folder, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name := strings.TrimSuffix(path, ".json")
		src, err := fs.ReadFile(folder, path)
		if err != nil {
			return err
		}
		if before, twice := sources[name]; twice && !bytes.Equal(before, src) {
			return fmt.Errorf("schema %s has two texts", name)
		}
		sources[name] = src
		return nil
	})
}

// ownVocabulary is the schema that names the protocols of records, and noTokens is the list in
// its text that listTokens fills.
const (
	ownVocabulary = "countersign/vocabulary"
	noTokens      = `"enum": []`
)

// listTokens writes the tokens of protocols into the text of the vocabulary.
func listTokens(vocabulary []byte, protocols []Protocol) ([]byte, error) {
	if n := bytes.Count(vocabulary, []byte(noTokens)); n != 1 {
		return nil, fmt.Errorf("schema %s has %d empty lists for protocols, it must have one: %s", ownVocabulary, n, noTokens)
	}
	tokens := make([]string, len(protocols))
	for i, p := range protocols {
		tokens[i] = strconv.Quote(p.Token)
	}
	return bytes.Replace(vocabulary, []byte(noTokens), []byte(`"enum": [`+strings.Join(tokens, ", ")+`]`), 1), nil
}
