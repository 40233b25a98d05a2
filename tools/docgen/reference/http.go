package reference

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"github.com/countersign-dev/countersign/gateway"
)

func endpoints(_ string, p *text) error {
	p.line("The same in OpenAPI 3.1: `GET /openapi.json`. How callers are known, and what the endpoints promise: [gateway.md](../gateway.md).\n")
	p.line("## Endpoints\n")
	var rows, parameters [][]string
	for _, d := range gateway.Descriptions() {
		method, path := d.Split()
		rows = append(rows, []string{quoted(method + " " + path), cmp.Or(d.Roles, "none"), d.Summary})
		for _, name := range slices.Sorted(maps.Keys(d.Query)) {
			parameters = append(parameters, []string{quoted(path), quoted(name), d.Query[name]})
		}
	}
	p.table([]string{"endpoint", "role of the token", "does"}, rows)
	p.line("## Query parameters\n")
	p.table([]string{"endpoint", "parameter", "meaning"}, parameters)
	p.line("## Errors\n")
	p.line("The gateway's own, as `error` and `message` of the body; besides them a protocol's refusals have their [reason codes](reason-codes.md#decisions-and-denials).\n")
	rows = nil
	failures := gateway.Failures()
	slices.SortStableFunc(failures, func(a, b gateway.Failure) int { return gateway.ProblemOf(a).Status - gateway.ProblemOf(b).Status })
	for _, f := range failures {
		problem, again := gateway.ProblemOf(f), ""
		if problem.RetryAfter > 0 {
			again = strconv.Itoa(problem.RetryAfter) + " s"
		}
		rows = append(rows, []string{strconv.Itoa(problem.Status), quoted(problem.Code), problem.Message, again})
	}
	p.table([]string{"status", "`error`", "meaning", "`Retry-After`"}, rows)
	return nil
}
