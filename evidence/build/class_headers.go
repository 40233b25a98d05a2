package build

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/evidence/internal/redact"
)

// withholdHeaders redacts the headers that a class keeps, and replaces the values of all
// others with placeholders.
func (r *recordRedactor) withholdHeaders(config func(string) redact.Config) (map[string][]string, []redact.Hit) {
	keep, rest := map[string][]string{}, map[string][]string{}
	for raw, values := range r.message.Header {
		if isHeaderAllowed(raw, values) {
			keep[raw] = values
		} else if !transportHeaders[raw] {
			rest[raw] = values
		}
	}
	out, hits := r.redactHeaders(keep, config)
	if len(out) == 0 && len(hits) > 0 {
		return withheldHeaders(r.message.Header, redact.TooMany)
	}
	for _, raw := range slices.Sorted(maps.Keys(rest)) {
		hits = append(hits, r.withholdHeader(out, raw, rest[raw])...)
	}
	if redact.ExceedsLimits(hits) {
		return withheldHeaders(r.message.Header, redact.TooMany)
	}
	slices.SortStableFunc(hits, func(a, b redact.Hit) int { return strings.Compare(headerOfPath(a.Path), headerOfPath(b.Path)) })
	return out, hits
}

func headerOfPath(path string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(path, "/headers/"), "/")
	return name
}

// isHeaderAllowed reports whether a header is structural and all its values can be
// identifiers. A media type may have a blank before its parameter.
func isHeaderAllowed(raw string, values []string) bool {
	name := strings.ToLower(raw)
	for _, v := range values {
		if name == "content-type" {
			v = strings.Replace(v, "; ", "+", 1)
		}
		if !isIdentifierValue(v) {
			return false
		}
	}
	return isStructuralHeader(name)
}

// withholdHeader writes a header with placeholders for its values into out. If the name may
// be content, the name is replaced too.
func (r *recordRedactor) withholdHeader(out map[string][]string, raw string, values []string) (hits []redact.Hit) {
	name, plain := headerName(raw), isMemberName(raw)
	if !plain {
		name = redact.Placeholder(r.withheldBy)
	}
	for _, taken := out[name]; taken; _, taken = out[name] {
		name += "_"
	}
	path := "/headers/" + strictjson.EscapePointer(name)
	if !plain {
		hits = append(hits, redact.Hit{Path: path, Detector: r.withheldBy, Rule: r.classBy, Text: raw})
	}
	marked := make([]string, len(values))
	for i, v := range values {
		if v == "" {
			continue
		}
		marked[i] = redact.Placeholder(r.withheldBy)
		hits = append(hits, redact.Hit{Path: path + "/" + strconv.Itoa(i), Detector: r.withheldBy, Rule: r.classBy, Text: v})
	}
	out[name] = marked
	return hits
}
