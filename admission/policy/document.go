package policy

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictyaml"
)

// Document is one policy file: any number of YAML documents.
type Document struct {
	Name string // as it appears in error messages, e.g. the file's name
	Data []byte
}

// EvaluatorsOnly is the name of the built-in policy that leaves the decision to
// the protocol's own evaluator.
const EvaluatorsOnly = "evaluators-only"

// builtinDocument gives the document of a built-in policy by its name.
func builtinDocument(name string) (Document, bool) {
	if name != EvaluatorsOnly {
		return Document{}, false
	}
	return Document{Name: name, Data: []byte("builtin: " + name + "\n")}, true
}

const apiVersion = "countersign.dev/v1"

// Kinds of documents.
const (
	kindPolicy = "AdmissionPolicy"
	kindParams = "Params"
	kindGroup  = "ReviewerGroup"
)

// documentSet holds the content of documents, checked one by one and not compiled.
type documentSet struct {
	policies []spec
	params   []paramsDoc
	groups   []groupDoc
}

// place is the position of a document.
type place struct {
	file string
	line int
}

func (p place) fail(format string, args ...any) *Error {
	return &Error{File: p.file, Line: p.line, Msg: fmt.Sprintf(format, args...)}
}

func (p place) String() string { return fmt.Sprintf("%s:%d", p.file, p.line) }

// readAll reads every document of every file. The error joins every mistake; documents without
// mistakes are returned all the same.
func readAll(docs []Document) (documentSet, error) {
	var src documentSet
	var errs []error
	for _, d := range docs {
		errs = append(errs, src.readFile(d))
	}
	errs = append(errs, src.findDuplicates()...)
	return src, errors.Join(errs...)
}

func (src *documentSet) readFile(d Document) error {
	nodes, err := strictyaml.Documents(d.Name, d.Data, MaxDocument, MaxPolicies)
	if err != nil {
		return err
	}
	r := &reader{strictyaml.Reader{File: d.Name}}
	for _, n := range nodes {
		r.readDocument(n, src)
	}
	if len(nodes) == 0 {
		r.Fail(&yaml.Node{Line: 1}, "the file holds no policy")
	}
	return errors.Join(r.Errs...)
}

// readDocument reads one document and keeps it if it has no mistake.
func (r *reader) readDocument(doc *yaml.Node, src *documentSet) {
	if len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
		r.Fail(doc, "the document is not a policy; it must be a mapping with apiVersion, kind, metadata and spec")
		return
	}
	root := doc.Content[0]
	at, before := place{r.File, root.Line}, len(r.Errs)
	var keep func()
	switch {
	case slices.ContainsFunc(root.Content, func(n *yaml.Node) bool { return n.Value == "builtin" }):
		s := r.expandBuiltin(root, spec{place: at})
		keep = func() { src.policies = append(src.policies, s) }
	case kindOf(root) == kindParams:
		p := paramsDoc{place: at}
		r.readEnvelope(root, kindParams, &p.name, func(n *yaml.Node) { r.readParams(n, "spec", &p.values) })
		keep = func() { src.params = append(src.params, p) }
	case kindOf(root) == kindGroup:
		g := groupDoc{place: at}
		r.readEnvelope(root, kindGroup, &g.Name, func(n *yaml.Node) { r.readGroup(n, &g) })
		keep = func() { src.groups = append(src.groups, g) }
	default:
		s := spec{place: at}
		r.readEnvelope(root, kindPolicy, &s.Name, func(n *yaml.Node) { r.readSpec(n, &s) })
		if s.Name == EvaluatorsOnly {
			r.Fail(root, "the name %s belongs to the built-in policy; write the line \"builtin: %s\" to use it", EvaluatorsOnly, EvaluatorsOnly)
		}
		keep = func() { src.policies = append(src.policies, s) }
	}
	if len(r.Errs) == before {
		keep()
	}
}

// kindOf returns the kind that a document states, "" if it states none.
func kindOf(root *yaml.Node) string {
	for i := 0; i+1 < len(root.Content); i += 2 {
		if root.Content[i].Value == "kind" {
			return root.Content[i+1].Value
		}
	}
	return ""
}

// readEnvelope reads the four keys that every document but the built-in ones has.
func (r *reader) readEnvelope(root *yaml.Node, kind string, name *string, body strictyaml.Field) {
	what := map[string]string{kindPolicy: "the policy", kindParams: "the params document", kindGroup: "the reviewer group"}[kind]
	var version, said string
	r.Mapping(root, what, strictyaml.Fields{
		"apiVersion": r.Form("apiVersion", 64, regexp.MustCompile("^"+regexp.QuoteMeta(apiVersion)+"$"), &version),
		"kind":       r.Form("kind", 64, kindForm, &said),
		"metadata": func(n *yaml.Node) {
			r.Mapping(n, "metadata", strictyaml.Fields{"name": r.Form("metadata.name", 63, nameForm, name)}, "name")
		},
		"spec": body,
	}, "apiVersion", "kind", "metadata", "spec")
}

var kindForm = regexp.MustCompile("^(" + strings.Join([]string{kindPolicy, kindParams, kindGroup}, "|") + ")$")

// expandBuiltin expands the one-line form.
func (r *reader) expandBuiltin(root *yaml.Node, s spec) spec {
	r.Mapping(root, "a built-in policy", strictyaml.Fields{
		"builtin": r.Form("builtin", 63, regexp.MustCompile("^"+EvaluatorsOnly+"$"), &s.Name),
	}, "builtin")
	s.builtin = true
	s.Rules = []ruleSpec{{Name: "all", When: "true", Verdict: events.Allow, Reason: CodeEvaluatorsOnly, line: root.Line, whenLine: root.Line}}
	return s
}

// findDuplicates finds names that two documents of one kind have.
func (src *documentSet) findDuplicates() (errs []error) {
	first := map[[2]string]place{}
	check := func(kind, what, name string, at place) {
		if o, taken := first[[2]string{kind, name}]; taken {
			errs = append(errs, at.fail("the name %s is taken by the %s at %s", name, what, o))
			return
		}
		first[[2]string{kind, name}] = at
	}
	for _, s := range src.policies {
		check(kindPolicy, "policy", s.Name, s.place)
	}
	for _, p := range src.params {
		check(kindParams, "params document", p.name, p.place)
	}
	for _, g := range src.groups {
		check(kindGroup, "reviewer group", g.Name, g.place)
	}
	return errs
}

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
