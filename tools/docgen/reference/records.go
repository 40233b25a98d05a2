package reference

import (
	"fmt"
	"go/ast"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// recordDirs are the packages whose structs are records.
var recordDirs = []string{"events", "admission/receipt", "evidence"}

// mainRecords are the records that have a CloudEvents type of their own, and what is not on the
// log: the receipt, evidence and what subscribers exchange. What other records there are say the
// constants of control records.
var mainRecords = []struct{ title, name string }{
	{"Decision", "Decision"}, {"Call", "Call"}, {"Finding", "Finding"}, {"Approval", "Approval"}, {"Receipt", "Claims"},
	{"Evidence", "Record"}, {"Request of the follow service", "FollowRequest"}, {"Page of the follow service", "FollowPage"},
}

// recordType is a struct of one of the packages.
type recordType struct {
	doc    string
	fields []recordField
	named  map[string]string // JSON names by Go name
}

type recordField struct {
	name, kind, text string
	of               []string // the structs that the field holds
	optional         bool
}

func records(root string, p *text) error {
	types, kinds, err := readRecords(root)
	if err != nil {
		return err
	}
	p.line("Records are JSON in RFC 8785 form; a reader refuses a member that it does not know. Times are UTC with nine digits. No record on the log that is listed here holds a raw argument: digests are keyed.")
	p.line("Types of CloudEvents are `dev.countersign.decision.v1`, and so on. Not on the log are the receipt (the payload of a JWS), evidence, and what the follow service exchanges.\n")
	var parts []string
	for _, r := range mainRecords {
		if parts, err = p.record("## "+r.title, r.name, types, parts); err != nil {
			return err
		}
	}
	p.line("## Control records\n")
	for _, k := range kinds {
		if parts, err = p.record("### `"+k.value+"`", strings.TrimPrefix(k.text, "events."), types, parts); err != nil {
			return err
		}
	}
	p.line("## Parts of records\n")
	for i := 0; i < len(parts); i++ { // a part can have parts
		if parts, err = p.record("### "+parts[i], parts[i], types, parts); err != nil {
			return err
		}
	}
	return nil
}

// noHTML keeps a reader from taking <name> for an element.
var noHTML = strings.NewReplacer("<", `\<`)

// record writes one struct and adds the structs that it holds to the parts.
func (p *text) record(title, name string, types map[string]recordType, parts []string) ([]string, error) {
	r, known := types[name]
	if !known {
		return nil, fmt.Errorf("there is no struct %s", name)
	}
	p.line("%s\n\n%s\n", title, noHTML.Replace(r.doc))
	var rows [][]string
	for _, f := range r.fields {
		if f.text == "" {
			return nil, fmt.Errorf("%s.%s has no comment", name, f.name)
		}
		kind := f.kind
		if f.optional {
			kind += ", optional"
		}
		rows = append(rows, []string{quoted(f.name), kind, noHTML.Replace(f.text)})
		for _, part := range f.of {
			if _, is := types[part]; is && !slices.Contains(parts, part) {
				parts = append(parts, part)
			}
		}
	}
	p.table([]string{"member", "type", "meaning"}, rows)
	return parts, nil
}

// readRecords reads all structs with JSON members, and the kinds of control records: constants
// whose comment names the struct.
func readRecords(root string) (types map[string]recordType, kinds []constant, err error) {
	types = map[string]recordType{}
	for _, dir := range recordDirs {
		files, err := parsePackage(filepath.Join(root, dir))
		if err != nil {
			return nil, nil, err
		}
		for _, f := range files {
			ast.Inspect(f, func(n ast.Node) bool {
				d, is := n.(*ast.GenDecl)
				if !is {
					return true
				}
				for _, s := range d.Specs {
					if spec, is := s.(*ast.TypeSpec); is {
						if body, is := spec.Type.(*ast.StructType); is {
							types[spec.Name.Name] = readRecord(body, oneLine(d.Doc))
						}
					}
				}
				return false
			})
		}
	}
	kinds, err = readConstants(filepath.Join(root, "events"))
	return types, slices.DeleteFunc(kinds, func(c constant) bool { return !strings.HasPrefix(c.text, "events.") }), err
}

func readRecord(body *ast.StructType, doc string) recordType {
	r := recordType{named: map[string]string{}}
	for _, f := range body.Fields.List {
		name, options := jsonTag(f)
		if name == "" || len(f.Names) != 1 {
			continue
		}
		r.named[f.Names[0].Name] = name
		kind, of := kindOf(f.Type)
		r.fields = append(r.fields, recordField{name: name, kind: kind, of: of, optional: strings.Contains(options, "omit"),
			text: strings.TrimSpace(oneLine(f.Doc) + " " + oneLine(f.Comment))})
	}
	r.doc = r.jsonNames(doc)
	for i, f := range r.fields {
		text := strings.TrimPrefix(r.jsonNames(f.text), quoted(f.name)+" is ")
		r.fields[i].text = strings.TrimPrefix(text, quoted(f.name)+" are ")
	}
	return r
}

func jsonTag(f *ast.Field) (name, options string) {
	if f.Tag == nil {
		return "", ""
	}
	tag, _ := strconv.Unquote(f.Tag.Value)
	name, options, _ = strings.Cut(reflect.StructTag(tag).Get("json"), ",")
	return name, options
}

var goName = regexp.MustCompile(`\b[A-Z][A-Za-z]*\b`)

// jsonNames has comments speak of members by their JSON names.
func (r recordType) jsonNames(comment string) string {
	return goName.ReplaceAllStringFunc(comment, func(word string) string {
		if name, is := r.named[word]; is {
			return quoted(name)
		}
		return word
	})
}

// kindOf says a Go type in the words of JSON; of are the structs in it.
func kindOf(e ast.Expr) (kind string, of []string) {
	switch e := e.(type) {
	case *ast.StarExpr:
		return kindOf(e.X)
	case *ast.ArrayType:
		kind, of = kindOf(e.Elt)
		return "list of " + kind, of
	case *ast.MapType:
		kind, of = kindOf(e.Value)
		return "object of " + kind, of
	case *ast.SelectorExpr:
		return kindOf(e.Sel)
	case *ast.Ident:
		switch e.Name {
		case "string", "Verdict", "CallState", "Severity":
			return "text", nil
		case "bool":
			return "boolean", nil
		case "int", "int64", "uint64":
			return "number", nil
		case "Time":
			return "time", nil
		case "Span":
			return "two sequences", nil
		case "RawMessage":
			return "any value", nil
		}
		return e.Name, []string{e.Name}
	}
	return "value", nil
}
