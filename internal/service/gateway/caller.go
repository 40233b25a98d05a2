package gateway

import (
	"net/http"

	"github.com/countersign-dev/countersign/gateway/endpoint"
	"github.com/countersign-dev/countersign/gateway/token"
)

// callerAnswer says how the caller is known. It has nothing that the caller's token does not permit.
type callerAnswer struct {
	Tenant string `json:"tenant"`
	User   string `json:"user"`
	Role   string `json:"role"`
}

const callerPattern = "GET /v1/caller"

// reportCaller tells a caller how it is known: gates that speak for several callers keep them apart by
// it. Nothing is recorded.
func (s *server) reportCaller(w http.ResponseWriter, r *http.Request) {
	who, _, p := s.admitCaller(r, func(token.Record) bool { return true })
	if p != nil {
		s.write(w, callerPattern, p.Response())
		return
	}
	s.write(w, callerPattern, endpoint.JSON(http.StatusOK, callerAnswer{s.flags.Tenant, who.User, who.Role}))
}
