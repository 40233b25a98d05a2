package build

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence/internal/protocol"
	"github.com/countersign-dev/countersign/evidence/internal/protocol/storable"
	"github.com/countersign-dev/countersign/evidence/internal/redact"
	"github.com/countersign-dev/countersign/evidence/retention"
)

// Classes returns the retention class of a session's records and the id of the policy that
// sets it; the id is written into every redaction that the class makes. The zero value
// means full_transcript. Any class other than full_transcript, summary_only and hashes
// counts as none.
type Classes func(tenant, session string) (class retention.Class, policy string)

// WithClasses returns a builder that stores of a producer's event only what the tenant's
// retention class allows. f must be safe for concurrent use. Records that Countersign
// itself writes are never withheld, because they are the proof.
func (b *Builder) WithClasses(f Classes) *Builder {
	with := *b
	with.classes = f
	return &with
}

// Limits of what a class keeps.
const (
	maxIdentifier = 128  // bytes of an identifier
	maxMemberName = 64   // bytes of a name of a member or a header
	maxSummary    = 1024 // bytes of a summary
)

// classDetector is the name of a class in redactions, or "" if the class withholds nothing.
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

// loadRetentionClass looks up the record's retention class.
func (r *recordRedactor) loadRetentionClass() {
	if r.builder.classes == nil || r.scope.SubjectClass != subject.Events {
		return
	}
	class, by := r.builder.classes(r.logSession.Tenant, r.logSession.Session)
	if r.withheldBy = classDetector(class); r.withheldBy != "" {
		r.class, r.classBy = class, by
	}
}

// applyRetentionClass withholds what the class does not allow and redacts the rest. The
// redactor first searches the whole event; what it finds is also redacted where it occurs
// again in the members that stay. If this fails, or needs more redactions than one record
// may have, the whole body is withheld as under the class none.
func (r *recordRedactor) applyRetentionClass(c *recordBody) {
	if r.echoes == nil {
		whole := r.readBody()
		if err := r.redactContent(&whole); err != nil {
			r.scanFailed = true
		}
		r.eventHits = whole.hits
	}
	root, isObject := c.tree.(map[string]any)
	if r.scanFailed || !isObject || r.withheldBy == redact.RetentionNone || !r.withholdMembers(c, root) {
		r.withholdByClass(c)
	}
}

// withholdByClass withholds the whole body.
func (r *recordRedactor) withholdByClass(c *recordBody) {
	c.tree, c.text = redact.Placeholder(r.withheldBy), nil
	c.hits = []redact.Hit{{Path: "/body", Detector: r.withheldBy, Rule: r.classBy, Text: string(r.message.Body)}}
}

// withholdMembers removes the members that the class withholds from an event, redacts the
// rest, and puts placeholders where the removed members were. It reports success.
func (r *recordRedactor) withholdMembers(c *recordBody, root map[string]any) bool {
	inData := isStructuredCloudEvent(r.message.Header)
	row := protocol.Of(r.scope.Protocol)
	table, declared := row.Keep, redact.DeclaredFields(root)
	if inData {
		table, declared = row.KeepInData(), redact.DeclaredFields(root["data"])
		for i, f := range declared {
			declared[i] = redact.PathBelow("data", f)
		}
	}
	if table == nil {
		table = &storable.MemberRule{}
	}
	w := memberWithholder{redactor: r}
	w.withholdObject(root, table, nil)
	if w.guardListLost || len(w.withheld) > redact.MaxHits {
		return false
	}
	tree, hits, err := r.redactDocument(root, "/body", declared, r.redactConfig("", inData))
	for _, t := range w.withheld {
		hits = append(hits, t.toHit(r))
	}
	if err != nil || redact.ExceedsLimits(hits) || !w.insertPlaceholders(tree) {
		return false
	}
	slices.SortStableFunc(hits, func(a, b redact.Hit) int { return strings.Compare(a.Path, b.Path) })
	c.tree, c.hits = tree, hits
	return true
}

// memberWithholder removes members from an event.
type memberWithholder struct {
	redactor      *recordRedactor
	withheld      []withheldMember
	guardListLost bool // a list of fields that must not be stored was withheld
}

// withheldMember is a removed member. Its placeholder goes to path.
type withheldMember struct {
	path  []string
	value any
}

func (t withheldMember) toHit(r *recordRedactor) redact.Hit {
	h := redact.Hit{Path: "/body/" + strings.Join(t.path, "/"), Detector: r.withheldBy, Rule: r.classBy}
	if s, isText := t.value.(string); isText {
		h.Text = s
	} else {
		h.JSON, h.IsJSON = t.value, true
	}
	return h
}

// withholdObject removes from m what the table does not name. Members with names that may
// be content themselves are removed together, as one object.
func (w *memberWithholder) withholdObject(m map[string]any, table *storable.MemberRule, path []string) {
	odd := map[string]any{}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		v, row := m[k], table.Members[k]
		at := append(path[:len(path):len(path)], k)
		switch inner, isObject := v.(map[string]any); {
		case row == nil && !isMemberName(k):
			odd[k] = v
			delete(m, k)
		case isEmptyValue(v):
		case row != nil && isObject && len(row.Members) > 0:
			w.withholdObject(inner, row, at)
		case row != nil && w.isAllowed(row.Rule, v):
		default:
			w.guardListLost = w.guardListLost || row != nil && row.Rule == storable.KeepGuardList
			w.withheld = append(w.withheld, withheldMember{at, v})
			delete(m, k)
		}
	}
	if len(odd) > 0 {
		w.withheld = append(w.withheld, withheldMember{append(path[:len(path):len(path)], redact.Placeholder(w.redactor.withheldBy)), odd})
	}
}

// isAllowed reports whether a value has the form that the rule allows.
func (w *memberWithholder) isAllowed(keep storable.KeepRule, v any) bool {
	switch keep {
	case storable.KeepIdentifier:
		return isIdentifierValue(v)
	case storable.KeepIdentifiers, storable.KeepGuardList:
		list, isList := v.([]any)
		return isList && len(list) <= maxSummary/4 && !slices.ContainsFunc(list, func(v any) bool { return !isIdentifierValue(v) })
	case storable.KeepSummary:
		s, isText := v.(string)
		return isText && w.redactor.class == retention.SummaryOnly && len(s) <= maxSummary
	}
	return false
}

// insertPlaceholders puts a placeholder where each withheld member was. It reports false if
// redaction has removed the object that held one.
func (w *memberWithholder) insertPlaceholders(tree any) bool {
	for _, t := range w.withheld {
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
		m[t.path[last]] = redact.Placeholder(w.redactor.withheldBy)
	}
	return true
}

// isEmptyValue reports whether a value carries no content.
func isEmptyValue(v any) bool {
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

// isIdentifierValue reports whether a value can be an identifier: a word without blanks,
// a number, true or false.
func isIdentifierValue(v any) bool {
	switch v := v.(type) {
	case bool:
		return true
	case json.Number:
		return len(v) <= 32
	case string:
		return len(v) <= maxIdentifier && consistsOf(v, isIdentifierByte)
	}
	return false
}

func isIdentifierByte(c byte) bool {
	return isBase64URL(c) || strings.IndexByte(".:/@+=~#%", c) >= 0
}

func isMemberName(k string) bool {
	return len(k) <= maxMemberName && consistsOf(k, func(c byte) bool { return isBase64URL(c) || c == '.' || c == '@' || c == ':' })
}
