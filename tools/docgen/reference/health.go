package reference

import "github.com/countersign-dev/countersign/internal/service/daemon"

func health(_ string, p *text) error {
	p.line("`GET /healthz` answers 200, or 503 with `starting` or `unhealthy` and the problems by component; that of `up` has all of them (`admitter/policies`). `role` says")
	p.line("which instance is active. What to do: [operating.md](../operating.md#at-night).\n")
	var rows [][]string
	for _, c := range daemon.Components() {
		rows = append(rows, []string{quoted(c.Name), c.Of, c.When})
	}
	p.table([]string{"component", "of", "unhealthy when"}, rows)
	return nil
}
