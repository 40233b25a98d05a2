package metrics

import (
	"bytes"
	"slices"
	"strings"
)

// Merge makes one text of those of several services, by their names, and says
// which of them answer; the text of one that does not is nil. Samples of one
// family stand together, as the format wants it. It is for texts of this package:
// what does not look like one is left out.
func Merge(texts map[string][]byte) []byte {
	services := make([]string, 0, len(texts))
	for name := range texts {
		services = append(services, name)
	}
	slices.Sort(services)
	heads, bodies := map[string]string{}, map[string]*strings.Builder{}
	up := &sampler{name: descServiceUp.name}
	for _, name := range services {
		up.service = name
		up.number("", flag(texts[name] != nil))
		family := ""
		for line := range strings.Lines(string(texts[name])) {
			if rest, is := strings.CutPrefix(line, "# "); is {
				if family = familyOf(rest); family == "" {
					continue
				}
				if bodies[family] == nil {
					bodies[family] = &strings.Builder{}
				}
				if !strings.Contains(heads[family], line) {
					heads[family] += line
				}
			} else if family != "" && strings.HasPrefix(line, family) {
				bodies[family].WriteString(line)
			}
		}
	}
	var out bytes.Buffer
	heads[descServiceUp.name], bodies[descServiceUp.name] = head(descServiceUp), &strings.Builder{}
	bodies[descServiceUp.name].Write(up.buf.Bytes())
	names := make([]string, 0, len(bodies))
	for name := range bodies {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		out.WriteString(heads[name] + bodies[name].String())
	}
	return out.Bytes()
}

// familyOf reads "HELP name ..." or "TYPE name ...".
func familyOf(comment string) string {
	f := strings.Fields(comment)
	if len(f) < 3 || f[0] != "HELP" && f[0] != "TYPE" {
		return ""
	}
	return f[1]
}

func head(d desc) string {
	return "# HELP " + d.name + " " + escapeHelp(d.help) + "\n# TYPE " + d.name + " " + string(d.kind) + "\n"
}
