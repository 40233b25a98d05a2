// Package metrics counts what the services do and exposes it to Prometheus. Each service makes
// one Registry and counts through Admitter, Ingest, Gateway, Correlator or Auditor. All names are in
// names.go.
//
// Counting costs a few atomic additions. No label ever has a value that a publisher chose: every
// label has a closed list of values, and everything else counts as "other".
//
// A nil Registry stands for one that nothing exposes: a service that is run without one counts as usual.
package metrics

import (
	"bytes"
	"maps"
	"net/http"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/protobuf/proto"
)

// Registry holds the metrics of one service. Its methods are safe for concurrent use.
type Registry struct {
	gather *prometheus.Registry
	reg    prometheus.Registerer // adds the label of the service

	stalls Counter

	mu   sync.Mutex
	sets map[string]any // *Admitter, *Ingest, *Gateway, *Correlator or *Auditor
}

// New makes the registry of a service with the metrics that every service has.
func New(service string) *Registry {
	r := &Registry{gather: prometheus.NewRegistry(), sets: map[string]any{}}
	r.reg = prometheus.WrapRegistererWith(prometheus.Labels{labelService: service}, r.gather)
	r.reg.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewGoCollector())
	r.addCounter(descStalls, "", &r.stalls)
	return r
}

// once returns the set of metrics that has a key, and makes it if it is not there: a service that is
// run again goes on counting.
func once[T any](r *Registry, key string, build func(*Registry) *T) *T {
	if r == nil {
		return build(&Registry{reg: prometheus.NewRegistry()})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if set, there := r.sets[key]; there {
		return set.(*T)
	}
	set := build(r)
	r.sets[key] = set
	return set
}

// ReaderStalled counts a stalled consumer that was recreated.
func (r *Registry) ReaderStalled() {
	if r != nil {
		r.stalls.Inc()
	}
}

// Status is the state of a service.
type Status struct {
	Healthy, Ready bool
	Active         map[string]bool // by shard: false on standby. Empty for a service of which several instances work
}

// Health exposes the status of the service.
func (r *Registry) Health(status func() Status) {
	r.addGauge(descHealthy, "", func() (float64, bool) { return boolGauge(status().Healthy), true })
	r.addGauge(descReady, "", func() (float64, bool) { return boolGauge(status().Ready), true })
	r.registerFamily(descActive, "", func(of *prometheus.Desc, to chan<- prometheus.Metric) {
		for shard, active := range status().Active {
			to <- prometheus.MustNewConstMetric(of, prometheus.GaugeValue, boolGauge(active), shard)
		}
	})
}

// family exposes one family of a shard at each scrape.
type family struct {
	desc *prometheus.Desc
	show func(*prometheus.Desc, chan<- prometheus.Metric)
}

func (f family) Describe(to chan<- *prometheus.Desc) { to <- f.desc }
func (f family) Collect(to chan<- prometheus.Metric) { f.show(f.desc, to) }
func (r *Registry) registerFamily(d familyDesc, shard string, show func(*prometheus.Desc, chan<- prometheus.Metric)) {
	r.reg.MustRegister(family{prometheus.NewDesc(d.name, d.help, d.labels, ofShard(shard)), show})
}

// ofShard is the label of a shard's metrics.
func ofShard(shard string) prometheus.Labels {
	if shard == "" {
		return nil
	}
	return prometheus.Labels{labelShard: shard}
}

func (r *Registry) addCounter(d familyDesc, shard string, c *Counter) {
	r.registerFamily(d, shard, func(of *prometheus.Desc, to chan<- prometheus.Metric) {
		to <- prometheus.MustNewConstMetric(of, prometheus.CounterValue, float64(c.n.Load()))
	})
}

// addGauge exposes the result of value, unless it is not known.
func (r *Registry) addGauge(d familyDesc, shard string, value func() (float64, bool)) {
	r.registerFamily(d, shard, func(of *prometheus.Desc, to chan<- prometheus.Metric) {
		if v, known := value(); known {
			to <- prometheus.MustNewConstMetric(of, prometheus.GaugeValue, v)
		}
	})
}

func (r *Registry) addVector(d familyDesc, shard string, v *Vector) {
	r.registerFamily(d, shard, func(of *prometheus.Desc, to chan<- prometheus.Metric) {
		v.eachShown(func(values []string, n uint64) {
			to <- prometheus.MustNewConstMetric(of, prometheus.CounterValue, float64(n), values...)
		})
	})
}

func (r *Registry) addHistogram(d familyDesc, shard string, bounds []float64) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: d.name, Help: d.help, ConstLabels: ofShard(shard), Buckets: bounds})
	r.reg.MustRegister(h)
	return h
}

// Text returns all metrics in the Prometheus text format, ordered by name. Metrics that cannot be
// read at the moment are left out.
func (r *Registry) Text() []byte {
	families, _ := r.gather.Gather() // returns what it has even with an error
	return encodeText(families)
}

func encodeText(families []*dto.MetricFamily) []byte {
	var out bytes.Buffer
	for _, f := range families {
		_, _ = expfmt.MetricFamilyToText(&out, f) // writing to memory does not fail
	}
	return out.Bytes()
}

func (r *Registry) ServeHTTP(w http.ResponseWriter, _ *http.Request) { Write(w, r.Text()) }

// contentType is the content type of the Prometheus text format.
var contentType = string(expfmt.NewFormat(expfmt.TypeTextPlain))

// Write answers a scrape.
func Write(w http.ResponseWriter, text []byte) {
	w.Header().Set("Content-Type", contentType)
	_, _ = w.Write(text)
}

// Merge merges the texts of several services, by their names, and adds which of them answer; the
// text of one that does not is nil. A text that cannot be parsed is left out.
func Merge(texts map[string][]byte) []byte {
	merged := map[string]*dto.MetricFamily{}
	up := &dto.MetricFamily{Name: proto.String(descServiceUp.name), Help: proto.String(descServiceUp.help), Type: dto.MetricType_GAUGE.Enum()}
	for _, service := range slices.Sorted(maps.Keys(texts)) {
		up.Metric = append(up.Metric, &dto.Metric{
			Label: []*dto.LabelPair{{Name: proto.String(labelService), Value: proto.String(service)}},
			Gauge: &dto.Gauge{Value: proto.Float64(boolGauge(texts[service] != nil))},
		})
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(bytes.NewReader(texts[service]))
		if err != nil {
			continue
		}
		for name, f := range families {
			if have := merged[name]; have == nil {
				merged[name] = f
			} else if have.GetType() == f.GetType() {
				have.Metric = append(have.Metric, f.Metric...)
			}
		}
	}
	merged[descServiceUp.name] = up
	list := make([]*dto.MetricFamily, 0, len(merged))
	for _, name := range slices.Sorted(maps.Keys(merged)) {
		list = append(list, merged[name])
	}
	return encodeText(list)
}
