package policy

import (
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/countersign-dev/countersign/admission/policy/names"
	"github.com/countersign-dev/countersign/events/strictyaml"
)

// reader reads the documents of one file.
type reader struct{ strictyaml.Reader }

// operandField reads the entries of one operand of match.
func (r *reader) operandField(operand string, into *[]string) strictyaml.Field {
	seen := map[string]bool{}
	return r.List("match."+operand, MaxOperand, func(n *yaml.Node) {
		var p string
		if !r.Read(n, r.Text("an entry of match."+operand, MaxPattern, &p)) {
			return
		}
		switch {
		case strings.TrimSpace(p) != p || strings.ContainsFunc(p, unicode.IsControl):
			r.Fail(n, "the entry %.64q of match.%s has white space around it or control characters in it", p, operand)
		case nameOperands[operand] != "" && !names.ValidTool(wildcardReplacer.Replace(p)):
			r.Fail(n, "the entry %.64q of match.%s can match no acceptable %s name", p, operand, nameOperands[operand])
		case seen[p]:
			r.Fail(n, "match.%s lists %.64q twice", operand, p)
		default:
			seen[p] = true
			*into = append(*into, p)
		}
	})
}

// nameOperands are the operands that are compared with names for which names.ValidTool must hold.
var nameOperands = map[string]string{"tools": "tool", "fromAgents": "agent", "toAgents": "agent"}

var wildcardReplacer = strings.NewReplacer("*", "_", "?", "_")
