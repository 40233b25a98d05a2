package metrics

import (
	"maps"
	"slices"
	"strconv"
)

// Gateway is the set of the gateway's metrics. A nil Gateway counts nothing.
type Gateway struct{ answered *Vector }

// Gateway returns the metrics of the gateway. answers are the statuses that each endpoint has; other pairs are exposed
// once they are counted.
func (r *Registry) Gateway(answers map[string][]string) *Gateway {
	if r == nil {
		return nil
	}
	endpoints := slices.Sorted(maps.Keys(answers))
	statuses := slices.Sorted(slices.Values(slices.Concat(slices.Collect(maps.Values(answers))...)))
	g := &Gateway{answered: newVector(endpoints, slices.Compact(statuses))}
	g.answered.hiddenAtZero = func(v []string) bool { return !slices.Contains(answers[v[0]], v[1]) }
	r.addVector(descGatewayAnswers, "", g.answered)
	return g
}

// Answered counts a response.
func (g *Gateway) Answered(endpoint string, status int) {
	if g != nil {
		g.answered.With(endpoint, strconv.Itoa(status)).Inc()
	}
}
