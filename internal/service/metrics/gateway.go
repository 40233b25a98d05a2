package metrics

import "strconv"

// gatewayEndpoints are the values of the label endpoint: the patterns of package gateway's rows.
var gatewayEndpoints = []string{"POST /v1/admit/{target}", "POST /v1/events/{target}", "POST /event", "POST /pre-tool-check", "POST /tool-precheck",
	"POST /validate-tool-precheck", "POST /aump/mandates/{target}", "POST /aioc/tool", "POST /aioc/handoff", "GET /v1/follow/{kind}", "POST /v1/receipts:verify",
	"GET /openapi.json", "GET /docs", "GET /schemas/{protocol}/{name}/v1",
	"POST /aaep/v1/subscriptions", "GET /aaep/v1/events", "POST /aaep/v1/replies", "GET /aaep/v1/ws", "GET /.well-known/aaep-manifest.json"}

// gatewayStatuses are the values of the label status.
var gatewayStatuses = []string{"101", "200", "201", "204", "400", "401", "403", "404", "410", "413", "415", "429", "500", "502", "503", "504"}

// Gateway is the set of the gateway's metrics. A nil Gateway counts nothing.
type Gateway struct{ answered *Vector }

// Gateway returns the metrics of the gateway.
func (r *Registry) Gateway() *Gateway {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	if g := r.gateway; g != nil {
		r.mu.Unlock()
		return g
	}
	g := &Gateway{answered: countersOf(descGatewayAnswers)}
	r.gateway = g
	r.mu.Unlock()
	r.addVector(descGatewayAnswers, "", g.answered)
	return g
}

// Answered counts a response.
func (g *Gateway) Answered(endpoint string, status int) {
	if g != nil {
		g.answered.With(endpoint, strconv.Itoa(status)).Inc()
	}
}
