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

const (
	freeBody = 16 << 10 // bytes of a body that count in no bound: every connection may hold so many
	bodyStep = 64 << 10 // bytes by which a longer body takes its share
)

// bodyMemory bounds the bytes of all long bodies that are held at once.
const bodyMemory = 128 << 20

var errNoMemory = errors.New("too many bytes of bodies are held")

// sharedBody is a body that takes its bytes from what the callers share, as they come: a caller that sends
// slowly holds no more than it has sent.
type sharedBody struct {
	io.Reader
	memory *shares.Shares
	from   shares.Caller
	read   int64
	taken  int64 // above freeBody
}

func (b *sharedBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.read += int64(n)
	for b.read > freeBody+b.taken {
		if !b.memory.Take(b.from, bodyStep) {
			return n, errNoMemory
		}
		b.taken += bodyStep
	}
	return n, err
}

func (b *sharedBody) release() {
	if b.taken > 0 {
		b.memory.Release(b.from, b.taken)
	}
}

// readBody reads a body of at most so many bytes. Its memory is the caller's until release.
func (s *server) readBody(r *http.Request, who token.Record, most int64) (body []byte, release func(), p *endpoint.Problem) {
	shared := &sharedBody{Reader: http.MaxBytesReader(nil, r.Body, most), memory: s.bodies, from: shares.Caller{Tenant: who.Role + " " + who.User}}
	body, err := io.ReadAll(shared)
	if err == nil {
		return body, shared.release, nil
	}
	shared.release()
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		p = gateway.ProblemOf(gateway.BodyTooLarge)
		p.Limit = most
	case errors.Is(err, errNoMemory):
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
