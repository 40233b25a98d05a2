package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/internal/service/metrics"
	"github.com/countersign-dev/countersign/streams"
)

// Status words of a health report.
const (
	StatusStarting  = "starting"
	StatusOK        = "ok"
	StatusUnhealthy = "unhealthy"
)

// Roles of a service that has one active instance per shard.
const (
	RoleActive  = "active"
	RoleStandby = "standby"
)

// Report is the body of GET /healthz. The response is 200 when Status is ok and
// 503 otherwise.
type Report struct {
	Status   string            `json:"status"`
	Problems map[string]string `json:"problems,omitempty"`         // by component
	Observed int               `json:"tenants_observed,omitempty"` // of an admitter: tenants for which policies refuse nothing; not a problem
	Role     string            `json:"role,omitempty"`             // active or standby, for services with one active instance per shard
	Services map[string]Report `json:"services,omitempty"`         // of the process tree: each service's report; of a service with several shards: each shard's
}

// Health collects the problems of a service. Its methods are safe for concurrent use.
type Health struct {
	mu       sync.Mutex
	ready    bool
	shard    string // of role
	role     string
	observed int
	problems map[string]string
	lost     map[*nats.Conn]bool // connections that are lost
	parts    map[string]*Health
}

// Part returns the health of one of several shards of a service. The service has the problems of
// all its parts, and is active if one of them is.
func (h *Health) Part(name string) *Health {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.parts == nil {
		h.parts = map[string]*Health{}
	}
	if h.parts[name] == nil {
		h.parts[name] = NewHealth()
	}
	return h.parts[name]
}

// NewHealth returns a Health with status starting.
func NewHealth() *Health {
	return &Health{problems: map[string]string{}, lost: map[*nats.Conn]bool{}}
}

// SetReady reports that the service answers.
func (h *Health) SetReady() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ready = true
}

// SetRole reports whether the service is active or on standby on a shard.
func (h *Health) SetRole(shard, role string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.shard, h.role = shard, role
}

// SetObserved reports how many tenants are in mode observe.
func (h *Health) SetObserved(tenants int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.observed = tenants
}

// Set records the problem of a component; an empty text clears it.
func (h *Health) Set(component, problem string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.set(component, problem)
}

func (h *Health) set(component, problem string) {
	if problem == "" {
		delete(h.problems, component)
		return
	}
	// The library's words for a write without a connection read as those for too much load.
	h.problems[component] = strings.ReplaceAll(problem, nats.ErrReconnectBufExceeded.Error(), "not connected to NATS")
}

// BeginAgain forgets the problems and the role of a run that has ended. The next run in this process begins
// without, as a new process does: it would not know that it has to clear them.
func (h *Health) BeginAgain() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.problems)
	h.role = ""
}

// setLost records whether a connection is lost. The service has the problem nats while one of its
// connections is.
func (h *Health) setLost(nc *nats.Conn, lost bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if lost {
		h.lost[nc] = true
	} else {
		delete(h.lost, nc)
	}
	problem := ""
	if len(h.lost) > 0 {
		problem = "the connection is lost, reconnecting"
	}
	h.set("nats", problem)
}

// Report returns the health report.
func (h *Health) Report() Report {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := Report{Status: StatusOK, Role: h.role, Observed: h.observed}
	switch {
	case len(h.problems) > 0:
		r.Status = StatusUnhealthy
		r.Problems = make(map[string]string, len(h.problems))
		for k, v := range h.problems {
			r.Problems[k] = v
		}
	case !h.ready:
		r.Status = StatusStarting
	}
	for name, part := range h.parts {
		if r.Services == nil {
			r.Services = map[string]Report{}
		}
		one := part.Report()
		if r.Services[name] = one; one.Status == StatusUnhealthy {
			r.Status = StatusUnhealthy
		}
		if r.Role == "" || one.Role == RoleActive {
			r.Role = one.Role
		}
	}
	return r
}

// Status returns the status for the metrics.
func (h *Health) Status() metrics.Status {
	r := h.Report()
	h.mu.Lock()
	defer h.mu.Unlock()
	active := map[string]bool{}
	for _, part := range h.parts {
		part.mu.Lock()
		part.addRole(active)
		part.mu.Unlock()
	}
	h.addRole(active)
	return metrics.Status{Healthy: r.Status != StatusUnhealthy, Ready: h.ready, Active: active}
}

// addRole adds the shard of the role, once there is one.
func (h *Health) addRole(active map[string]bool) {
	if h.role != "" {
		active[h.shard] = h.role == RoleActive
	}
}

func (h *Health) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	WriteReport(w, h.Report())
}

// WriteReport answers a health request.
func WriteReport(w http.ResponseWriter, r Report) {
	w.Header().Set("Content-Type", "application/json")
	if r.Status != StatusOK {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(r)
}

// Serve serves GET /healthz and the handlers in more, by pattern, on addr until stop is called;
// an empty addr serves nothing. It returns the endpoint's base URL.
func (h *Health) Serve(addr string, more map[string]http.Handler) (url string, stop func(), err error) {
	if addr == "" {
		return "", func() {}, nil
	}
	routes := map[string]http.Handler{"GET /healthz": h}
	maps.Copy(routes, more)
	return ServeHTTP(addr, routes)
}

// ServeHTTP serves the given patterns on addr until stop is called.
func ServeHTTP(addr string, routes map[string]http.Handler) (url string, stop func(), err error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return "", nil, fmt.Errorf("health endpoint: %w", err)
	}
	mux := http.NewServeMux()
	for pattern, h := range routes {
		mux.Handle(pattern, h)
	}
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second}
	go func() { _ = srv.Serve(l) }()
	return "http://" + l.Addr().String(), func() { _ = srv.Close() }, nil
}

// StreamHead returns the function that reads the end of a stream, for the metrics of its reader.
func StreamHead(js jetstream.JetStream, stream string) metrics.Head {
	return func(ctx context.Context, next uint64) (last uint64, stored time.Time, err error) {
		st, err := streams.StreamState(ctx, js, stream)
		if err != nil || st.LastSeq < next {
			return st.LastSeq, time.Time{}, err
		}
		m, err := streams.MessageAt(ctx, js, stream, next)
		if err == nil && m != nil {
			stored = m.Time
		}
		return st.LastSeq, stored, err
	}
}
