package reference

import (
	"fmt"
	"go/ast"
	"maps"
	"slices"
	"strconv"
)

// policyKeys are the keys of one mapping of a document, with their meanings. reader is the
// function that reads it: the keys are held against those in its source.
type policyKeys struct {
	reader, title string
	keys          [][2]string
}

// policyDocuments are the mappings of policy documents, read by package policy.
var policyDocuments = []policyKeys{
	{"readEnvelope", "Documents", [][2]string{
		{"apiVersion", "`countersign.dev/v1`"},
		{"kind", "`AdmissionPolicy`, `Params` or `ReviewerGroup`"},
		{"metadata", "the document's name"},
		{"name", "in `metadata`; unique in the whole set"},
		{"spec", "for `Params` the constants; for the others below"},
	}},
	{"expandBuiltin", "A policy that is built in", [][2]string{
		{"builtin", "`evaluators-only`: allows everything that the protocol's evaluator allows"},
	}},
	{"readSpec", "spec of a policy", [][2]string{
		{"scope", "`global`, `tenant` or `default`; without it by `match.tenants`"},
		{"validationActions", "`[enforce]`, the default: its verdicts decide; `[warn]`: they are recorded, and callers are warned; `[audit]`: they are recorded"},
		{"match", "which calls it speaks about"},
		{"expiresAfter", "1s to 24h; how long an allow holds: the shortest of the policies of which a rule matched, else 60s. For an ask or defer of policies: how long the workflow stays open, else 15 minutes"},
		{"fallback", "true: it is silent where another policy lists the tool, or the agent handed to, by its exact name; a policy of scope default silences only fallbacks of that scope"},
		{"acceptRawArguments", "true: arguments of aioc's tools that are not JSON (`{\"__raw\": text}`) may be allowed; otherwise `invalid_arguments`"},
		{"params", "constants. They have types: `params.largest == \"20\"` does not compile if it is a number"},
		{"paramsFrom", "names of `Params` documents with more of them"},
		{"variables", "named expressions over params and the variables before. Each is evaluated at most once for a call, and only if a condition asks; one that fails denies there (`policy_error`)"},
		{"approval", "how asks of all rules are approved"},
		{"rules", "what is decided"},
	}},
	{"readMatch", "match of a policy", [][2]string{
		{"tenants", "of the caller"},
		{"sources", "the authenticated publishers"},
		{"protocols", "of the request"},
		{"eventTypes", "such as `PreToolUse`, `aaep:agent.tool.invoked`"},
		{"tools", "by the catalogue's name, if there is one"},
		{"actions", "as the request names them"},
		{"resourceKinds", "as the request names them"},
		{"risks", "the request's `operation_risk`, `risk_class`, `level`, the tool's `risk` in the catalogue, and `irreversible` if one of them says so; one hit is enough"},
		{"fromAgents", "of handoffs: the proposing agent"},
		{"toAgents", "of handoffs: the target"},
	}},
	{"readVariable", "A variable", [][2]string{
		{"name", "conditions say `variables.<name>`"},
		{"expression", "CEL"},
	}},
	{"readRule", "A rule", [][2]string{
		{"name", "unique in the policy"},
		{"match", "narrows what the rule speaks about"},
		{"when", "CEL, true or false; `'true'` always matches"},
		{"limit", "the rule matches only when the call would go beyond it"},
		{"verdict", "`allow`, `ask`, `defer` or `deny`"},
		{"reason", "stable code, for the decision record"},
		{"message", "for people, goes into the reply"},
		{"resultMode", "how aioc's tool gate is told a refusal: `throw`, the default, ends the run; `tool_result` is soft: the runtime tells the model and goes on. All rules that give the verdict must be soft"},
		{"approval", "how its ask is approved, and which reviewers may deny a defer; a key that it leaves out is as in the policy's"},
	}},
	{"readRuleMatch", "match of a rule", [][2]string{
		{"tools", "as in the policy's match"},
		{"actions", "as in the policy's match"},
		{"eventTypes", "as in the policy's match"},
	}},
	{"readLimit", "limit of a rule", [][2]string{
		{"max", "the rule matches when what was counted within `per`, together with this call, is more; each allow counts, also a second one of the same call"},
		{"per", "1s to 744h"},
		{"by", "which callers share a counter: any of `source`, `session`, `agent`, `tool`, `action` (`session`, `agent`, `action` are claims); without it all of the tenant"},
		{"amount", "a whole number of at least 0 that the call adds; default 1. Anything else denies (`policy_error`). `int()` cuts off the fraction: count money in cents"},
	}},
	{"approvalField", "approval", [][2]string{
		{"reviewers", "groups; a reviewer must be in one of them. Without it every reviewer of the tenant may approve"},
		{"quorum", "how many different reviewers must approve; default 1"},
		{"resume", "[what the runtime does afterwards](../approvals.md#the-runtime)"},
		{"expiresAfter", "1s to 24h; how long the workflow stays open. It goes before that of the policy"},
		{"show", "arguments that a reviewer sees in plain, as JSON pointers (of an object or a list, all in it), or `resource`; all others only as type and size. Never shown are texts of more than 200 characters, with a line break, or like a secret (24 letters and digits without a space, as in a UUID or a long IBAN), and names with a word such as `token`, `auth` or `session` in them"},
	}},
	{"readGroup", "spec of a reviewer group", [][2]string{
		{"members", "NATS users"},
		{"tenants", "of which tenants they are reviewers; without it of all"},
	}},
}

