package reference

import (
	"fmt"
	"go/ast"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
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

// taggedStruct is a struct with the fields that have a tag.
type taggedStruct struct {
	name, doc string
	fields    []taggedField
}

type taggedField struct {
	goName, name, text string // name is the tag's, text the comments
	typ                ast.Expr
	optional           string // how to say so
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
func (p *text) record(title, name string, types map[string]taggedStruct, parts []string) ([]string, error) {
	r, known := types[name]
	if !known {
		return nil, fmt.Errorf("there is no struct %s", name)
	}
	p.line("%s\n\n%s\n", title, noHTML.Replace(r.jsonNames(r.doc)))
	var rows [][]string
	for _, f := range r.fields {
		if f.text == "" {
			return nil, fmt.Errorf("%s.%s has no comment", name, f.name)
		}
		text := strings.TrimPrefix(r.jsonNames(f.text), quoted(f.name)+" is ")
		kind, of := kindOf(f.typ)
		rows = append(rows, []string{quoted(f.name), kind + f.optional, noHTML.Replace(strings.TrimPrefix(text, quoted(f.name)+" are "))})
		for _, part := range of {
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
func readRecords(root string) (types map[string]taggedStruct, kinds []constant, err error) {
	types = map[string]taggedStruct{}
	for _, dir := range recordDirs {
		structs, err := structsOf(filepath.Join(root, dir), "json")
		if err != nil {
			return nil, nil, err
		}
		for _, s := range structs {
			types[s.name] = s
		}
	}
	kinds, err = readConstants(filepath.Join(root, "events"))
	return types, slices.DeleteFunc(kinds, func(c constant) bool { return !strings.HasPrefix(c.text, "events.") }), err
}

// structsOf reads the structs of a package.
func structsOf(dir, tag string) (list []taggedStruct, err error) {
	files, err := parsePackage(dir)
	for _, f := range files {
		for _, d := range f.Decls {
			block, is := d.(*ast.GenDecl)
			if !is || block.Tok != token.TYPE {
				continue
			}
			for _, s := range block.Specs {
				spec := s.(*ast.TypeSpec)
				if body, is := spec.Type.(*ast.StructType); is {
					list = append(list, taggedStruct{spec.Name.Name, oneLine(block.Doc), taggedFields(body, tag)})
				}
			}
		}
	}
	return list, err
}

func taggedFields(body *ast.StructType, tag string) (list []taggedField) {
	for _, f := range body.Fields.List {
		if f.Tag == nil || len(f.Names) != 1 {
			continue
		}
		name, options, _ := strings.Cut(reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get(tag), ",")
		if name == "" {
			continue
		}
		field := taggedField{goName: f.Names[0].Name, name: name, typ: f.Type, text: strings.TrimSpace(oneLine(f.Doc) + " " + oneLine(f.Comment))}
		if strings.HasPrefix(options, "omit") || strings.HasPrefix(options, "optional") {
			field.optional = ", optional"
		}
		list = append(list, field)
	}
	return list
}

var goName = regexp.MustCompile(`\b[A-Z][A-Za-z]*\b`)

// jsonNames has comments speak of members by their JSON names.
func (s taggedStruct) jsonNames(comment string) string {
	return goName.ReplaceAllStringFunc(comment, func(word string) string {
		for _, f := range s.fields {
			if f.goName == word {
				return quoted(f.name)
			}
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
