package evidence

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence/internal/redact"
	"github.com/countersign-dev/countersign/evidence/retention"
)

// Classes gives the retention class of a session's records and the id of the
// policy that says so, which stands in what is withheld. Anything but
// full_transcript, summary_only and hashes counts as none, the zero value apart:
// that is full_transcript.
type Classes func(tenant, session string) (class retention.Class, policy string)

// WithClasses gives a builder that stores of producers' events what their tenants'
// retention classes allow. f must be safe for several goroutines. Records of our
// own are never withheld: they are what proves.
func (b *Builder) WithClasses(f Classes) *Builder {
	with := *b
	with.classes = f
	return &with
}

// Most that stays of something under a class.
const (
	maxIdentifier = 128  // bytes of an identifier
	maxMemberName = 64   // bytes of a name of a member or a header
	maxSummary    = 1024 // bytes of a summary
)

// classDetector is what a class is called in redactions, "" if it withholds nothing.
func classDetector(c retention.Class) string {
	switch c {
	case 0, retention.FullTranscript:
		return ""
	case retention.SummaryOnly:
		return redact.RetentionSummary
	case retention.Hashes:
		return redact.RetentionHashes
	}
	return redact.RetentionNone
}

// classify finds the record's class.
func (r *redaction) classify() {
	if r.b.classes == nil || r.sc.class != subject.Events {
		return
	}
	class, by := r.b.classes(r.named.Tenant, r.named.Session)
	if r.withheld = classDetector(class); r.withheld != "" {
		r.class, r.classBy = class, by
	}
}

// classed withholds what the class does not allow, and redacts the rest as usual.
// What the usual redaction finds in the whole event is looked for in what stays.
// Where that goes wrong, or asks for more redactions than one record may have, the
// whole body is withheld as under none.
func (r *redaction) classed(c *content) {
	if r.echoes == nil {
		whole := r.b.read(r.sc, r.m)
		if err := r.usually(&whole); err != nil {
			r.blind = true
		}
		r.seen = whole.hits
	}
	root, isObject := c.tree.(map[string]any)
	if r.blind || !isObject || r.withheld == redact.RetentionNone || !r.partly(c, root) {
		c.tree, c.text = redact.Placeholder(r.withheld), nil
		c.hits = []redact.Hit{{Path: "/body", Detector: r.withheld, Rule: r.classBy, Text: string(r.m.Body)}}
	}
}

// partly takes out of an event what the class withholds, has the rest redacted,
// and puts marks where something was. It reports whether that worked.
func (r *redaction) partly(c *content, root map[string]any) bool {
	inData := structured(r.m.Header)
	table, declared := structural[r.sc.protocol], redact.DeclaredFields(root)
	if inData {
		table, declared = envelopes[r.sc.protocol], redact.DeclaredFields(root["data"])
		for i, f := range declared {
			declared[i] = redact.Below("data", f)
		}
	}
	if table == nil {
		table = &keptMember{}
	}
	w := withholding{r: r}
	w.object(root, table, nil)
	if w.unguarded || len(w.taken) > redact.MaxHits {
		return false
	}
	tree, hits, err := r.document(root, "/body", declared, r.config("", inData))
	if err != nil || len(hits)+len(w.taken) > redact.MaxHits || !w.mark(tree) {
		return false
	}
	for _, t := range w.taken {
		hits = append(hits, t.hit(r))
	}
	slices.SortStableFunc(hits, func(a, b redact.Hit) int { return strings.Compare(a.Path, b.Path) })
	c.tree, c.hits = tree, hits
	return true
}

// withholding takes members out of an event.
type withholding struct {
	r         *redaction
	taken     []takenMember
	unguarded bool // a list of what must not be stored could not be kept
}

// takenMember is what stood at a place; the last of its path is where the mark
// goes.
type takenMember struct {
	path  []string
	value any
}

func (t takenMember) hit(r *redaction) redact.Hit {
	h := redact.Hit{Path: "/body/" + strings.Join(t.path, "/"), Detector: r.withheld, Rule: r.classBy}
	if s, isText := t.value.(string); isText {
		h.Text = s
	} else {
		h.JSON, h.IsJSON = t.value, true
	}
	return h
}

// object takes out of m what the table does not name. Members whose names may be
// content themselves go together, as one object.
func (w *withholding) object(m map[string]any, table *keptMember, path []string) {
	odd := map[string]any{}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		v, row := m[k], table.inside[k]
		at := append(path[:len(path):len(path)], k)
		switch inner, isObject := v.(map[string]any); {
		case row == nil && !memberName(k):
			odd[k] = v
			delete(m, k)
		case empty(v):
		case row != nil && isObject && len(row.inside) > 0:
			w.object(inner, row, at)
		case row != nil && w.stays(row.keep, v):
		default:
			w.unguarded = w.unguarded || row != nil && row.keep == guarding
			w.taken = append(w.taken, takenMember{at, v})
			delete(m, k)
		}
	}
	if len(odd) > 0 {
		w.taken = append(w.taken, takenMember{append(path[:len(path):len(path)], redact.Placeholder(w.r.withheld)), odd})
	}
}

// stays reports whether a value is what the table says stands there.
func (w *withholding) stays(keep keeping, v any) bool {
	switch keep {
	case ident:
		return identifier(v)
	case idents, guarding:
		list, isList := v.([]any)
		return isList && len(list) <= maxSummary/4 && !slices.ContainsFunc(list, func(v any) bool { return !identifier(v) })
	case summing:
		s, isText := v.(string)
		return isText && w.r.class == retention.SummaryOnly && len(s) <= maxSummary
	}
	return false
}

// mark puts marks where members were. Redaction may have taken out the object
// that held one: then there is no place for its mark.
func (w *withholding) mark(tree any) bool {
	for _, t := range w.taken {
		last := len(t.path) - 1
		m, there := tree.(map[string]any)
		for _, k := range t.path[:last] {
			if m, there = m[k].(map[string]any); !there {
				return false
			}
		}
		if !there {
			return false
		}
		if _, taken := m[t.path[last]]; taken {
			return false
		}
		m[t.path[last]] = redact.Placeholder(w.r.withheld)
	}
	return true
}

// empty values say nothing.
func empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
}

// identifier reports whether a value can be one: a word without blanks, a number, true or
// false.
func identifier(v any) bool {
	switch v := v.(type) {
	case bool:
		return true
	case json.Number:
		return len(v) <= 32
	case string:
		return len(v) <= maxIdentifier && madeOf(v, isIdentifier)
	}
	return false
}

func isIdentifier(c byte) bool {
	return isBase64URL(c) || strings.IndexByte(".:/@+=~#%", c) >= 0
}

func memberName(k string) bool {
	return len(k) <= maxMemberName && madeOf(k, func(c byte) bool { return isBase64URL(c) || c == '.' || c == '@' || c == ':' })
}
