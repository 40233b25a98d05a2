// Package schemas holds Countersign's own JSON Schemas (2020-12) for the messages of agent
// runtimes (AAEP 1.0.0, AANA v1, AgentHook 0.2 and others) and for the records that Countersign
// writes, and validates parsed documents by them. Begin reading with Default and
// Registry.Validate.
//
// A schema has the same content as the protocol's published schema. A demand that only the
// protocol's text makes is a named check (AAEPChecks, AgentHookChecks), so that both can be
// compared with their source.
//
// The schemas are compiled by github.com/santhosh-tekuri/jsonschema with formats asserted and
// no way to load anything. This package evaluates the compiled form itself, on the values of a
// strictjson.Document, for three reasons: the library panics on a number such as
// 0e99999999999999999999, its messages quote the values of the document, which may be secrets,
// and it would double the cost of a message in the correlator. Tests ensure that both give the
// same verdict.
//
// The package is pure and safe for concurrent use.
package schemas

import (
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// Base is the prefix of the schemas' identifiers: the schema named n has the $id Base + n +
// "/v1". Nothing is ever fetched from there.
const Base = "https://schemas.countersign.dev/"

//go:embed aaep/*.json aana/*.json agenthook/*.json aioc/*.json aump/*.json countersign/*.json
var files embed.FS

// Registry is the set of compiled schemas.
type Registry struct {
	entries     map[string]entry
	names       []string
	coreSchemas map[string]string // names of the schemas of AAEP's core events, by compact type
}

type entry struct {
	source []byte
	root   *node
	// fields are the top-level keys that the schema defines, those of the schemas it builds on
	// included.
	fields *strictjson.Names[bool]
}

// Default is the registry of the embedded schemas, compiled at the first call. It panics if
// they do not compile: they are part of the program.
func Default() *Registry { return embedded() }

var embedded = sync.OnceValue(func() *Registry {
	r, err := loadSchemas(files)
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

// Validate validates a document by one schema and returns its violations in order of Path, at
// most MaxViolations, nil if there are none. The document must come from strictjson.Parse; a
// value of any other Go type satisfies no schema that names a type. A name that is not in Names
// is a violation too: nothing unknown passes.
func (r *Registry) Validate(name string, tree any) []Violation {
	return r.ValidateValue(name, strictjson.FromTree(tree))
}

// ValidateValue is Validate for a value of a strictjson.Document.
func (r *Registry) ValidateValue(name string, v strictjson.Value) []Violation {
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

func loadSchemas(from fs.FS) (*Registry, error) {
	sources, err := readAll(from)
	if err != nil {
		return nil, err
	}
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
		fields := strictjson.NamesOf(fieldsOf(compiled))
		r.entries[name] = entry{source: src, root: root, fields: fields}
		r.names = append(r.names, name)
	}
	slices.Sort(r.names)
	r.coreSchemas = map[string]string{}
	for _, name := range r.names {
		if local, ok := strings.CutPrefix(name, aaepFolder); ok && strings.HasPrefix(local, aaepCoreStart) {
			r.coreSchemas[aaepPrefix+local] = name
		}
	}
	return r, nil
}

// readAll maps the name of every schema to its text.
func readAll(from fs.FS) (map[string][]byte, error) {
	sources := map[string][]byte{}
	err := fs.WalkDir(from, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		src, err := fs.ReadFile(from, path)
		sources[strings.TrimSuffix(path, ".json")] = src
		return err
	})
	return sources, err
}
