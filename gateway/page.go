package gateway

import (
	"bytes"
	_ "embed"
	"html/template"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("docs").Parse(pageText))

// PagePolicy is the Content-Security-Policy of Page: it loads nothing and runs nothing.
const PagePolicy = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Page lists the endpoints for people, in HTML without a script.
func Page() ([]byte, error) {
	type row struct {
		Method, Path, Roles, Summary, Schema string
		Statuses                             []int
	}
	var rows []row
	for _, d := range Descriptions() {
		method, path := d.Split()
		r := row{Method: method, Path: path, Roles: d.Roles, Summary: d.Summary, Statuses: d.Statuses}
		if d.Body != "" {
			r.Schema = schemaPath(d.Body)
		}
		rows = append(rows, r)
	}
	var out bytes.Buffer
	err := pageTemplate.Execute(&out, rows)
	return out.Bytes(), err
}
