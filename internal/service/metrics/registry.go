// Package metrics counts what the services do and exposes it to Prometheus. Each service makes
// one Registry and counts through Admitter, Ingest, Gateway, Correlator or Auditor. All names are in
// names.go.
//
// Counting costs a look-up of the labels and a few atomic additions. No label ever has a value that a publisher chose: every
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
	"github.com/prometheus/client_golang/prometheus/promauto"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/protobuf/proto"
)

// Registry holds the metrics of one service. Its methods are safe for concurrent use.
type Registry struct {
	gather *prometheus.Registry
	reg    prometheus.Registerer // adds the label of the service

	stalls prometheus.Counter

	mu   sync.Mutex
	sets map[string]any // *Admitter, *Ingest, *Gateway, *Correlator or *Auditor
}

// New makes the registry of a service with the metrics that every service has.
func New(service string) *Registry {
	r := &Registry{gather: prometheus.NewRegistry(), sets: map[string]any{}}
	r.reg = prometheus.WrapRegistererWith(prometheus.Labels{labelService: service}, r.gather)
	r.reg.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewGoCollector())
	r.stalls = r.addCounter(descStalls, "")
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
	r.addScraped(descHealthy, "", func() (float64, bool) { return boolGauge(status().Healthy), true })
	r.addScraped(descReady, "", func() (float64, bool) { return boolGauge(status().Ready), true })
	r.reg.MustRegister(scrapedFamily{prometheus.NewDesc(descActive.name, descActive.help, descActive.labels, nil), func(of *prometheus.Desc, to chan<- prometheus.Metric) {
		for shard, active := range status().Active {
			to <- prometheus.MustNewConstMetric(of, prometheus.GaugeValue, boolGauge(active), shard)
		}
	}})
}

// scrapedFamily is a family that is read when it is scraped. It exposes nothing of what is not known then.
type scrapedFamily struct {
	desc *prometheus.Desc
	show func(*prometheus.Desc, chan<- prometheus.Metric)
}

func (f scrapedFamily) Describe(to chan<- *prometheus.Desc) { to <- f.desc }
func (f scrapedFamily) Collect(to chan<- prometheus.Metric) { f.show(f.desc, to) }

// options are what the library wants to know of a family. A shard is a label of all its series; "" for none.
func (d familyDesc) options(shard string) prometheus.Opts {
	o := prometheus.Opts{Name: d.name, Help: d.help}
	if shard != "" {
		o.ConstLabels = prometheus.Labels{labelShard: shard}
	}
	return o
}

func (r *Registry) addCounter(d familyDesc, shard string) prometheus.Counter {
	return promauto.With(r.reg).NewCounter(prometheus.CounterOpts(d.options(shard)))
}

func (r *Registry) addGauge(d familyDesc, shard string) prometheus.Gauge {
	return promauto.With(r.reg).NewGauge(prometheus.GaugeOpts(d.options(shard)))
}

func (r *Registry) addHistogram(d familyDesc, shard string, bounds []float64) prometheus.Histogram {
	o := d.options(shard)
	return promauto.With(r.reg).NewHistogram(prometheus.HistogramOpts{Name: o.Name, Help: o.Help, ConstLabels: o.ConstLabels, Buckets: bounds})
}

// addScraped exposes the result of value, unless it is not known.
func (r *Registry) addScraped(d familyDesc, shard string, value func() (float64, bool)) {
	o := d.options(shard)
	r.reg.MustRegister(scrapedFamily{prometheus.NewDesc(o.Name, o.Help, nil, o.ConstLabels), func(of *prometheus.Desc, to chan<- prometheus.Metric) {
		if v, known := value(); known {
			to <- prometheus.MustNewConstMetric(of, prometheus.GaugeValue, v)
		}
	}})
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
