package policy

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// limitSpec is limit as written.
type limitSpec struct {
	Max    int64         `json:"max"`
	Per    time.Duration `json:"per_ns"`
	By     []string      `json:"by,omitempty"`
	Amount string        `json:"amount,omitempty"`

	line, amountLine int
}

var byForm = regexp.MustCompile("^(" + strings.Join(slices.Sorted(maps.Keys(counterFields)), "|") + ")$")

func (r *reader) readLimit(n *yaml.Node, into **limitSpec) {
	l := &limitSpec{line: n.Line}
	r.readMapping(n, "limit", map[string]fieldReader{
		"max": r.integerField("limit.max", 0, MaxAmount, &l.Max),
		"per": r.durationField("limit.per", MinWindow, MaxWindow, &l.Per),
		"by": r.listField("limit.by", len(counterFields), func(n *yaml.Node) {
			var b string
			r.patternField("an entry of limit.by", 16, byForm, &b)(n)
			if b != "" && slices.Contains(l.By, b) {
				r.fail(n, "limit.by lists %s twice", b)
			}
			l.By = append(l.By, b)
		}),
		"amount": func(n *yaml.Node) {
			l.amountLine = n.Line
			r.textField("limit.amount", MaxExpression, &l.Amount)(n)
		},
	}, "max", "per")
	*into = l
}
