package aana

import (
	"net/http"
	"strings"

	"github.com/countersign-dev/countersign/gateway/endpoint"
)

// StatusPatterns are what AANA's clients ask before they send calls: two names of one thing, without a token, as at
// AANA's own service.
var StatusPatterns = []string{"GET /health", "GET /ready"}

// statusOK is the status of a service that works.
const statusOK = "ok"

// Service is what the answers to StatusPatterns say.
type Service struct {
	Status  string // "ok", else the answer is 503
	Version string
	Rate    int   // requests per second of one user; 0 for no limit
	MaxBody int64 // bytes
}

// Response is the answer, with the members that AANA's own service has. Nothing in it depends on the tenant.
func (s Service) Response() endpoint.Response {
	status := http.StatusOK
	if s.Status != statusOK {
		status = http.StatusServiceUnavailable
	}
	return endpoint.JSON(status, map[string]any{
		"status": s.Status, "service": "countersign-gateway", "service_version": s.Version,
		"architecture_claim": "The admitter decides and records before it answers; the gateway hands requests on.",
		"contract":           contractVersion,
		"auth_required":      true, "auth_methods": []string{"Authorization: Bearer <token>", "X-AANA-Token: <token>"}, "auth_scopes": []string{scope},
		"audit_logging":      "enabled",
		"rate_limit":         map[string]any{"enabled": s.Rate > 0, "requests_per_minute": 60 * s.Rate},
		"request_size_limit": map[string]any{"enabled": true, "max_bytes": s.MaxBody},
		"routes":             routes(), "docs": "/docs",
	})
}

// routes are the paths of AANA's endpoints.
func routes() (paths []string) {
	for _, pattern := range StatusPatterns {
		paths = append(paths, pathOf(pattern))
	}
	for _, row := range Rows {
		paths = append(paths, pathOf(row.Pattern))
	}
	return paths
}

func pathOf(pattern string) string {
	_, path, _ := strings.Cut(pattern, " ")
	return path
}
