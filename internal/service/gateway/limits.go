package gateway

import (
	"crypto/tls"
	"os"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/time/rate"
)

// rates bounds the requests of each user. It has an entry for each user with a valid token.
type rates struct {
	limit int

	mu    sync.Mutex
	users map[string]*rate.Limiter
}

func newRates(limit int) *rates { return &rates{limit: limit, users: map[string]*rate.Limiter{}} }

// burstSeconds bounds a burst: the requests of so many seconds may come at once.
const burstSeconds = 2

func (r *rates) take(user string, now time.Time) bool {
	if r.limit == 0 {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.users[user]
	if l == nil {
		l = rate.NewLimiter(rate.Limit(r.limit), burstSeconds*r.limit)
		r.users[user] = l
	}
	return l.AllowN(now, 1)
}

// certificates reads a certificate again when its file has changed.
type certificates struct {
	cert, key string
	log       zerolog.Logger

	mu      sync.Mutex
	held    *tls.Certificate
	read    time.Time // modification time of the file
	checked time.Time
}

// certificateEvery is the least time between two looks at the file.
const certificateEvery = time.Second

func newCertificates(cert, key string, log zerolog.Logger) (*certificates, error) {
	c := &certificates{cert: cert, key: key, log: log}
	return c, c.reload(time.Now())
}

// reload reads the certificate if its file has changed; the caller holds mu, or is the only one.
func (c *certificates) reload(now time.Time) error {
	c.checked = now
	info, err := os.Stat(c.cert)
	if err != nil || c.held != nil && info.ModTime().Equal(c.read) {
		return err
	}
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return err
	}
	c.held, c.read = &pair, info.ModTime()
	return nil
}

// current is the certificate for a handshake. One that cannot be read leaves the earlier one in use.
func (c *certificates) current(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.checked) >= certificateEvery {
		if err := c.reload(now); err != nil {
			c.log.Error().Err(err).Msg("the gateway's certificate cannot be read again; the earlier one stays in use")
		}
	}
	return c.held, nil
}
