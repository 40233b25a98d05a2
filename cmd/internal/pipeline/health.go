package pipeline

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/daemon"
)

// serveHealth answers for the whole tree: ok only if every service is.
func (p *Pipeline) serveHealth() error {
	url, stop, err := daemon.ServeHTTP(p.opt.HTTP, map[string]http.Handler{"GET /healthz": http.HandlerFunc(p.reportHealth)})
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed, p.ready.HTTPURL = stop, url
	return nil
}

func (p *Pipeline) reportHealth(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	urls := make(map[string]string, len(p.health))
	for name, u := range p.health {
		urls[name] = u
	}
	p.mu.Unlock()
	all := daemon.Report{Status: daemon.StatusOK, Problems: map[string]string{}}
	for name, u := range urls {
		r := probe(u)
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

func probe(url string) daemon.Report {
	client := http.Client{Timeout: 2 * time.Second}
	res, err := client.Get(url + "/healthz")
	if err != nil {
		return daemon.Report{Problems: map[string]string{"process": "does not answer"}}
	}
	defer func() { _ = res.Body.Close() }()
	var r daemon.Report
	if err := json.NewDecoder(res.Body).Decode(&r); err != nil {
		return daemon.Report{Problems: map[string]string{"process": fmt.Sprintf("answers %s", res.Status)}}
	}
	return r
}
