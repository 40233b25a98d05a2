// Package metrics counts what the services do and shows it in the Prometheus
// text format. All names are in names.go.
//
// Counting costs one or two atomic additions. No label ever has a value that a
// publisher chose: every label has a closed list of values, and everything else
// counts as "other".
//
// The methods of Admitter, Correlator and Auditor do nothing on a nil receiver,
// and a nil Registry gives nil: code that counts needs not ask whether anybody
// looks.
package metrics

import (
	"bytes"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// contentType is that of the Prometheus text format.
const contentType = "text/plain; version=0.0.4; charset=utf-8"

// Registry holds the metrics of one service. Its methods may be called from any
// goroutine.
type Registry struct {
	service string

	mu          sync.Mutex
	families    []*family
	admitter    *Admitter
	correlators map[string]*Correlator
	auditors    map[string]*Auditor
}

// family is all samples under one name.
type family struct {
	desc    desc
	samples []func(*sampler)
}

// New makes the registry of a service and puts into it what every service has.
func New(service string) *Registry {
	r := &Registry{service: service, correlators: map[string]*Correlator{}, auditors: map[string]*Auditor{}}
	r.process()
	return r
}

// Status is what a service says of itself.
type Status struct{ Healthy, Ready, Standby bool }

// Health shows the status of the service.
func (r *Registry) Health(status func() Status) {
	r.gauge(descHealthy, "", func() (float64, bool) { return flag(status().Healthy), true })
	r.gauge(descReady, "", func() (float64, bool) { return flag(status().Ready), true })
	r.gauge(descActive, "", func() (float64, bool) { return flag(!status().Standby), true })
}

func (r *Registry) add(d desc, sample func(*sampler)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.families {
		if f.desc.name == d.name {
			f.samples = append(f.samples, sample)
			return
		}
	}
	r.families = append(r.families, &family{d, []func(*sampler){sample}})
}

func (r *Registry) counter(d desc, shard string, c *Counter) {
	r.add(d, func(s *sampler) { s.whole("", c.n.Load(), labelShard, shard) })
}

// gauge shows what value gives, unless it says that it does not know.
func (r *Registry) gauge(d desc, shard string, value func() (float64, bool)) {
	r.add(d, func(s *sampler) {
		if v, known := value(); known {
			s.number("", v, labelShard, shard)
		}
	})
}

func (r *Registry) vector(d desc, shard string, v *Vector) {
	r.add(d, func(s *sampler) {
		v.each(func(values []string, n uint64) {
			pairs := []string{labelShard, shard}
			for i, value := range values {
				pairs = append(pairs, d.labels[i], value)
			}
			s.whole("", n, pairs...)
		})
	})
}

func (r *Registry) histogram(d desc, shard string, h *Histogram) {
	r.add(d, func(s *sampler) {
		var sum uint64
		for i := range h.counts {
			sum += h.counts[i].Load()
			bound := "+Inf"
			if i < len(h.bounds) {
				bound = number(h.bounds[i])
			}
			s.whole("_bucket", sum, labelShard, shard, "le", bound)
		}
		s.number("_sum", float64(h.sum.Load())/h.unit, labelShard, shard)
		s.whole("_count", sum, labelShard, shard)
	})
}

// Text gives all metrics in the Prometheus text format, ordered by name.
func (r *Registry) Text() []byte {
	r.mu.Lock()
	list := slices.Clone(r.families)
	r.mu.Unlock()
	slices.SortFunc(list, func(a, b *family) int { return strings.Compare(a.desc.name, b.desc.name) })
	s := &sampler{service: r.service}
	for _, f := range list {
		s.name = f.desc.name
		s.buf.WriteString(head(f.desc))
		for _, sample := range f.samples {
			sample(s)
		}
	}
	return s.buf.Bytes()
}

func (r *Registry) ServeHTTP(w http.ResponseWriter, _ *http.Request) { Write(w, r.Text()) }

// Write answers a scrape.
func Write(w http.ResponseWriter, text []byte) {
	w.Header().Set("Content-Type", contentType)
	_, _ = w.Write(text)
}

// sampler writes samples of one family after the other.
type sampler struct {
	buf     bytes.Buffer
	service string
	name    string
}

func (s *sampler) whole(suffix string, n uint64, pairs ...string) {
	s.line(suffix, strconv.FormatUint(n, 10), pairs)
}

func (s *sampler) number(suffix string, v float64, pairs ...string) {
	s.line(suffix, number(v), pairs)
}

// line writes one sample; labels with an empty value are left out, which to
// Prometheus is the same.
func (s *sampler) line(suffix, value string, pairs []string) {
	s.buf.WriteString(s.name + suffix + `{` + labelService + `="` + escape(s.service) + `"`)
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			s.buf.WriteString(`,` + pairs[i] + `="` + escape(pairs[i+1]) + `"`)
		}
	}
	s.buf.WriteString("} " + value + "\n")
}

var (
	labelEscaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)
	helpEscaper  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
)

func escape(s string) string     { return labelEscaper.Replace(strings.ToValidUTF8(s, "\uFFFD")) }
func escapeHelp(s string) string { return helpEscaper.Replace(s) }
