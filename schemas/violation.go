package schemas

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// Level grades a violation.
type Level string

// The levels. A warning is for what a protocol only recommends, and for what one part of its
// text forbids and another part uses.
const (
	LevelError   Level = "error"
	LevelWarning Level = "warning"
)

// MaxViolations bounds the violations of one call: a hostile document must not cause a long
// answer.
const MaxViolations = 64

// maxToken is the maximum number of bytes of a key in a Path.
const maxToken = 64

// Violation reports a defect of a document and its place. It never holds a value of the
// document, which may be a secret; keys of the document appear in Path only.
type Violation struct {
	// Path is the JSON pointer (RFC 6901) of the defect, "" for the whole document. A key
	// longer than 64 bytes is shown as "…".
	Path string `json:"path"`
	// Keyword is the JSON Schema keyword that failed, or the name of the check
	// in snake_case.
	Keyword string `json:"keyword"`
	// Message states what the schema demands.
	Message string `json:"message"`
	// Check is the identifier of the violated rule, if there is one.
	Check string `json:"check,omitempty"`
	Level Level  `json:"level"`
}

// String formats a violation on one line.
func (v Violation) String() string {
	at := v.Path
	if at == "" {
		at = "the document"
	}
	return at + ": " + v.Message
}

// MissingProperty returns the name of the property that a document lacks, "" if v is another
// violation.
func (v Violation) MissingProperty() string {
	if name, ok := strings.CutPrefix(v.Message, missingProperty); ok && v.Keyword == "required" {
		return name
	}
	return ""
}

// missingProperty is how the message about a property begins that a document lacks.
const missingProperty = "missing property "

// HasErrors reports whether a violation is more than a warning.
func HasErrors(vs []Violation) bool {
	return slices.ContainsFunc(vs, func(v Violation) bool { return v.Level != LevelWarning })
}

func sortViolations(vs []Violation) {
	slices.SortFunc(vs, func(a, b Violation) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), strings.Compare(a.Keyword, b.Keyword),
			strings.Compare(a.Message, b.Message), strings.Compare(a.Check, b.Check))
	})
}

// Merge merges two results for one document. If there are too many, errors are kept
// before warnings: no number of warnings may hide an error.
func Merge(a, b []Violation) []Violation {
	if len(a) == 0 && len(b) == 0 {
		return nil
	}
	all := slices.Concat(a, b)
	if len(all) > MaxViolations {
		slices.SortStableFunc(all, func(a, b Violation) int { return strings.Compare(string(a.Level), string(b.Level)) })
		all = all[:MaxViolations]
	}
	sortViolations(all)
	return all
}

// collector collects violations. With the nil collector only the verdict matters: evaluation
// stops at the first failure and allocates nothing.
type collector struct {
	path  []string
	found []Violation
}

// fail records a violation at the current place and returns false.
func (c *collector) fail(keyword, message string) bool {
	if c != nil && !c.isFull() {
		c.found = append(c.found, Violation{Path: Pointer(c.path...), Keyword: keyword, Message: message, Level: LevelError})
	}
	return false
}

func (c *collector) isFull() bool { return len(c.found) >= MaxViolations }

// shouldStop reports whether evaluation can stop after a failure.
func (c *collector) shouldStop() bool { return c == nil || c.isFull() }

func (c *collector) enter(key string) {
	if c != nil {
		c.path = append(c.path, key)
	}
}

func (c *collector) enterItem(i int) {
	if c != nil {
		c.path = append(c.path, strconv.Itoa(i))
	}
}

func (c *collector) leave() {
	if c != nil {
		c.path = c.path[:len(c.path)-1]
	}
}

// Pointer writes a JSON pointer, the Path of a violation. Long keys are replaced by "…".
func Pointer(keys ...string) string {
	var b strings.Builder
	for _, k := range keys {
		b.WriteByte('/')
		b.WriteString(strictjson.EscapePointer(truncateKey(k)))
	}
	return b.String()
}

// truncateKey drops a long key: a part of it could be a part of a credential, which redaction
// recognises only as a whole.
func truncateKey(key string) string {
	if len(key) <= maxToken {
		return key
	}
	return "…"
}
