package gateway

import (
	"errors"
	"io"
	"net/http"
	"os"

	"github.com/countersign-dev/countersign/gateway"
	"github.com/countersign-dev/countersign/gateway/endpoint"
	"github.com/countersign-dev/countersign/gateway/token"
	"github.com/countersign-dev/countersign/internal/service/shares"
)

// bodyMemory bounds the bytes of all long bodies that are held at once.
const bodyMemory = 128 << 20

// readBody reads a body of at most so many bytes. Its memory is the caller's until release.
func (s *server) readBody(r *http.Request, who token.Record, most int64) (body []byte, release func(), p *endpoint.Problem) {
	shared := &shares.Reader{Reader: http.MaxBytesReader(nil, r.Body, most), Shares: s.bodies, Caller: shares.Caller{Tenant: who.Role + " " + who.User}}
	body, err := io.ReadAll(shared)
	if err == nil {
		return body, shared.Release, nil
	}
	shared.Release()
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		p = gateway.ProblemOf(gateway.BodyTooLarge)
		p.Limit = most
	case errors.Is(err, shares.ErrNoRoom):
		p = gateway.ProblemOf(gateway.Overloaded)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, nil, gateway.ProblemOf(gateway.SlowBody)
	default:
		return nil, nil, gateway.ProblemOf(gateway.BadBody)
	}
	// A client that is still sending would see a reset connection instead of the answer.
	_, _ = io.CopyN(io.Discard, r.Body, s.flags.MaxBody)
	return nil, nil, p
}
