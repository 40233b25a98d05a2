package aana

import (
	"net/http"
	"strings"

	"github.com/countersign-dev/countersign/gateway/endpoint"
)

// StatusPage has two names of one thing, without a token, as at AANA's own service.
var StatusPage = endpoint.StatusPage{Patterns: statusPatterns, Response: status}

var statusPatterns = []string{"GET /health", "GET /ready"}

// statusOK is the status of a service that works.
const statusOK = "ok"

// status is the answer, with the members that AANA's own service has.
func status(s endpoint.Service) endpoint.Response {
	code := http.StatusOK
	if s.Status != statusOK {
		code = http.StatusServiceUnavailable
	}
	return endpoint.JSON(code, map[string]any{
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
	for _, pattern := range statusPatterns {
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