// redactionDocuments are the mappings of redaction policies, read by package redaction.
var redactionDocuments = []policyKeys{
	{"readPolicy", "A redaction policy", [][2]string{
		{"version", "1"},
		{"name", "of the policy"},
		{"description", "for people"},
		{"rules", "the first one that applies to a finding decides"},
	}},
	{"readRule", "A rule of a redaction policy", [][2]string{
		{"name", "unique in the policy"},
		{"detectors", "findings of these; `personal` stands for all personal data"},
		{"paths", "places in the event and below: dotted (`items[0].name`, `items.*.name`), or JSON pointers. Without `detectors`, and with another action than `allow`, everything there goes. A path below `tool_input` holds for `metadata.tool_input_executed` too"},
		{"headers", "headers by name, likewise"},
		{"protocols", "only events of these"},
		{"values", "only these values, without regard to case; `*` at an end is any text"},
		{"action", "`mask`, `drop`, `hash`, `tokenise`, `truncate` or `allow`"},
		{"scope", "of `tokenise`: `tenant`, the default, or `session`"},
		{"last", "of `mask`: how many last characters stay, 1 to 4"},
		{"keep", "of `truncate`: how many first characters stay, 1 to 256"},
	}},
}

// keys writes the keys of documents that a package reads.
func (p *text) keys(dir string, documents []policyKeys) error {
	read, err := keysRead(dir)
	if err != nil {
		return err
	}
	p.line("A key that is not listed is an error.\n")
	for _, d := range documents {
		var rows [][]string
		var explained []string
		for _, k := range d.keys {
			explained = append(explained, k[0])
			rows = append(rows, []string{quoted(k[0]), k[1]})
		}
		slices.Sort(explained)
		if !slices.Equal(explained, read[d.reader]) {
			return fmt.Errorf("%s reads the keys %q, explained are %q", d.reader, read[d.reader], explained)
		}
		delete(read, d.reader)
		p.line("### %s\n", d.title)
		p.table([]string{"key", "meaning"}, rows)
	}
	if len(read) > 0 {
		return fmt.Errorf("the keys that %q read are not explained", slices.Sorted(maps.Keys(read)))
	}
	return nil
}

// keysRead gives, by function, the keys of the mappings that it reads.
func keysRead(dir string) (map[string][]string, error) {
	files, err := parsePackage(dir)
	if err != nil {
		return nil, err
	}
	read := map[string][]string{}
	for _, f := range files {
		for _, d := range f.Decls {
			function, is := d.(*ast.FuncDecl)
			if !is {
				continue
			}
			ast.Inspect(function, func(n ast.Node) bool {
				call, is := n.(*ast.CallExpr)
				if !is || len(call.Args) < 3 {
					return true
				}
				method, is := call.Fun.(*ast.SelectorExpr)
				fields, isMap := call.Args[2].(*ast.CompositeLit)
				if is && isMap && method.Sel.Name == "Mapping" {
					read[function.Name.Name] = append(read[function.Name.Name], literalKeys(fields)...)
				}
				return true
			})
		}
	}
	for _, keys := range read {
		slices.Sort(keys)
	}
	return read, nil
}

func literalKeys(fields *ast.CompositeLit) (keys []string) {
	for _, e := range fields.Elts {
		if pair, is := e.(*ast.KeyValueExpr); is {
			if text, is := pair.Key.(*ast.BasicLit); is {
				key, _ := strconv.Unquote(text.Value)
				keys = append(keys, key)
			}
		}
	}
	return keys
}
