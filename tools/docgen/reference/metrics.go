package reference

import (
	"slices"

	"github.com/countersign-dev/countersign/evidence/redaction"
	"github.com/countersign-dev/countersign/gateway"
	"github.com/countersign-dev/countersign/internal/service/metrics"
)

func metricFamilies(_ string, p *text) error {
	p.line("`GET /metrics` of a service serves them, beside those of its process (`process_*`) and of the Go runtime (`go_*`). Counters begin at zero when a process")
	p.line("starts. Every label has a fixed list of values; a value that is not in it counts as `other`.\n")
	p.line("`GET /metrics` of `countersign up` has those of all its services, but not of the gateways of added tenants: their series would have the same names. `GET /healthz` has these gateways, too.\n")
	values := map[string]string{
		"service": "`admitter`, `correlator`, `auditor`, `gateway`", "shard": "the name of the shard's stream",
		"endpoint": "method and path of each row of [http.md](http.md)", "status": "those of the endpoint",
		"rule": "the rules of [rules.md](rules.md)", "detector": quoted(redaction.DetectorNames()...),
	}
	of, rows := "", [][]string(nil)
	flush := func() {
		if of != "" {
			p.line("## Of %s\n", of)
		}
		p.table([]string{"metric", "type", "labels", "meaning", "look when"}, rows)
		rows = nil
	}
	for _, f := range metrics.Families() {
		if f.Of != of {
			flush()
			of = f.Of
		}
		var labels []string
		for _, l := range f.Labels {
			labels = append(labels, l.Name)
			if l.Values != nil {
				values[l.Name] = quoted(l.Values...)
			}
		}
		rows = append(rows, []string{quoted(f.Name), f.Kind, quoted(labels...), f.Help, f.Alert})
	}
	flush()
	values["code"] += "; of the gateway " + quoted(slices.Sorted(slices.Values(gateway.Refusals()))...)
	p.line("## Labels\n")
	rows = nil
	for _, name := range []string{"service", "shard", "protocol", "verdict", "code", "endpoint", "status", "outcome", "reason", "state", "rule", "severity", "kind", "detector"} {
		rows = append(rows, []string{quoted(name), values[name]})
	}
	p.table([]string{"label", "values"}, rows)
	return nil
}
