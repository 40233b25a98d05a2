package gateway

import (
	"sync"
	"time"

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
