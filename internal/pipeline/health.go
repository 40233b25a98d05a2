package pipeline

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/metrics"
)

// maxMetrics bounds one service's metrics, in bytes; real ones are far smaller.
const maxMetrics = 4 << 20

// serveHealth serves the health report of the whole tree, which is ok only if every service is,
// and the merged metrics.
func (p *Pipeline) serveHealth() error {
	url, stop, err := daemon.ServeHTTP(p.opt.HTTP, map[string]http.Handler{
		"GET /healthz": http.HandlerFunc(p.reportHealth), "GET /metrics": http.HandlerFunc(p.reportMetrics),
	})
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endHealth, p.ready.HTTPURL = stop, url
	return nil
}

// askServices calls every service concurrently and returns the answers by name.
func askServices[T any](p *Pipeline, fn func(url string) T) map[string]T {
	p.mu.Lock()
	urls := maps.Clone(p.health)
	p.mu.Unlock()
	var mu sync.Mutex
	var wg sync.WaitGroup
	answers := make(map[string]T, len(urls))
	for name, u := range urls {
		wg.Go(func() {
			a := fn(u)
			mu.Lock()
			defer mu.Unlock()
			answers[name] = a
		})
	}
	wg.Wait()
	return answers
}

func (p *Pipeline) reportHealth(w http.ResponseWriter, _ *http.Request) {
	all := daemon.Report{Status: daemon.StatusOK, Problems: map[string]string{}, Services: askServices(p, probeHealth)}
	for name, problem := range p.Problems() {
		all.Services[name] = sick(problem)
	}
	for _, name := range p.opt.Services {
		if _, known := all.Services[name]; !known {
			all.Services[name] = sick("does not run yet: the log of up says what it waits for")
		}
	}
	for name, r := range all.Services {
		all.Observed += r.Observed
		if r.Status == daemon.StatusStarting {
			all.Problems[name+"/process"] = "is starting"
		}
		for component, problem := range r.Problems {
			all.Problems[name+"/"+component] = problem
		}
	}
	if len(all.Problems) > 0 {
		all.Status = daemon.StatusUnhealthy
	}
	daemon.WriteReport(w, all)
}

func (p *Pipeline) reportMetrics(w http.ResponseWriter, _ *http.Request) {
	texts, all := map[string][]byte{}, askServices(p, scrapeMetrics)
	for _, name := range p.opt.Services { // without those of other tenants' gateways, which have the same series
		texts[name] = all[name] // nil of one that has not begun, or was stopped
	}
	metrics.Write(w, metrics.Merge(texts))
}

func httpGet(url string) (*http.Response, error) {
	client := http.Client{Timeout: 2 * time.Second}
	return client.Get(url)
}

// sick is the report of a service that does not answer itself.
func sick(problem string) daemon.Report {
	return daemon.Report{Status: daemon.StatusUnhealthy, Problems: map[string]string{"process": problem}}
}

func probeHealth(url string) daemon.Report {
	res, err := httpGet(url + "/healthz")
	if err != nil {
		return sick("does not answer")
	}
	defer func() { _ = res.Body.Close() }()
	var r daemon.Report
	if err := json.NewDecoder(res.Body).Decode(&r); err != nil {
		return sick("answers " + res.Status)
	}
	return r
}

// scrapeMetrics returns nil if the service does not answer.
func scrapeMetrics(url string) []byte {
	res, err := httpGet(url + "/metrics")
	if err != nil {
		return nil
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxMetrics))
	if err != nil || res.StatusCode != http.StatusOK {
		return nil
	}
	return b
}
